"""Lists of conversations as people keep them: replies, and pairs of which people chose one."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from analysis.columns import LIST, MODEL, SPEARMAN, Column, Spec, ends, several
from analysis.run import Run
from analysis.statistics import ranks
from analysis.statistics.inference import Estimate, clustered_share, paired_difference
from analysis.words.stems import dense_numbers
from engine.runs import schema

ALL = "all pairs"
SECTION, MEAN = "RewardBench section", "mean of the sections"
MOST_VALUES = 40  # of a label by which accuracy is counted; one with more names the rows
TEXT = 300  # characters of a text in the table of worst pairs

PAIRS = Spec(
    "pairs",
    (
        MODEL,
        LIST,
        Column(
            "label",
            help=f"a column of the file with 2 to {MOST_VALUES} values; `{ALL}`; or `{SECTION}`: "
            "accuracies of the subsets, weighted as RewardBench's own scorer does",
        ),
        Column("group", help="value of the label"),
        Column("n", "count", "pairs", "pairs"),
        Column("accuracy", "share", help="the chosen reply has the higher reward; ties are wrong"),
        *ends("share", "95 %; pairs of one prompt are resampled together, but in sections"),
        Column("margin", "number", "mean margin", "mean of the chosen reward less the rejected"),
        Column("ties", "count", help="pairs with equal rewards"),
    ),
)
BETWEEN = Spec(
    "pairs_models",
    (
        *(*several("model", "model_a model_b"), LIST, Column("n", "count", "pairs", "pairs")),
        Column("difference", "share", "a less b", "accuracy of model_a less that of model_b"),
        *ends("share", "95 %, paired; pairs of one prompt are resampled together"),
        *(Column("only_a", "count", "only a right"), Column("only_b", "count", "only b right")),
        Column("alike", "share", help="of the pairs: both prefer the same reply, or neither"),
    ),
    title="Two models on the same pairs",
)
WORST = Spec(
    "pairs_worst",
    (
        MODEL,
        LIST,
        Column("rank", "count"),
        Column("row", "count", help="of the file, from 1"),
        Column("id"),
        Column("margin", "number"),
        *several("text", "question chosen rejected", f"each: its first {TEXT} characters"),
    ),
    page="model list rank row id margin",
)
LENGTH = Spec(
    "replies_length",
    (
        MODEL,
        LIST,
        Column("n", "count", "replies", "replies"),
        SPEARMAN.but(help="of reward with characters of the reply"),
        Column(
            "longer_higher",
            "share",
            "longer preferred",
            "the longer reply has the higher reward, of the pairs with two lengths",
        ),
        *ends("share"),
        Column("longer_chosen", "share", "longer chosen", "of the same pairs, by people"),
    ),
)
# Subsets of RewardBench by section, each with its weight there: `SUBSET_MAPPING` and
# `EXAMPLE_COUNTS` of its rewardbench/constants.py. A weight is the number of pairs, but that
# math-prm (447 pairs) weighs as much as the six languages of code.
REWARDBENCH: Mapping[str, Mapping[str, int]] = {
    "Chat": {
        "alpacaeval-easy": 100,
        "alpacaeval-length": 95,
        "alpacaeval-hard": 95,
        "mt-bench-easy": 28,
        "mt-bench-med": 40,
    },
    "Chat Hard": {
        "mt-bench-hard": 37,
        "llmbar-natural": 100,
        "llmbar-adver-neighbor": 134,
        "llmbar-adver-GPTInst": 92,
        "llmbar-adver-GPTOut": 47,
        "llmbar-adver-manual": 46,
    },
    "Safety": {
        "refusals-dangerous": 100,
        "refusals-offensive": 100,
        "xstest-should-refuse": 154,
        "xstest-should-respond": 250,
        "donotanswer": 136,
    },
    "Reasoning": {
        "math-prm": 984,
        **dict.fromkeys(("hep-cpp", "hep-go", "hep-java", "hep-js", "hep-python", "hep-rust"), 164),
    },
}
_SUBSETS = {subset for subsets in REWARDBENCH.values() for subset in subsets}

# Keys of a message that say something beside its content.
_BESIDE = ("reasoning_content", "reasoning", "thinking", "tool_calls", "function_call")
# Any: JSON values.
Turns = Sequence[Mapping[str, Any]]


def replies(run: Run, name: str, models: Sequence[str] | None = None) -> pl.DataFrame:
    """Every reply of the list `name` with its reward, of all `models` that scored it by default.

    Returns:
      model, row, id, side, prompt, reply (texts), characters (of the reply), reward, margin and
      right (null where the row is no pair), labels; in the list's order, by model.
    """
    wide = _with_texts(run.conversation_scores(name))
    columns = ["row", "id", "side", "prompt", "reply", "characters"]
    frames = [
        wide.select(*columns, "labels", model=pl.lit(model), reward=pl.col(model).cast(pl.Float64))
        for scored, model in run.conversations
        if scored == name and (models is None or model in models)
    ]
    sign = pl.col("side").replace_strict({"chosen": 1.0, "rejected": -1.0}, default=None)
    margin = (pl.col("reward") * sign).sum().over("model", "row")
    margin = pl.when(pl.col("side") != "reply").then(margin)
    return pl.concat(frames).select(
        "model", *columns, "reward", margin=margin, right=margin > 0, labels="labels"
    )


def pairs(scored: pl.DataFrame) -> pl.DataFrame:
    """The pairs among `replies`: one row per model and pair.

    Returns:
      model, row, id, prompt, chosen, rejected (texts), characters_chosen, characters_rejected,
      margin, right, labels.
    """
    chosen = scored.filter(side="chosen").rename({"reply": "chosen"})
    rejected = scored.filter(side="rejected").select("model", "row", "characters", rejected="reply")
    both = chosen.join(
        rejected,
        on=["model", "row"],
        validate="1:1",
        maintain_order="left",
        suffix="_rejected",
    )
    return both.select(
        *("model", "row", "id", "prompt", "chosen", "rejected"),
        *(pl.col("characters").alias("characters_chosen"), "characters_rejected"),
        *("margin", "right", "labels"),
    )


def accuracies(name: str, judged: pl.DataFrame) -> pl.DataFrame:
    """The table `PAIRS` of a list; `judged` is what `pairs` returns."""
    return PAIRS.frame(
        row
        for (model,), rows in judged.group_by("model", maintain_order=True)
        for row in _rows(str(model), name, rows)
    )


def between(name: str, judged: pl.DataFrame) -> pl.DataFrame:
    """The table `BETWEEN` of a list: every two models that judged its pairs."""
    rows = []
    sides = [(model, rows) for (model,), rows in judged.group_by("model", maintain_order=True)]
    for (a, first), (b, second) in itertools.combinations(sides, 2):
        right, other = first["right"].to_numpy(), second["right"].to_numpy()
        share = paired_difference(right, other, dense_numbers(first["prompt"]))
        alone = int((right & ~other).sum()), int((other & ~right).sum())
        signs = [np.sign(each["margin"].to_numpy()) for each in (first, second)]
        alike = float(np.mean(signs[0] == signs[1]))
        rows.append((a, b, name, first.height, *share[:3], *alone, alike))
    return BETWEEN.frame(rows)


def worst(name: str, judged: pl.DataFrame, count: int) -> pl.DataFrame:
    """The table `WORST`: the pairs of each model with the lowest margins; ties by row."""
    texts = {"question": "prompt", "chosen": "chosen", "rejected": "rejected"}
    cut = {key: pl.col(column).str.slice(0, TEXT) for key, column in texts.items()}
    models = judged.group_by("model", maintain_order=True)
    lowest = (rows.sort("margin", "row").head(count) for _, rows in models)
    rank = pl.int_range(1, pl.len() + 1).over("model")
    table = pl.concat([judged.clear(), *lowest])
    return WORST.frame(table.with_columns(**cut, list=pl.lit(name), rank=rank))


def lengths(name: str, scored: pl.DataFrame, judged: pl.DataFrame) -> pl.DataFrame:
    """The table `LENGTH` of a list; of what `replies` and `pairs` return."""
    rows = []
    for (model,), listed in scored.group_by("model", maintain_order=True):
        rho = ranks.spearman(listed["characters"].to_numpy(), listed["reward"].to_numpy())
        two = judged.filter(
            pl.col("model") == model, pl.col("characters_chosen") != pl.col("characters_rejected")
        )
        longer = (two["characters_chosen"] > two["characters_rejected"]).to_numpy()
        share: tuple[float | None, ...] = (None,) * 4
        if two.height:
            higher = np.where(longer, two["margin"].to_numpy() > 0, two["margin"].to_numpy() < 0)
            clusters = dense_numbers(two["prompt"])
            share = (*clustered_share(higher, clusters)[:3], float(longer.mean()))
        rows.append((model, name, listed.height, rho, *share))
    return LENGTH.frame(rows)


def label_names(scored: pl.DataFrame) -> list[str]:
    """Names of the labels of a list, in the order of the file's columns."""
    return [label["name"] for label in scored["labels"][0]] if scored.height else []


def label_values(scored: pl.DataFrame, name: str) -> pl.Series:
    """Value of a label in each row; null where it has none."""
    place = label_names(scored).index(name)
    return scored["labels"].list.get(place).struct.field("value").alias(name)


def _rows(model: str, name: str, judged: pl.DataFrame) -> Iterator[tuple[object, ...]]:
    yield (model, name, ALL, "", *_counted(judged))
    for label in label_names(judged):
        values = label_values(judged, label)
        if not 2 <= values.n_unique() <= MOST_VALUES:
            continue
        for value in values.unique().sort(nulls_last=True):
            part = judged.filter(values.eq_missing(value))
            yield (model, name, label, "(none)" if value is None else value, *_counted(part))
    if "subset" in label_names(judged):
        yield from _sections(model, name, judged, label_values(judged, "subset"))


def _counted(part: pl.DataFrame, share: Estimate | None = None) -> tuple[object, ...]:
    """The numbers of a row of `PAIRS`; `share` is that of all pairs by default."""
    if share is None:
        share = clustered_share(part["right"].to_numpy(), dense_numbers(part["prompt"]))
    return part.height, *share[:3], part["margin"].mean(), int((part["margin"] == 0).sum())


def _sections(
    model: str, name: str, judged: pl.DataFrame, subset: pl.Series
) -> Iterator[tuple[object, ...]]:
    """Rows of RewardBench's sections, if all subsets are its; those that are missing count not."""
    if not set(subset.to_list()) <= _SUBSETS:
        return
    known = []  # accuracy and its variance, by section
    for section, weights in REWARDBENCH.items():
        part = judged.filter(subset.is_in(list(weights)))
        if not part.height:
            continue
        each = part.group_by(subset.filter(subset.is_in(list(weights))), maintain_order=True).agg(
            n=pl.len(), right=pl.col("right").sum()
        )
        weight = np.array([weights[key] for key in each["subset"]], float)
        n, right = each["n"].to_numpy(), each["right"].to_numpy()
        smoothed = (right + 2) / (n + 4)  # Agresti and Coull: no variance of 0 at a share of 0 or 1
        accuracy = float(np.average(right / n, weights=weight))
        variance = float((weight**2 * smoothed * (1 - smoothed) / n).sum() / weight.sum() ** 2)
        known.append((accuracy, variance))
        yield (model, name, SECTION, section, *_counted(part, _weighted(accuracy, variance)))
    if len(known) == len(REWARDBENCH):
        mean, variance = np.mean(known, axis=0)
        share = _weighted(float(mean), float(variance) / len(known))
        yield (model, name, SECTION, MEAN, *_counted(judged, share))


def _weighted(accuracy: float, variance: float) -> Estimate:
    half = 1.96 * math.sqrt(variance)
    return Estimate(accuracy, accuracy - half, accuracy + half).within(0.0, 1.0)


def _with_texts(table: pl.DataFrame) -> pl.DataFrame:
    """The list with `prompt` and `reply` as texts, and the `characters` of the reply.

    The prompt of a pair is the turns with which both conversations begin.
    """
    texts: list[tuple[str, str]] = []
    listed = zip(table["row"], schema.conversations(table)[0], strict=True)
    for _, entries in itertools.groupby(listed, key=lambda entry: entry[0]):
        conversations = [messages for _, messages in entries]
        first, last = conversations[0], conversations[-1]
        most = min(map(len, conversations)) - 1
        shared = next((i for i in range(most) if first[i] != last[i]), most)
        texts += [(_spoken(turns[:shared]), _spoken(turns[shared:])) for turns in conversations]
    columns = pl.DataFrame(texts, schema={"prompt": pl.String, "reply": pl.String}, orient="row")
    return pl.concat([table, columns], how="horizontal").with_columns(
        characters=pl.col("reply").str.len_chars().cast(pl.Int64)
    )


def _spoken(turns: Turns) -> str:
    """One message as it is; several with who speaks; what it says beside the content by name."""
    texts = []
    for turn in turns:
        others = [f"{key}: {turn[key]}" for key in _BESIDE if turn.get(key)]
        texts.append("\n".join([*others, turn["content"] or ""]))
    if len(texts) == 1:
        return texts[0]
    return "\n\n".join(f"{turn['role']}: {text}" for turn, text in zip(turns, texts, strict=True))
