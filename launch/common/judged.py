"""What people chose, and what models did: replies.csv, and lines for the terminal."""

import math
from collections.abc import Iterator, Sequence

import polars as pl

import analysis
from analysis.measures import pairs
from engine import display
from engine.runs import schema, storage
from launch.common.text import say

REPLIES = "replies.csv"
_WORST = 10
_SHOWN = 40  # characters of a text in a line
_OF_OURS = ("model", "row", "id", "side", "reward", "margin", "right", "prompt", "reply")


def write(run: str, name: str, models: Sequence[str]) -> None:
    """Writes `replies.csv` beside a list of conversations, and prints its pairs.

    `models` are those to print; the file has all that scored the list.
    """
    scored = pairs.replies(analysis.load(run, finished_only=True), name)
    table = scored.select(*_OF_OURS)
    for label in pairs.label_names(scored):
        name_here = label
        while name_here in table.columns:
            name_here = f"label_{name_here}"
        table = table.with_columns(pairs.label_values(scored, label).alias(name_here))
    path = storage.path_of(run) / schema.CONVERSATIONS_DIR / name / REPLIES
    storage.write_atomic(path, table.write_csv().encode())
    judged = pairs.pairs(scored.filter(pl.col("model").is_in(list(models))))
    for line in _lines(name, judged):
        say(line)


def _lines(name: str, judged: pl.DataFrame) -> Iterator[str]:
    """Accuracy, mean margin and the worst pairs of each model; none without pairs."""
    if not judged.height:
        return
    shares = pairs.accuracies(name, judged)
    lowest = pairs.worst(name, judged, _WORST)
    for (model,), own in shares.group_by("model", maintain_order=True):
        whole, *rest = own.iter_rows(named=True)
        ties = f", {whole['ties']} ties count as wrong" if whole["ties"] else ""
        ends = f" (95 % {whole['ci_low']:.1%} to {whole['ci_high']:.1%})"
        yield (
            f"{model}: {whole['accuracy']:.1%} of {whole['n']:,} pairs right"
            f"{ends if math.isfinite(whole['ci_low']) else ''}, mean margin "
            f"{whole['margin']:.3g}{ties}"
        )
        for row in rest:
            if row["label"] == pairs.SECTION:
                yield f"  RewardBench {row['group']}: {row['accuracy']:.1%} of {row['n']:,}"
        yield "  worst margins (row: prompt | chosen | rejected)"
        for row in lowest.filter(model=model).iter_rows(named=True):
            texts = (row["question"], row["chosen"], row["rejected"])
            said = " | ".join(display.plain(text, _SHOWN) for text in texts)
            yield f"  {row['margin']:8.3g}  {row['row']}: {said}"
