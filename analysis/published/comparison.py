"""Each published value beside that of a run, with a verdict, in the order of the paper."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import polars as pl

from analysis.published import comparable, rounding, verdicts
from analysis.published.data import Published
from analysis.published.exhibits import EXHIBITS, Exhibit
from analysis.published.records import Compared, Line, Readings, TokenList
from analysis.published.run_values import Missing, RunValues, lists_of
from analysis.published.verdicts import Entry, Verdict
from analysis.sentences import bounds
from engine import display

SHOWN = 20  # tokens of a list for which nothing is published


def compare(published: Published, readings: Readings) -> list[Compared]:
    """Every exhibit with its values.

    Args:
      published: what to compare with.
      readings: the run.
    """
    return [_exhibit(exhibit, published, readings) for exhibit in EXHIBITS]


def totals(compared: Iterable[Compared]) -> dict[str, int]:
    """Kind of verdict -> number of values, over all exhibits."""
    each = [one.counts for one in compared]
    return {kind: sum(counts[kind] for counts in each) for kind in verdicts.KINDS}


def uncounted(compared: Iterable[Compared]) -> int:
    """Values that the totals leave out, because any run would have their verdict."""
    return sum(one.uncounted for one in compared)


def _exhibit(exhibit: Exhibit, published: Published, readings: Readings) -> Compared:
    if exhibit.id == "table_1":
        lines = [line for row in published.models.to_dicts() for line in _model(row, readings)]
        return Compared(exhibit=exhibit, lines=lines, lists=(), remarks=())
    unlike = comparable.unlike(exhibit, published, readings.paper)
    numbers = published.numbers.filter(exhibit=exhibit.id)
    lines = [_line(row, readings, unlike) for row in numbers.to_dicts()]
    tokens = published.tokens.filter(exhibit=exhibit.id)
    by = ("prompt", "model", "end")
    parts = tokens.partition_by(*by, maintain_order=True)
    lists = [_list(part, readings, unlike) for part in parts]
    lines += [line for part in _scored(tokens) for line in _scores(part, readings)]
    if tokens.is_empty() and numbers.is_empty():
        lists = _unpublished(exhibit, readings)
    return Compared(
        exhibit=exhibit,
        lines=lines,
        lists=lists,
        remarks=comparable.remarks(exhibit, readings.paper),
        shown=_shown(exhibit, readings.paper),
        missing=comparable.missing(exhibit, readings.paper, lines),
    )


def _model(row: Mapping[str, Any], readings: Readings) -> list[Line]:  # Any: cells of a table
    """A row of Table 1 against the registry's entry of the model."""
    known = readings.paper.tables.get(("models",))
    slug = readings.paper.slugs.get(row["nickname"], "")
    computed = None if known is None else known.filter(model=slug)
    lines = []
    for name in ("base", "developer", "size_b", "rewardbench_rank"):
        value = computed[name][0] if computed is not None and computed.height else None
        printed = row[name]
        verdict = Verdict(verdicts.SAME if value == printed else verdicts.DIFFERS)
        if value is None:
            reason = readings.paper.failures.get(slug, "the model was not scored")
            verdict = Verdict(verdicts.NOT_RUN, reason)
        lines.append(
            Line(
                of=row["nickname"],
                model=row["nickname"],
                quantity=_TABLE_1[name],
                published=_short(printed),
                computed=None if value is None else _short(value),
                ours=None if value is None else _short(value),
                difference=None,
                verdict=verdict,
                source=row["source"],
                counted=False,  # the registry states the same table
            )
        )
    return lines


_TABLE_1 = {
    "base": "base model",
    "developer": "developer",
    "size_b": "size (10⁹ parameters)",
    "rewardbench_rank": "rank on RewardBench",
}


def _short(value: Any) -> str:  # Any: text or a number
    return f"{value:g}" if isinstance(value, float) else str(value)


def _line(row: Mapping[str, Any], readings: Readings, unlike: str) -> Line:
    printed = float(row["value"])
    computed, ours, verdict = _against(row, printed, row["within"], readings, _number)
    names = [row[n] for n in ("model", "other") if row[n] in readings.paper.slugs]
    free = verdict.kind == verdicts.SAME and abs(printed) <= row["within"]
    if free:
        verdict = Verdict(verdicts.SAME, f"read to ±{row['within']:g}, no less than the value")
    return Line(
        of=" · ".join(filter(None, (row["model"], row["other"]))),
        model=names[0] if len(names) == 1 else "",
        quantity=_quantity(row),
        published=row["value"],
        computed=computed,
        ours=ours,
        difference=None if computed is None else computed - printed,
        verdict=_judged(verdict, unlike),
        source=row["source"],
        counted=not free or bool(unlike),
    )


Find: TypeAlias = Callable[[RunValues, Mapping[str, Any]], tuple[float | None, str]]


def _against(
    row: Mapping[str, Any], printed: float, within: float, readings: Readings, find: Find
) -> tuple[float | None, float | None, Verdict]:
    """A number in the paper's conventions and in ours, and what it says of the printed one."""
    computed, missing = find(readings.paper, row)
    ours, _ = find(readings.ours, row)
    other = None if readings.noise is None else find(readings.noise, row)[0]
    verdict = verdicts.of_number(
        printed,
        within,
        computed,
        noise=None if computed is None or other is None else abs(computed - other),
        others={readings.ours.name: ours},
        singles={one.name: find(one, row)[0] for one in _tried(readings, row)},
        missing=missing,
    )
    return computed, ours, verdict


def _judged(verdict: Verdict, unlike: str) -> Verdict:
    """A verdict, where the published value is one that the run may be judged by."""
    return Verdict(verdicts.NOT_RUN, unlike) if unlike and _is_there(verdict) else verdict


def _is_there(verdict: Verdict) -> bool:
    return verdict.kind != verdicts.NOT_RUN


def _tried(readings: Readings, row: Mapping[str, Any]) -> list[RunValues]:  # Any: cells of a table
    """The readings that change one convention and were tried for what a row is of."""
    names = [str(row[key]) for key in ("model", "other") if key in row]
    return [one for one in readings.singles if one.has_tried(row["prompt"], *names)]


def _quantity(row: Mapping[str, Any]) -> str:
    name = QUANTITIES[row["quantity"]]
    return f"{name}, “{row['prompt']}”" if row["quantity"].endswith("slope") else name


QUANTITIES = {
    "mean": "mean",
    "variance": "variance",
    "skewness": "skewness",
    "kendall": "Kendall’s τ",
    "spearman": "Spearman’s ρ",
    "rbo": "rank-biased overlap",
    "pearson": "Pearson’s r with the agreement",
    "mantel_p": "its p (Mantel, one-sided)",
    "r_squared": "R² of the joint regression",
    "sentiment_slope": "slope",
    "frequency_slope": "slope",
    "rank_gap": "rank of the models less that of people",
    "first": "models that rank it first",
    "mean_kendall": "mean of Kendall’s τ",
}


def _number(computed: RunValues, row: Mapping[str, Any]) -> tuple[float | None, str]:
    try:
        return computed.number(row), ""
    except Missing as missing:
        return None, str(missing)


def _list(part: pl.DataFrame, readings: Readings, unlike: str) -> TokenList:
    first = part.row(0, named=True)
    where = tuple(first[k] for k in ("exhibit", "prompt", "model", "end"))
    by_id = first["exhibit"] == "table_2"
    rows = part.sort("rank").to_dicts()
    printed = [Entry(str(row["token_id"]) if by_id else row["token"], row["score"]) for row in rows]
    computed, missing = _entries(readings.paper, where)
    ours, _ = _entries(readings.ours, where)
    noise = None if readings.noise is None else _entries(readings.noise, where)[0]
    verdict = verdicts.of_list(
        printed,
        computed,
        descending=first["end"] == "top",
        noise=noise,
        others={readings.ours.name: ours},
        singles={one.name: _entries(one, where)[0] for one in _tried(readings, first)},
        missing=missing,
    )
    texts = {str(row["token_id"]): row["token"] for row in rows} if by_id else {}
    return TokenList(
        model=first["model"],
        end=first["end"],
        published=[row["token"] for row in rows],
        computed=_texts(computed, len(printed), texts),
        ours=_texts(ours, len(printed), texts),
        common=0 if computed is None else verdicts.shared(printed, computed),
        at_rank=0 if computed is None else verdicts.at_their_rank(printed, computed),
        verdict=_judged(verdict, unlike),
        source=first["source"],
    )


def _texts(entries: Sequence[Entry] | None, count: int, texts: Mapping[str, str]) -> list[str]:
    if entries is None:
        return []
    return [entry.text or texts.get(entry.key, entry.key) for entry in entries[:count]]


def _entries(computed: RunValues, where: tuple[str, ...]) -> tuple[list[Entry] | None, str]:
    exhibit, prompt, model, end = where
    try:
        return computed.entries(exhibit, prompt, model, end), ""
    except Missing as missing:
        return None, str(missing)


def _scored(tokens: pl.DataFrame) -> list[pl.DataFrame]:
    """Published lists whose rewards are printed too."""
    scored = tokens.filter(pl.col("score").is_not_null())
    return scored.partition_by("model", "end", maintain_order=True)


def _scores(part: pl.DataFrame, readings: Readings) -> list[Line]:
    """The printed rewards of tokens, against those of the same token ids."""
    lines = []
    for row in part.to_dicts():
        within = rounding.score_within(row["model"], row["score"])
        computed, ours, verdict = _against(row, row["score"], within, readings, _score)
        lines.append(
            Line(
                of=f"{row['model']} · {display.plain(row['token'])}",
                model=row["model"],
                quantity=f"reward, {row['end']} {row['rank']}",
                published=f"{row['score']:g}",
                computed=computed,
                ours=ours,
                difference=None if computed is None else computed - row["score"],
                verdict=verdict,
                source=row["source"],
            )
        )
    return lines


def _score(computed: RunValues, row: Mapping[str, Any]) -> tuple[float | None, str]:
    try:
        return computed.score(row["prompt"], row["model"], row["token_id"]), ""
    except Missing as missing:
        return None, str(missing)


def _unpublished(exhibit: Exhibit, readings: Readings) -> list[TokenList]:
    """Lists of a run for which the published ones were not at hand."""
    lists = []
    for prompt in exhibit.prompts:
        for model in lists_of(readings.paper, exhibit.id, prompt):
            for end in ("top", "bottom"):
                where = (exhibit.id, prompt, model, end)
                computed, ours = (_entries(o, where)[0] for o in (readings.paper, readings.ours))
                lists.append(
                    TokenList(
                        model=model,
                        end=end,
                        published=(),
                        computed=_texts(computed, SHOWN, {}),
                        ours=_texts(ours, SHOWN, {}),
                        common=0,
                        at_rank=0,
                        verdict=None,
                        source="",
                    )
                )
    return lists


def _shown(exhibit: Exhibit, computed: RunValues) -> list[tuple[str, ...]]:
    """Rows of a table of the run with a header, for an exhibit whose numbers are not published."""
    nicknames = {slug: nickname for nickname, slug in computed.slugs.items()}
    if exhibit.id == "gcg" and ("sequences",) in computed.tables:
        found = computed.tables["sequences",].select("model", "direction", "reward", "text")
        rows = [(nicknames.get(m, m), d, f"{r:.3f}", t) for m, d, r, t in found.iter_rows()]
        return [("model", "direction", "reward", "text"), *rows]
    if exhibit.id == "figure_4" and ("framing",) in computed.tables:
        both = computed.tables["framing",].filter(
            pl.col("prompt_a").is_in(["best", "worst"]), pl.col("prompt_b").is_in(["best", "worst"])
        )
        numbers = both.select("model", "pearson", "ci_low", "ci_high").iter_rows()
        rows = [(nicknames.get(m, m), f"{r:.3f}", bounds(a, b, 3)) for m, r, a, b in numbers]
        return [("model", "Pearson’s r of “best” and “worst”", "95 % interval"), *rows]
    return []
