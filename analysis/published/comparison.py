"""Each published value beside that of a run, with a verdict, in the order of the paper."""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import polars as pl

from analysis.published import rounding, verdicts
from analysis.published.data import Published
from analysis.published.exhibits import EXHIBITS, ITEMS, LOGPROBS, NEEDS, SWEEP, Exhibit
from analysis.published.run_values import TEN, WORDFREQ, Missing, RunValues
from analysis.published.verdicts import DIFFERS, NOT_RUN, SAME, Entry, Verdict
from analysis.sentences import bounds
from engine import display

T = TypeVar("T")
Row = Mapping[str, Any]  # Any: cells of a table

SHOWN = 20  # tokens of a list for which nothing is published
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
_TABLE_1 = {
    "base": "base model",
    "developer": "developer",
    "size_b": "size (10⁹ parameters)",
    "rewardbench_rank": "rank on RewardBench",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Readings:
    """The tables of a run under each reading of the models."""

    paper: RunValues  # in the paper's conventions; the verdicts are of this one
    ours: RunValues  # in ours
    # In the paper's conventions and another dtype; None where it was not run.
    noise: RunValues | None = None
    singles: Sequence[RunValues] = ()  # in the paper's conventions with one of them changed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """A published number beside a run's."""

    of: str  # what it is of: a model, two models, an item
    model: str  # nickname of the one model that it is of; "" where it is of several
    quantity: str  # what is measured, and under which prompt where there are several
    published: str  # as it is printed
    # The run's number in the paper's conventions; None where there is none.
    computed: float | str | None
    ours: float | str | None  # the same in our conventions
    difference: float | None  # computed less published
    verdict: Verdict  # of the paper's conventions
    source: str  # of the published number
    counted: bool = True  # whether the totals count it; not where any run would have that verdict


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenList:
    """One end of a model's ranking, published and of a run."""

    model: str  # nickname
    end: str  # `top` or `bottom`
    computed: Sequence[str]  # tokens in the paper's conventions, the extreme first
    ours: Sequence[str]  # those in our conventions
    published: Sequence[str] = ()  # those of the paper; none where its list is not at hand
    common: int = 0  # published tokens among as many of the run's
    at_rank: int = 0  # those that have the same rank
    verdict: Verdict | None = None  # None where nothing is published
    source: str = ""  # of the published list


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared:
    """A table or figure of the paper, compared."""

    exhibit: Exhibit  # which
    lines: Sequence[Line]  # its numbers
    lists: Sequence[TokenList]  # its lists of tokens
    remarks: Sequence[str] = ()  # what a reader has to know of this comparison
    # A table of the run, where nothing is published digit by digit; its header comes first.
    shown: Sequence[Sequence[str]] = ()
    missing: str = ""  # why the run has nothing of it; "" where it has

    @property
    def counts(self) -> dict[str, int]:
        """Kind of verdict -> how many values that are counted have it."""
        kinds = [line.verdict.kind for line in self.lines if line.counted]
        kinds += [one.verdict.kind for one in self.lists if one.verdict]
        return {kind: kinds.count(kind) for kind in verdicts.KINDS}

    @property
    def uncounted(self) -> int:
        """Values whose verdict says nothing of the run."""
        return sum(not line.counted for line in self.lines)

    @property
    def run_lines(self) -> list[Line]:
        """The numbers that the run has."""
        return [line for line in self.lines if line.computed is not None]

    @property
    def run_lists(self) -> list[TokenList]:
        """The lists that the run has."""
        return [one for one in self.lists if one.computed or one.verdict is None]

    @property
    def not_run(self) -> list[tuple[str, int]]:
        """Why published values have no counterpart, and how many for each reason."""
        absent = [line for line in self.lines if line.computed is None]
        return _reasons([*absent, *(one for one in self.lists if not one.computed)])

    @property
    def not_judged(self) -> list[tuple[str, int]]:
        """Why values of the run are shown without being judged, and how many for each reason."""
        return _reasons([*self.run_lines, *self.run_lists])


def _reasons(values: Iterable[Line | TokenList]) -> list[tuple[str, int]]:
    reasons = [one.verdict.why for one in values if one.verdict and one.verdict.kind == NOT_RUN]
    return collections.Counter(reasons).most_common()


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
        return Compared(exhibit=exhibit, lines=lines, lists=())
    not_judged = _not_judged(exhibit, published, readings.paper)
    numbers = published.numbers.filter(exhibit=exhibit.id).to_dicts()
    tokens = published.tokens.filter(exhibit=exhibit.id)
    ends = tokens.partition_by("prompt", "model", "end", maintain_order=True)
    lists = [_list(part.sort("rank").to_dicts(), readings, not_judged) for part in ends]
    numbers += [_reward(row) for part in ends for row in part.drop_nulls("score").to_dicts()]
    lines = [_line(row, readings, not_judged) for row in numbers]
    return Compared(
        exhibit=exhibit,
        lines=lines,
        lists=lists if numbers or lists else _unpublished(exhibit, readings),
        remarks=_remarks(exhibit, readings.paper),
        shown=_shown(exhibit, readings.paper),
        missing=missing(exhibit, readings.paper, lines),
    )


# --- Numbers -------------------------------------------------------------------------------------


def _model(row: Row, readings: Readings) -> Iterator[Line]:
    """A row of Table 1 against the registry's entry of the model."""
    slug = readings.paper.slugs.get(row["nickname"], "")
    models = readings.paper.tables.get(("models",))
    known = [] if models is None else models.filter(model=slug).to_dicts()
    for name, quantity in _TABLE_1.items():
        value = _short(known[0][name]) if known and known[0][name] is not None else None
        reason = readings.paper.failures.get(slug, "the model was not scored")
        kind = SAME if value == _short(row[name]) else DIFFERS
        yield Line(
            of=row["nickname"],
            model=row["nickname"],
            quantity=quantity,
            published=_short(row[name]),
            computed=value,
            ours=value,
            difference=None,
            verdict=Verdict(NOT_RUN, reason) if value is None else Verdict(kind),
            source=row["source"],
            counted=False,  # the registry states the same table
        )


def _short(value: Any) -> str:  # Any: text or a number
    return f"{value:g}" if isinstance(value, float) else str(value)


def _reward(row: Row) -> dict[str, Any]:
    """A token whose reward is printed as a row of `numbers.csv`, with what a reader sees of it."""
    return {
        **row,
        "quantity": "reward",
        "other": str(row["token_id"]),
        "value": repr(row["score"]),
        "within": rounding.score_within(row["model"], row["score"]),
        "of": f"{row['model']} · {display.plain(row['token'])}",
        "named": f"reward, {row['end']} {row['rank']}",
    }


def _line(row: Row, readings: Readings, not_judged: str) -> Line:
    printed, within = float(row["value"]), row["within"]
    computed, missing = _looked_up(readings.paper.number, row)
    ours, _ = _looked_up(readings.ours.number, row)
    other = _looked_up(readings.noise.number, row)[0] if readings.noise else None
    verdict = Verdict(NOT_RUN, missing or not_judged)
    free = False
    if computed is not None and not not_judged:
        verdict = verdicts.of_number(
            printed,
            within,
            computed,
            noise=None if other is None else abs(computed - other),
            others={readings.ours.name: ours},
            singles={one.name: _looked_up(one.number, row)[0] for one in _tried(readings, row)},
        )
        free = verdict.kind == SAME and abs(printed) <= within
    if free:
        verdict = Verdict(SAME, f"read to ±{within:g}, no less than the value")
    names = [row[n] for n in ("model", "other") if row[n] in readings.paper.slugs]
    quantity = row.get("named") or QUANTITIES[row["quantity"]]
    if row["quantity"].endswith("slope"):
        quantity += f", “{row['prompt']}”"
    return Line(
        of=row.get("of") or " · ".join(filter(None, (row["model"], row["other"]))),
        model=names[0] if len(names) == 1 else "",
        quantity=quantity,
        published=row["value"],
        computed=computed,
        ours=ours,
        difference=None if computed is None else computed - printed,
        verdict=verdict,
        source=row["source"],
        counted=not free,
    )


# Any: what is looked for.
def _looked_up(find: Callable[..., T], *which: Any) -> tuple[T | None, str]:
    """A value of a run, or None and why there is none."""
    try:
        return find(*which), ""
    except Missing as missing:
        return None, str(missing)


def _tried(readings: Readings, row: Row) -> list[RunValues]:
    """The readings that change one convention and were tried for what a row is of."""
    names = [str(row[key]) for key in ("model", "other") if key in row]
    return [one for one in readings.singles if one.has_tried(row["prompt"], *names)]


# --- Lists of tokens -----------------------------------------------------------------------------


def _list(rows: Sequence[Row], readings: Readings, not_judged: str) -> TokenList:
    """One end of a model's ranking, of its rows in `tokens.csv`."""
    first = rows[0]
    where = [first[key] for key in ("exhibit", "prompt", "model", "end")]
    by_id = first["exhibit"] == "table_2"
    printed = [Entry(str(row["token_id"]) if by_id else row["token"], row["score"]) for row in rows]
    computed, missing = _looked_up(readings.paper.entries, *where)
    ours, _ = _looked_up(readings.ours.entries, *where)
    verdict = Verdict(NOT_RUN, missing or not_judged)
    if computed is not None and not not_judged:
        verdict = verdicts.of_list(
            printed,
            computed,
            descending=first["end"] == "top",
            noise=_looked_up(readings.noise.entries, *where)[0] if readings.noise else None,
            others={readings.ours.name: ours},
            singles={
                one.name: _looked_up(one.entries, *where)[0] for one in _tried(readings, first)
            },
        )
    return TokenList(
        model=first["model"],
        end=first["end"],
        published=[row["token"] for row in rows],
        computed=[entry.text for entry in (computed or ())[: len(rows)]],
        ours=[entry.text for entry in (ours or ())[: len(rows)]],
        common=verdicts.shared(printed, computed or ()),
        at_rank=verdicts.at_their_rank(printed, computed or ()),
        verdict=verdict,
        source=first["source"],
    )


def _unpublished(exhibit: Exhibit, readings: Readings) -> list[TokenList]:
    """Lists of a run for which the published ones were not at hand."""
    lists = []
    for where in itertools.product(exhibit.prompts, readings.paper.slugs, ("top", "bottom")):
        both = (
            _looked_up(one.entries, exhibit.id, *where)[0]
            for one in (readings.paper, readings.ours)
        )
        computed, ours = ([entry.text for entry in (each or ())[:SHOWN]] for each in both)
        if computed:
            lists.append(TokenList(model=where[1], end=where[2], computed=computed, ours=ours))
    return lists


# --- What a reader has to know of an exhibit -----------------------------------------------------


def _not_judged(exhibit: Exhibit, published: Published, computed: RunValues) -> str:
    """Why a run's values of an exhibit are shown and not judged; "" where they are judged.

    It is known before any comparison that such values differ: the run has other words, or another
    vocabulary. Values that a run with the same words and the same models has left are judged.
    """
    if exhibit.id == "figure_3d":
        sources = published.numbers.filter(exhibit=exhibit.id)["source"]
        before = sources.str.contains(WORDFREQ, literal=True).any()
        if not computed.frequencies or before == (computed.frequencies == WORDFREQ):
            return ""
        if before:
            return f"it rests on {WORDFREQ}, and this run on {computed.frequencies}"
        return f"it needs --config.frequency, the BNC list: {WORDFREQ} stands in for it"
    return _other_vocabulary(published, computed) if exhibit.of_shared else ""


def _other_vocabulary(published: Published, computed: RunValues) -> str:
    shared = pl.col("exhibit").is_in([exhibit.id for exhibit in EXHIBITS if exhibit.of_shared])
    numbers, tokens = published.numbers.filter(shared), published.tokens.filter(shared)
    named = {*numbers["model"], *numbers["other"], *tokens["model"]} & computed.slugs.keys()
    scored = {name for name, slug in computed.slugs.items() if slug in computed.scored}
    if not named or not scored or named == scored:
        return ""
    here = f"that of {len(scored)}" if len(scored) != len(named) else "that of others"
    return f"it is over the vocabulary that {len(named)} models share; here it is {here}"


def missing(exhibit: Exhibit, computed: RunValues, lines: Sequence[Line]) -> str:
    """Why a run has nothing of an exhibit; "" where it has something, or each value says why."""
    tables = computed.tables
    if exhibit.id == "figure_a3" and ("bing_effects",) not in tables:
        return "Not run: it needs the Bing lexicon (--config.bing)."
    if exhibit.stage == ITEMS:
        reason = computed.reasons.get(("humans_correlation",), "").strip().rstrip(".")
        if any(line.computed is not None for line in lines) or (computed.lists() and not reason):
            return ""
        return f"Not run: {reason if computed.lists() else f'it needs {NEEDS[ITEMS]}'}."
    name = {SWEEP: "moments", LOGPROBS: "logprobs"}.get(exhibit.stage, "sequences")
    there = any(key[0] == name and frame.height for key, frame in tables.items())
    return "" if there else f"Not run: it needs {NEEDS[exhibit.stage]}."


def _remarks(exhibit: Exhibit, computed: RunValues) -> list[str]:
    said = [exhibit.note] if exhibit.note else []
    count = len(computed.scored)
    if exhibit.of_shared and 0 < count < TEN:
        said.append(
            f"The shared vocabulary is here that of {count} of the ten models: it holds other "
            "tokens than the paper’s, so its values are shown beside the printed ones and not "
            "judged."
        )
    return said


def _shown(exhibit: Exhibit, computed: RunValues) -> list[tuple[str, ...]]:
    """Rows of a table of the run with a header, for an exhibit whose numbers are not published."""
    nicknames = {slug: nickname for nickname, slug in computed.slugs.items()}
    if exhibit.id == "gcg" and ("sequences",) in computed.tables:
        searches = computed.tables["sequences",].select("model", "direction", "reward", "text")
        rows = [(nicknames.get(m, m), d, f"{r:.3f}", t) for m, d, r, t in searches.iter_rows()]
        return [("model", "direction", "reward", "text"), *rows]
    if exhibit.id == "figure_4" and ("framing",) in computed.tables:
        both = computed.tables["framing",].filter(
            pl.col("prompt_a").is_in(["best", "worst"]), pl.col("prompt_b").is_in(["best", "worst"])
        )
        numbers = both.select("model", "pearson", "ci_low", "ci_high").iter_rows()
        rows = [(nicknames.get(m, m), f"{r:.3f}", bounds(a, b, 3)) for m, r, a, b in numbers]
        return [("model", "Pearson’s r of “best” and “worst”", "95 % interval"), *rows]
    return []
