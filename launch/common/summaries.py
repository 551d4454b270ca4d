"""What a command prints above its last line: extreme tokens of a prompt, and a table of models."""

import sys
from collections.abc import Sequence

import polars as pl
from tqdm import tqdm

from engine import display
from engine.sweep.outcomes import Outcome

_SHOWN = 5  # tokens per end


def show_extremes(model: str, prompt: str, scores: pl.DataFrame) -> None:
    """Prints `extremes` on standard error, above the progress bar."""
    tqdm.write(extremes(model, prompt, scores), file=sys.stderr)


def extremes(model: str, prompt: str, scores: pl.DataFrame) -> str:
    """The five highest and five lowest tokens of a model under a prompt, as three lines.

    `scores` has token_id, token and reward, one row per token. Spaces, line ends and other
    invisible characters are shown as marks. Equal rewards are ordered by token id.
    """
    title = f"{model}, prompt {prompt!r}:"
    highest = scores.sort("reward", "token_id", descending=[True, False]).head(_SHOWN)
    lowest = scores.sort("reward", "token_id").head(_SHOWN)
    return "\n".join([title, f"  highest  {_row(highest)}", f"  lowest   {_row(lowest)}"])


def show_models(outcomes: Sequence[Outcome]) -> None:
    """Prints `table` on standard error, if there are several models."""
    if len(outcomes) > 1:
        show_table(outcomes)


def show_table(outcomes: Sequence[Outcome]) -> None:
    """Prints `table` on standard error, for a single model too: as of a shard, among others."""
    tqdm.write(table(outcomes), file=sys.stderr)


def table(outcomes: Sequence[Outcome]) -> str:
    """One line per model: prompts done, new rows, seconds, and whether it is complete."""
    head = ("model", "prompts", "new rows", "seconds", "status")
    lines = [head] + [
        (
            outcome.model,
            f"{outcome.done}/{outcome.prompts}",
            f"{outcome.rows:,}",
            f"{outcome.seconds:.1f}",
            f"failed: {outcome.failure}" if outcome.failure else "complete",
        )
        for outcome in outcomes
    ]
    widths = [max(map(len, cells)) for cells in list(zip(*lines, strict=True))[:-1]]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:-1], widths[1:]), line[-1]])
        for line in lines
    )


def _row(scores: pl.DataFrame) -> str:
    rows = scores.select("token", "reward").iter_rows()
    return "   ".join(f"{display.plain(token, limit=24)} {reward:.2f}" for token, reward in rows)
