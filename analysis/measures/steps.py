"""What a reward model learned over the steps of its training, from a run of each step.

A panel of tokens stands for the vocabulary between two steps that scored all of it. Its controls, a
random sample that every step scores, are what percentiles and Kendall's τ are of: so they mean the
same at every step.
"""

import dataclasses
import math
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from analysis.columns import Column, Spec, ends, several
from analysis.measures import appended, changes, probes
from analysis.measures.matched_words import trims
from analysis.measures.pairs import ALL, accuracies, lengths, pairs, replies
from analysis.measures.two_models import AFTER, BEFORE
from analysis.run import Run
from analysis.settings import Limits, Options
from analysis.statistics import Array, calibration, ranks
from analysis.statistics.inference import clustered
from analysis.statistics.kendall import Order, pair_interval, tau_of
from analysis.words import lexicons
from analysis.words.matching import kinds, words_among
from analysis.words.stems import dense_numbers, stem_numbers
from engine.errors import AssayError

PANEL, CONTROLS = 3000, 1000  # tokens
_ENDS, _COMMON = 150, 500  # tokens of each end of the last whole sweep; commonest words
_LEAST = 20  # words that are left where rarer ones are dropped
LISTED = 10  # highest, and lowest, words of a step
_STEP = Column("step", "count")
STEPS = Spec(
    "steps",
    (
        _STEP,
        Column("scored", help="`vocabulary` or `panel`"),
        Column("tokens", "count"),
        Column("tau_previous", "fixed", "τ, previous", "Kendall’s τ with the step before"),
        *ends("fixed", "95 %, clustered by stem", "tau_previous"),
        *(Column("tau_last", "fixed", "τ, last"), *ends("fixed", stem="tau_last")),
        Column("noise", "share", help="change of a word’s percentile that rounding allows"),
        Column("moved", "share", "95 % moved less", "of the controls, since the step before"),
        *(Column("accuracy", "share", "pairs right"), *ends("share", stem="accuracy")),
        *(Column("margin", "number"), Column("log_loss", "fixed", "log loss")),
        *(*ends("fixed", stem="log_loss"), Column("temperature", "number")),
        Column("longer", "share", "longer preferred", "of pairs of two lengths"),
        *ends("share", stem="longer"),
    ),
    page="step scored tokens tau_previous tau_last noise moved accuracy margin log_loss "
    "temperature longer",
    title="Step by step",
    help="this table and the next four by `assay watch` alone; τ and percentiles are of the "
    "controls, a random sample of the vocabulary",
)
WORDS = Spec(
    "steps_words",
    (_STEP, Column("token_id", "count", dtype=pl.UInt32), *several("token", "token"))
    + (Column("percentile", "share", help="share of the controls with a lower reward"),),
)
TURNS = Spec(
    "steps_turns",
    (
        *(_STEP, Column("previous", "count"), Column("token_id", "count", dtype=pl.UInt32)),
        *(Column("token", "token"), Column("word"), *several("share", "before after")),
        Column("controls", "share", "95 % of controls moved less"),
        Column("further", "share", help="how much further the word moved than these"),
    ),
    page="previous step token before after controls further",
    title="Words that moved furthest between two steps",
)
KINDS = Spec(
    "steps_kinds",
    (
        *(_STEP, Column("list"), Column("words"), *several("count", "tokens stems")),
        *(Column("percentile", "share", help="mean"), *ends("share", "95 %, clustered by stem")),
    ),
    title="Kinds of words",
)
APPENDED = Spec(
    "steps_appended",
    (
        *(_STEP, Column("token_id", "count", dtype=pl.UInt32), Column("token", "token")),
        *(Column("effect_sd", "fixed", "effect"), *ends("fixed", "95 %, over replies")),
    ),
    title="Behind replies",
)
PROBES = dataclasses.replace(
    probes.PROBES, name="steps_probes", columns=(_STEP, *probes.PROBES.columns[1:]), page=""
)
# Name of a limit -> how the checks of it begin.
_CHECKS = {
    "kendall": (changes.RANK_AGREEMENT,),
    "kept": ("top ", "bottom "),
    "words": ("largest significant",),
    "accuracy": (changes.RIGHT,),
    "probe": (changes.EDITED,),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a training, and the run that scored it."""

    step: int
    model: str  # its slug in the run
    run: Run
    prompt: str  # id
    behind: Run | None = None  # the run of its sweeps behind replies, if there are any

    @cached_property
    def scores(self) -> pl.DataFrame:
        """token_id, token, is_special and reward of every token, or of an imported list's items."""
        if (self.model, self.prompt) in self.run.results:
            scores = self.run.scores(models=[self.model], prompts=[self.prompt]).collect()
            return scores.select("token_id", "token", "is_special", "reward").sort("token_id")
        name = next(name for name, prompt in self.run.lists() if prompt == self.prompt)
        items = self.run.items_of(self.run.items[name, self.model, self.prompt])
        return items.select(
            token_id="item_id", token="item", is_special=pl.lit(value=False), reward="reward"
        )

    @property
    def noise(self) -> float:
        """`SelfCheck.noise` of the rewards; 0 where it is not known."""
        result = self.run.results.get((self.model, self.prompt))
        return result.self_check.noise if result and result.self_check else 0.0

    @cached_property
    def replies(self) -> pl.DataFrame | None:
        """What `pairs.replies` gives of the list of pairs, or None."""
        names = self.run.conversation_lists()
        return replies(self.run, names[0], [self.model]) if names else None

    @cached_property
    def judged(self) -> pl.DataFrame | None:
        """What `pairs.pairs` gives of the same, or None."""
        return None if self.replies is None else pairs(self.replies)

    @cached_property
    def of_pairs(self) -> dict[str, Any]:  # Any: cells
        """The columns of `STEPS` from `accuracy` on; empty without pairs."""
        if self.replies is None or self.judged is None or not self.judged.height:
            return {}
        every = pairs(self.replies, every=True)
        numbers = accuracies("", self.judged).filter(label=ALL).row(0, named=True)
        said = {"accuracy": [numbers[key] for key in ("accuracy", "ci_low", "ci_high")]}
        length = lengths("", self.replies, every).row(0, named=True)
        said["longer"] = [length[key] for key in ("longer_higher", "ci_low", "ci_high")]
        found = {"margin": numbers["margin"]}
        if every.height:
            margins, prompts = every["margin"].to_numpy(), dense_numbers(every["prompt"])
            said["log_loss"] = [*calibration.log_loss(margins, prompts)[:3]]
            found["temperature"] = calibration.temperature(margins, prompts).value
        for key, values in said.items():
            found |= dict(zip((key, f"{key}_low", f"{key}_high"), values, strict=True))
        return found

    @cached_property
    def probes(self) -> pl.DataFrame | None:
        """The table `probes.PROBES`, or None."""
        names = sorted({name for name, _ in self.run.probes})
        return probes.effects(self.run, names[0], [self.model]) if names else None

    @cached_property
    def appended(self) -> pl.DataFrame | None:
        """Every token behind replies, as `appended.tokens` gives them, or None."""
        return appended.tokens(self.behind, self.model) if self.behind else None


def shuffled(scores: pl.DataFrame) -> Array:
    """The token ids of a vocabulary in a fixed random order; the first are the controls."""
    ids = scores["token_id"].to_numpy()
    return np.random.default_rng([0, len(ids)]).permutation(ids)


def panel(whole: Step, options: Options) -> list[int]:
    """The ids that stand for the vocabulary, ascending: `PANEL`, or all of a smaller one.

    The controls; the ends of the ranking of `whole`, a step that scored every token; the commonest
    words; words of lists, in turn one of each kind; and further random ones.
    """
    scores, order = whole.scores, shuffled(whole.scores)
    ids, rewards = scores["token_id"].to_numpy(), scores["reward"].to_numpy()
    extremes = [ids[ranks.extremes(rewards, _ENDS, highest)] for highest in (True, False)]
    words = words_among(scores.filter(~pl.col("is_special")), frozenset(), _LEAST)
    try:
        often = lexicons.frequency(options.frequency).unique("word", keep="first")
        known = words.join(often, on="word").sort("per_million", "token_id", descending=[True, False])
        common = known["token_id"].head(_COMMON).to_numpy()
    except lexicons.NoPackage:
        common = ids[:0]
    listed = _kinds(scores, whole, options)
    listed = listed[np.random.default_rng(0).permutation(len(listed))]
    turn = pl.int_range(pl.len()).over("list", "words")
    in_turn = listed.sort(turn, maintain_order=True)["token_id"].to_numpy()
    every = np.concatenate([order[:CONTROLS], *extremes, common, in_turn, order])
    return sorted([*dict.fromkeys(every.tolist())][:PANEL])


def _kinds(tokens: pl.DataFrame, step: Step, options: Options) -> pl.DataFrame:
    result = step.run.results.get((step.model, step.prompt))
    trim = trims(result, options.match_trim) if result else True
    return kinds(tokens, options.afinn, options.identity, options.categories, trim)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Steps:
    """The steps of one training, ascending; the first has scored every token."""

    steps: Sequence[Step]
    options: Options

    def __post_init__(self) -> None:
        for step in self.steps:
            known = step.scores.select("token_id", other="token")
            both = self.tokens.join(known, on="token_id", validate="1:1")
            if not np.isin(self.controls, known["token_id"].to_numpy()).all() or (
                (both["token"] != both["other"]).any()
            ):
                raise AssayError(
                    f"step {step.step}: other tokens than step {self.steps[0].step}; allowed: "
                    "steps of one training, with one tokenizer"
                )

    @cached_property
    def tokens(self) -> pl.DataFrame:
        """token_id, token and is_special of every token of the first step."""
        return self.steps[0].scores.drop("reward")

    @cached_property
    def controls(self) -> Array:
        """Ids of the controls, ascending."""
        return np.sort(shuffled(self.steps[0].scores)[:CONTROLS])

    @cached_property
    def rewards(self) -> Array:
        """Rewards of `tokens` at each step [S, N]; NaN where a step did not score one."""
        ids = self.tokens["token_id"].to_numpy()
        grid = np.full((len(self.steps), len(ids)), math.nan)
        for row, step in zip(grid, self.steps, strict=True):
            at = np.searchsorted(ids, step.scores["token_id"].to_numpy())
            row[at] = step.scores["reward"].to_numpy()
        return grid

    @cached_property
    def of_controls(self) -> Array:
        """Places of the controls among `tokens`."""
        return np.searchsorted(self.tokens["token_id"].to_numpy(), self.controls)

    @cached_property
    def percentiles(self) -> Array:
        """Share of the controls with a lower reward, of `tokens` at each step [S, N]."""
        sides = np.sort(self.rewards[:, self.of_controls], axis=1)
        each = [ranks.percentiles_among(*pair) for pair in zip(sides, self.rewards, strict=True)]
        return np.where(np.isnan(self.rewards), math.nan, each)

    @cached_property
    def words(self) -> pl.DataFrame:
        """token_id, word and place among `tokens` of those that are whole words."""
        placed = self.tokens.with_row_index("place").filter(~pl.col("is_special"))
        common = lexicons.common_words(self.options.frequency)
        scored = placed.filter(~np.isnan(self.rewards).all(axis=0)[placed["place"].to_numpy()])
        words = words_among(scored, common, _LEAST)
        words = scored.with_columns(word="token") if words.is_empty() else words
        return words.join(placed.select("token_id", "place"), on="token_id").sort("token_id")

    @cached_property
    def noise(self) -> Array:
        """The largest change of a word's percentile that noise alone allows, at each step [S].

        It is the share of the controls whose reward is within `Step.noise` of the word's.
        """
        most = []
        for step, row in zip(self.steps, self.rewards, strict=True):
            rewards, side = row[self.words["place"].to_numpy()], np.sort(row[self.of_controls])
            near = [np.searchsorted(side, rewards + sign * step.noise) for sign in (1, -1)]
            most.append(max(1, int((near[0] - near[1]).max())) / len(side))
        return np.array(most)

    @cached_property
    def kinds(self) -> pl.DataFrame:
        """Tokens of each kind of words, as `matching.kinds` gives them, that every step scored."""
        every = self.tokens.filter(~np.isnan(self.rewards).any(axis=0))
        return _kinds(every, self.steps[0], self.options)

    @cached_property
    def table(self) -> pl.DataFrame:
        """The table `STEPS`."""
        orders = [Order.of(row) for row in self.rewards[:, self.of_controls]]
        stems = stem_numbers(self.tokens["token"].gather(self.of_controls))
        empty = (None,) * 3
        rows = []
        for at, step in enumerate(self.steps):
            height, pairwise = step.scores.height, []
            for other in (at - 1, len(orders) - 1):
                if other in (at, -1):
                    pairwise += empty
                    continue
                tau = tau_of(orders[at].ranking, orders[other].ranking)
                pairwise += pair_interval(orders[at], orders[other], stems, tau, tests=1)[:3]
            whole = "vocabulary" if height == len(self.tokens) else "panel"
            moved = self.moved[at - 1] if at else None
            named = dict.fromkeys(STEPS.schema) | step.of_pairs
            numbers = (step.step, whole, height, *pairwise, float(self.noise[at]), moved)
            rows.append((*numbers, *list(named.values())[len(numbers) :]))
        return STEPS.frame(rows)

    @cached_property
    def moved(self) -> list[float]:
        """What 95 % of the controls moved less than, between each two steps [S - 1]."""
        shifts = np.abs(np.diff(self.percentiles[:, self.of_controls], axis=0))
        return [float(np.quantile(row, 0.95)) for row in shifts]

    @cached_property
    def shifts(self) -> Array:
        """How far `words` moved since the step before [S - 1, words]; 0 where within noise."""
        rows = self.percentiles[:, self.words["place"].to_numpy()]
        shift = np.nan_to_num(np.abs(np.diff(rows, axis=0)))
        noise = np.maximum(self.noise[1:], self.noise[:-1])[:, None]
        return np.where(shift > noise, shift, 0.0)

    @cached_property
    def turns(self) -> pl.DataFrame:
        """The table `TURNS`: of each word, where it moved furthest beyond the controls.

        Only moves beyond noise; the furthest first.
        """
        rows, frames = self.percentiles[:, self.words["place"].to_numpy()], [TURNS.frame([])]
        for at, shift in enumerate(self.shifts, 1):
            found = self.words.with_columns(
                step=pl.lit(self.steps[at].step),
                previous=pl.lit(self.steps[at - 1].step),
                before=rows[at - 1],
                after=rows[at],
                controls=pl.lit(self.moved[at - 1]),
                further=shift - self.moved[at - 1],
            )
            frames.append(TURNS.frame(found.filter(shift > self.moved[at - 1])))
        every = pl.concat(frames).sort("further", "step", "token_id", descending=[True, False, False])
        return every.unique("word", keep="first", maintain_order=True)

    @cached_property
    def settled(self) -> int:
        """The step since which no word moved by more than noise; the last where one just has."""
        moving = np.flatnonzero(self.shifts.any(axis=1))
        return self.steps[moving[-1] + 1 if len(moving) else 0].step

    def shown(self, count: int) -> pl.DataFrame:
        """`words` that moved most: half of them abruptly, half from the first step to the last."""
        rows = self.percentiles[:, self.words["place"].to_numpy()]
        whole = self.words.with_columns(by=np.nan_to_num(np.abs(rows[-1] - rows[0])))
        whole = whole.sort("by", "token_id", descending=[True, False]).drop("by")
        abrupt = self.turns.head(count // 2).select("token_id")
        abrupt = abrupt.join(self.words, on="token_id", maintain_order="left")
        both = pl.concat([abrupt, whole.select(abrupt.columns)])
        return both.unique("word", keep="first", maintain_order=True).head(count)

    def trajectories(self) -> pl.DataFrame:
        """The table `WORDS`: the tokens of the last step's panel, or of the vocabulary's, by id."""
        last = self.steps[-1].scores["token_id"]
        kept = self.tokens.with_row_index("place").filter(pl.col("token_id").is_in(last.implode()))
        if kept.height > PANEL:
            chosen = panel(self.steps[-1], self.options)
            kept = kept.filter(pl.col("token_id").is_in(chosen))
        at = kept["place"].to_numpy()
        frames = [
            kept.with_columns(step=pl.lit(step.step), percentile=row[at])
            for step, row in zip(self.steps, self.percentiles, strict=True)
        ]
        return WORDS.frame(pl.concat(frames).filter(pl.col("percentile").is_not_nan()))

    @cached_property
    def by_kind(self) -> pl.DataFrame:
        """The table `KINDS`."""
        ids, rows = self.tokens["token_id"].to_numpy(), []
        for (source, words), kind in self.kinds.group_by("list", "words", maintain_order=True):
            at, stems = np.searchsorted(ids, kind["token_id"].to_numpy()), dense_numbers(kind["stem"])
            for step, row in zip(self.steps, self.percentiles[:, at], strict=True):
                mean, counts = float(row.mean()), (kind.height, int(stems.max()) + 1)
                found = clustered(mean, row - mean, stems, changes.LEAST_STEMS)
                rows.append((step.step, source, words, *counts, *found[:3]))
        return KINDS.frame(rows)

    def by_edit(self) -> pl.DataFrame:
        """The table `PROBES`."""
        known = [s for s in self.steps if s.probes is not None]
        columns = [pl.col(key) for key in PROBES.schema]
        every = [s.probes.with_columns(step=pl.lit(s.step, pl.Int64)).select(columns) for s in known]
        return pl.concat([pl.DataFrame(schema=PROBES.schema), *every])

    def behind(self, count: int = 5) -> pl.DataFrame:
        """The table `APPENDED`: the tokens that raise replies most at some step."""
        tables = [(s.step, s.appended) for s in self.steps if s.appended is not None]
        most = pl.concat([t.select("token_id", "effect_sd") for _, t in tables] or [pl.DataFrame()])
        if most.is_empty():
            return APPENDED.frame([])
        most = most.group_by("token_id").agg(pl.col("effect_sd").max())
        kept = most.sort("effect_sd", "token_id", descending=[True, False]).head(count)["token_id"]
        chosen = (t.filter(pl.col("token_id").is_in(kept.implode())) for _, t in tables)
        numbered = zip((step for step, _ in tables), chosen, strict=True)
        return pl.concat([APPENDED.frame(table, step=step) for step, table in numbered])

    def checks(self, at: int, limits: Limits, asked: Collection[str]) -> pl.DataFrame:
        """The limits that are `asked` of a step against the one before: `changes.CHECKS`."""
        first, last = self.steps[max(at - 1, 0)], self.steps[at]
        rows = self.rewards[[max(at - 1, 0), at]]
        both = rows[:, ~np.isnan(rows).any(axis=0)]
        if "kept" in asked:
            limits.check_ends(last.prompt, both.shape[1])
        ends_ = min(limits.ends, both.shape[1])
        kept = [ranks.end_overlap(*both, ends_, top) / ends_ for top in (True, False)]
        tau = self.table["tau_previous"][at]
        known = (last.prompt, changes.CHANGE, 1.0 if tau is None else tau, *kept)
        columns = ("prompt", "of", "kendall", "top_kept", "bottom_kept")
        summary = pl.DataFrame([known], columns, orient="row")
        places = (last.prompt, self.tokens["token_id"].to_numpy(), *self.percentiles[[max(at - 1, 0), at]])
        sides = list(zip((BEFORE, AFTER), (first, last), strict=True))
        judged = [s.judged.with_columns(model=pl.lit(n)) for n, s in sides if s.judged is not None]
        probed = [s.probes.with_columns(model=pl.lit(n)) for n, s in sides if s.probes is not None]
        made = changes.checks(
            summary,
            changes.shifts_of_kinds(self.kinds, [places]),
            [],
            limits,
            pl.concat(judged) if len(judged) == 2 else None,
            "",
            pl.concat(probed) if len(probed) == 2 else None,
        )
        begin = tuple(start for name in asked for start in _CHECKS.get(name, ()))
        return made.filter([check.startswith(begin) for check in made["check"]] if begin else False)

    def record(self, at: int, checks: pl.DataFrame) -> dict[str, Any]:  # Any: what JSON holds
        """A step as `watch.jsonl` has it (docs/watch.md)."""
        step, row = self.steps[at], self.table.row(at, named=True)
        scores = self.words.join(step.scores.select("token_id", "reward", "token"), on="token_id")
        turn = self.turns.filter(step=step.step).head(1).to_dicts()
        moved = {key: turn[0][key] for key in ("word", "before", "after")} if turn else None
        tops = [
            scores.sort("reward", "token_id", descending=[highest, False])
            .unique("word", keep="first", maintain_order=True)["token"]
            .head(LISTED)
            .str.strip_chars()
            .to_list()
            for highest in (True, False)
        ]
        of_kinds = self.by_kind.filter(step=step.step)
        edits, behind = step.probes, step.appended
        said = {
            **{key: row[key] for key in ("step", "scored", "tokens")},
            "model": step.model,
            "prompt": step.prompt,
            **{key: row[key] for key in ("tau_previous", "tau_last", "noise")},
            "moved": moved,
            "top": tops[0],
            "bottom": tops[1],
            "kinds": {
                f"{source}: {words}": share
                for source, words, share in of_kinds.select("list", "words", "percentile").rows()
            },
            **{k: row[k] for k in ("accuracy", "margin", "log_loss", "temperature", "longer")},
            "probes": None if edits is None else dict(edits.select("probe", "effect").rows()),
            "appended": None if behind is None else behind["token"].head(LISTED).to_list(),
            "limits": checks.select("check", "what", "measured", "allowed", "limit", "holds")
            .fill_nan(None)
            .to_dicts(),
        }
        return {
            key: None if isinstance(value, float) and math.isnan(value) else value
            for key, value in said.items()
        }
