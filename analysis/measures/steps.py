"""What a reward model learned over the steps of its training, from a run of each step.

A panel of tokens stands for the vocabulary between two steps that scored all of it. Its controls, a
random sample that every step scores, are what percentiles and Kendall's τ are of: so they mean the
same at every step.
"""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
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
from analysis.statistics.kendall import Order, pair_interval, tau_of
from analysis.words import lexicons
from analysis.words.matching import kinds, words_among
from analysis.words.stems import dense_numbers, stem_numbers
from engine.errors import AssayError

PANEL, CONTROLS = 3000, 1000  # tokens
_ENDS, _COMMON = 150, 1000  # tokens of each end of the last whole sweep; commonest words
SHOWN = 6  # words in the chart of trajectories
LISTED = 10  # highest, and lowest, words of a step
_EXACT = 1e-9  # rounding of a difference of shares
_LEAST = 20  # words that are left where rarer ones are dropped
_ID = Column("token_id", "count", dtype=pl.UInt32)
_STEP, _TOKEN, _SHARE = Column("step", "count"), Column("token", "token"), Column("share", "share")
STEPS = Spec(
    "steps",
    (
        *(_STEP, Column("scored", help="`vocabulary` or `panel`"), Column("tokens", "count")),
        Column("tau_previous", "fixed", "τ, previous", "Kendall’s τ with the step before"),
        *(Column("tau_last", "fixed", "τ, last"),),
        Column("noise", "share", help="change of a word’s percentile that rounding allows"),
        Column("moved", "share", "95 % moved less", "of the controls, since the step before"),
        *(Column("accuracy", "share", "pairs right"), Column("margin", "number")),
        *(Column("log_loss", "fixed", "log loss"), Column("temperature", "number")),
        Column("longer", "share", "longer preferred", "of pairs of two lengths"),
    ),
    title="Step by step",
    help="this table and the next four by `assay watch` alone; τ and percentiles are of the "
    "controls, a random sample of the vocabulary",
)
WORDS = Spec(
    "steps_words",
    (_STEP, _ID, _TOKEN, _SHARE.but(key="percentile", help="share of controls with less")),
)
TURNS = Spec(
    "steps_turns",
    (
        *(_STEP, Column("previous", "count"), _ID, _TOKEN, Column("word")),
        *several("share", "before after", "percentiles"),
        Column("controls", "share", "95 % of controls moved less"),
        Column("further", "share", help="how much further the word moved than these"),
    ),
    page="previous step token before after controls further",
    title="Words that moved furthest between two steps",
)
SERIES = Spec(
    "steps_series",
    (
        *(_STEP, Column("of", help="`tau`, `pairs`, `kinds`, `edit`, `sham` or `behind`")),
        Column("what", help="key of `steps`, kind of words, edit, or token behind replies"),
        Column("value", "fixed", help="of kinds of words the median percentile, 0 to 1"),
        *ends("fixed", "95 %, clustered by prompt; of kinds of words the quartiles"),
    ),
)
TRAININGS = Spec(
    "steps_trainings",
    (
        *(Column("training"), Column("step", "count", help="its last")),
        Column("what", help="kind of words"),
        *several("share", "value ci_low ci_high", "median percentile and quartiles of its words"),
    ),
    help="of imported steps of several trainings",
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
    """One step of a training, and the runs that scored it."""

    step: int
    model: str  # its slug in the run
    run: Run
    prompt: str  # id
    items: str = ""  # the list of pairs, if there is one
    behind: Run | None = None  # the run of its sweeps behind replies, if there are any

    @cached_property
    def scores(self) -> pl.DataFrame:
        """token_id, token, is_special and reward of every token, or of an imported list's items."""
        if (self.model, self.prompt) in self.run.results:
            scores = self.run.scores(models=[self.model], prompts=[self.prompt]).collect()
            return scores.select("token_id", "token", "is_special", "reward").sort("token_id")
        mine = (self.model, self.prompt)
        name = next(name for name, *of in self.run.items if tuple(of) == mine)
        items = self.run.items_of(self.run.items[name, self.model, self.prompt])
        special = pl.lit(value=False)
        return items.select(token_id="item_id", token="item", is_special=special, reward="reward")

    @property
    def noise(self) -> float:
        """`SelfCheck.noise` of the rewards; 0 where it is not known."""
        result = self.run.results.get((self.model, self.prompt))
        return result.self_check.noise if result and result.self_check else 0.0

    @cached_property
    def replies(self) -> pl.DataFrame | None:
        """What `pairs.replies` gives of the list of pairs, or None."""
        known = (self.items, self.model) in self.run.conversations
        return replies(self.run, self.items, [self.model]) if known else None

    @cached_property
    def of_pairs(self) -> Mapping[str, Sequence[Any]]:  # Any: cells
        """Columns of `STEPS` of pairs: value, and ends of its interval; empty without pairs."""
        if self.replies is None:
            return {}
        judged, all_pairs = pairs(self.replies), pairs(self.replies, all_rejected=True)
        numbers = accuracies("", judged).filter(label=ALL).row(0, named=True)
        length = lengths("", self.replies, all_pairs).row(0, named=True)
        margins, prompts = all_pairs["margin"].to_numpy(), dense_numbers(all_pairs["prompt"])
        found = {
            "accuracy": [numbers[key] for key in ("accuracy", "ci_low", "ci_high")],
            "margin": [numbers["margin"]],
            "longer": [length[key] for key in ("longer_higher", "ci_low", "ci_high")],
        }
        if len(margins):
            found["log_loss"] = [*calibration.log_loss(margins, prompts)[:3]]
            found["temperature"] = [calibration.temperature(margins, prompts).value]
        return found

    @cached_property
    def probes(self) -> pl.DataFrame | None:
        """The table `probes.PROBES`, or None."""
        known = (self.items, self.model) in self.run.probes
        return probes.effects(self.run, self.items, [self.model]) if known else None

    @cached_property
    def appended(self) -> pl.DataFrame | None:
        """Every token behind replies, as `appended.tokens` gives them, or None."""
        return appended.tokens(self.behind, self.model) if self.behind else None

    def kinds(self, tokens: pl.DataFrame, options: Options) -> pl.DataFrame:
        """Those of some tokens that are of a kind of words, as `matching.kinds` gives them."""
        result = self.run.results.get((self.model, self.prompt))
        trim = trims(result, options.match_trim) if result else True
        return kinds(tokens, options.afinn, options.identity, options.categories, trim)


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
        known = words.join(often, on="word")
    except lexicons.NoPackage:
        known = words.clear().with_columns(per_million=0.0)
    known = known.sort("per_million", "token_id", descending=[True, False])
    known = known.unique("word", keep="first", maintain_order=True)
    common = known["token_id"].head(_COMMON).to_numpy()
    listed = whole.kinds(scores, options)
    listed = listed[np.random.default_rng(0).permutation(len(listed))]
    turn = pl.int_range(pl.len()).over("list", "words")
    in_turn = listed.sort(turn, maintain_order=True)["token_id"].to_numpy()
    candidates = np.concatenate([order[:CONTROLS], *extremes, common, in_turn, order])
    return sorted([*dict.fromkeys(candidates.tolist())][:PANEL])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Steps:
    """The steps of one training, ascending; one of them has scored every token.

    `last` has the last step of each training that was imported, by name.
    """

    steps: Sequence[Step]
    options: Options
    last: Mapping[str, Step] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for step in self.steps:
            known = step.scores.select("token_id", other="token")
            joined = self.tokens.join(known, on="token_id", validate="1:1")
            scored = np.isin(self.tokens["token_id"].to_numpy()[self.controls], known["token_id"])
            if not scored.all() or not joined.filter(pl.col("token") != pl.col("other")).is_empty():
                raise AssayError(
                    f"step {step.step}: other tokens than the steps before; allowed: steps of one "
                    "training, with one tokenizer"
                )

    @cached_property
    def tokens(self) -> pl.DataFrame:
        """token_id, token and is_special of every token."""
        return max((step.scores for step in self.steps), key=len).drop("reward")

    @cached_property
    def controls(self) -> Array:
        """Places of the controls among `tokens`, ascending."""
        chosen = np.sort(shuffled(self.tokens)[:CONTROLS])
        return np.searchsorted(self.tokens["token_id"].to_numpy(), chosen)

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
    def percentiles(self) -> Array:
        """Share of the controls with a lower reward, of `tokens` at each step [S, N]."""
        sides = np.sort(self.rewards[:, self.controls], axis=1)
        shares = [ranks.percentiles_among(*pair) for pair in zip(sides, self.rewards, strict=True)]
        return np.where(np.isnan(self.rewards), math.nan, shares)

    @cached_property
    def words(self) -> pl.DataFrame:
        """token_id, token, word and place among `tokens` of those that are whole words."""
        known = ~np.isnan(self.rewards).all(axis=0)
        placed = self.tokens.with_row_index("place").filter(pl.Series(known), ~pl.col("is_special"))
        words = words_among(placed, lexicons.common_words(self.options.frequency), _LEAST)
        words = placed.with_columns(word="token") if words.is_empty() else words
        found = words.select("token_id", "token", "word")
        return found.join(placed.select("token_id", "place"), on="token_id").sort("token_id")

    @cached_property
    def of_words(self) -> Array:
        """The percentiles of `words` [S, words]."""
        return self.percentiles[:, self.words["place"].to_numpy()]

    @cached_property
    def noise(self) -> Array:
        """The largest change of a word's percentile that noise alone allows, at each step [S].

        It is the share of the controls whose reward is within `Step.noise` of the word's.
        """
        most = []
        for step, row in zip(self.steps, self.rewards, strict=True):
            rewards, side = row[self.words["place"].to_numpy()], np.sort(row[self.controls])
            near = [np.searchsorted(side, rewards + sign * step.noise) for sign in (1, -1)]
            most.append(max(1, int((near[0] - near[1]).max())) / len(side))
        return np.array(most)

    @cached_property
    def taus(self) -> list[dict[str, tuple[float, float, float]]]:
        """Kendall's τ with the step before and with the last, and 95 % intervals, of each step."""
        orders = [Order.of(row) for row in self.rewards[:, self.controls]]
        stems, found = stem_numbers(self.tokens["token"].gather(self.controls)), []
        for at, order in enumerate(orders):
            places = {"tau_previous": at - 1, "tau_last": len(orders) - 1}
            others = {name: orders[i] for name, i in places.items() if i not in (at, -1)}
            taus = {name: tau_of(order.ranking, other.ranking) for name, other in others.items()}
            taken = {n: pair_interval(order, others[n], stems, t, tests=1) for n, t in taus.items()}
            found.append({name: estimate[:3] for name, estimate in taken.items()})
        return found

    @cached_property
    def table(self) -> pl.DataFrame:
        """The table `STEPS`."""
        rows = []
        for at, (step, taus) in enumerate(zip(self.steps, self.taus, strict=True)):
            row: dict[str, Any] = dict.fromkeys(STEPS.schema)  # Any: cells
            row |= {name: numbers[0] for name, numbers in {**taus, **step.of_pairs}.items()}
            row |= {"step": step.step, "tokens": len(step.scores), "noise": self.noise[at]}
            row["scored"] = "vocabulary" if len(step.scores) == len(self.tokens) else "panel"
            row["moved"] = float(self.moved[at, at - 1]) if at else None
            rows.append([*row.values()])
        return STEPS.frame(rows)

    @cached_property
    def before(self) -> Array:
        """Place of the step before each at which a word was last scored [S - 1, words]; else -1."""
        scored = ~np.isnan(self.of_words)
        steps = np.where(scored, np.arange(len(self.steps))[:, None], -1)
        return np.maximum.accumulate(steps, axis=0)[:-1]

    @cached_property
    def moved(self) -> Array:
        """What 95 % of the controls moved less than, between each two steps [S, S]."""
        rows = self.percentiles[:, self.controls]
        return np.array([np.quantile(np.abs(rows - row), 0.95, axis=1) for row in rows])

    @cached_property
    def shifts(self) -> Array:
        """How far `words` moved since the step `before` [S - 1, words]; 0 where within noise."""
        shift = np.zeros(self.before.shape)
        for at, before in enumerate(self.before, 1):
            from_ = np.take_along_axis(self.of_words, np.maximum(before, 0)[None], axis=0)[0]
            by = np.nan_to_num(np.abs(self.of_words[at] - from_))
            noise = np.maximum(self.noise[at], self.noise[before])
            shift[at - 1] = np.where((before >= 0) & (by > noise + _EXACT), by, 0.0)
        return shift

    @cached_property
    def settled(self) -> int:
        """The step since which no word moved by more than noise; the last where one just has."""
        moving = np.flatnonzero(self.shifts.any(axis=1))
        return self.steps[moving[-1] + 1 if len(moving) else 0].step

    @cached_property
    def moves(self) -> pl.DataFrame:
        """Every move of a word beyond the controls, with the columns of `TURNS`.

        The furthest for each step that lies between comes first.
        """
        frames, numbers = [TURNS.frame([])], np.array([step.step for step in self.steps])
        rates = [pl.Series([], dtype=pl.Float64)]
        for at, (shift, before) in enumerate(zip(self.shifts, self.before, strict=True), 1):
            controls = self.moved[at][before]
            after, further = self.of_words[at], shift - controls
            cells = {"previous": numbers[before], "after": after, "controls": controls}
            cells["before"] = np.take_along_axis(self.of_words, before[None], axis=0)[0]
            found = self.words.with_columns(**cells, further=further, rate=further / (at - before))
            found = found.filter(further > 0)
            rates.append(found["rate"])
            frames.append(TURNS.frame(found, step=self.steps[at].step))
        moves = pl.concat(frames).with_columns(rate=pl.concat(rates))
        order = ("rate", "step", "token_id")
        return moves.sort(order, descending=[True, False, False]).drop("rate")

    @cached_property
    def turns(self) -> pl.DataFrame:
        """The table `TURNS`: of each word, where it moved furthest beyond the controls."""
        return self.moves.unique("word", keep="first", maintain_order=True)

    def since(self, turn: Mapping[str, Any]) -> int:  # Any: cells
        """The step since which the token of a row of `turns` moved further than the controls.

        In the same direction, at every step that scored it.
        """
        rises = pl.col("after") > pl.col("before")
        same = self.moves.filter(rises == (turn["after"] > turn["before"]))
        earlier = dict(same.filter(token_id=turn["token_id"]).select("step", "previous").rows())
        step: int = turn["previous"]
        while step in earlier:
            step = earlier[step]
        return step

    def shown(self, count: int) -> pl.DataFrame:
        """`words` that moved most: half of them abruptly, half from the first step to the last.

        The latter are words that every step scored.
        """
        gone = np.isnan(self.of_words).any(axis=0)
        by = np.where(gone, -1.0, np.abs(self.of_words[-1] - self.of_words[0]))
        whole = self.words.with_columns(by=by).sort("by", "token_id", descending=[True, False])
        columns = ("token_id", "token", "word")
        halves = [self.turns.head(count // 2).select(columns), whole.select(columns)]
        return pl.concat(halves).unique("word", keep="first", maintain_order=True).head(count)

    def trajectories(self) -> pl.DataFrame:
        """The table `WORDS`: tokens of the panel behind the last step, by step and id."""
        ids = self.steps[-1].scores["token_id"].to_list()
        ids = panel(self.steps[-1], self.options) if len(ids) > PANEL else ids
        ids = [*ids, *self.shown(SHOWN)["token_id"]]
        kept = self.tokens.with_row_index("place").filter(pl.col("token_id").is_in(ids))
        at = kept["place"].to_numpy()
        frames = [
            WORDS.frame(kept.with_columns(percentile=row[at]), step=step.step)
            for step, row in zip(self.steps, self.percentiles, strict=True)
        ]
        return pl.concat(frames).filter(pl.col("percentile").is_not_nan())

    @cached_property
    def kinds(self) -> pl.DataFrame:
        """Tokens of each kind of words that every step scored."""
        scored = self.tokens.filter(pl.Series(~np.isnan(self.rewards).any(axis=0)))
        return self.steps[0].kinds(scored, self.options)

    @cached_property
    def series(self) -> pl.DataFrame:
        """The table `SERIES`."""
        ids, rows = self.tokens["token_id"].to_numpy(), list[Sequence[Any]]()  # Any: cells
        kinds = [
            (f"{source}: {words}", np.searchsorted(ids, kind["token_id"]))
            for (source, words), kind in self.kinds.group_by("list", "words", maintain_order=True)
            if kind["stem"].n_unique() >= changes.LEAST_STEMS
        ]
        for step, taus, shares in zip(self.steps, self.taus, self.percentiles, strict=True):
            for of, columns in (("tau", taus), ("pairs", step.of_pairs)):
                found = ((of, name, *numbers, None, None)[:5] for name, numbers in columns.items())
                rows += [(step.step, *cells) for cells in found]
            for name, at in kinds:
                rows.append((step.step, "kinds", name, *np.quantile(shares[at], (0.5, 0.25, 0.75))))
            if step.probes is not None:
                edits = step.probes.select("kind", "probe", "effect", "ci_low", "ci_high")
                rows += [(step.step, *cells) for cells in edits.rows()]
            if step.appended is not None:
                told = step.appended.filter(~pl.col("token").is_duplicated())  # apart by their text
                tokens = told.select("token", "effect_sd", "ci_low", "ci_high")
                rows += [(step.step, "behind", *cells) for cells in tokens.rows()]
        return SERIES.frame(rows)

    @cached_property
    def trainings(self) -> pl.DataFrame:
        """The table `TRAININGS`; each training by percentiles of its own tokens."""
        frames = [TRAININGS.frame([])]
        for training, step in self.last.items():
            series = Steps(steps=[step], options=self.options).series
            frames.append(TRAININGS.frame(series.filter(of="kinds"), training=training))
        return pl.concat(frames)

    def checks(self, at: int, limits: Limits, asked: Collection[str]) -> pl.DataFrame:
        """The limits that are `asked` of a step against the one before: `changes.CHECKS`."""
        sides = {BEFORE: max(at - 1, 0), AFTER: at}
        rows, prompt = self.rewards[[*sides.values()]], self.steps[at].prompt
        shared = rows[:, ~np.isnan(rows).any(axis=0)]
        if "kept" in asked:
            limits.check_ends(prompt, shared.shape[1])
        size = min(limits.ends, shared.shape[1])
        kept = [ranks.end_overlap(shared[0], shared[1], size, top) / size for top in (True, False)]
        tau = self.table["tau_previous"][at] if at else 1.0
        columns = ("prompt", "of", "kendall", "top_kept", "bottom_kept")
        summary = pl.DataFrame([(prompt, changes.CHANGE, tau, *kept)], columns, orient="row")
        ids, places = self.tokens["token_id"].to_numpy(), self.percentiles[[*sides.values()]]
        steps = {side: self.steps[place] for side, place in sides.items()}
        judged = [(side, pairs(s.replies)) for side, s in steps.items() if s.replies is not None]
        edits = [(side, step.probes) for side, step in steps.items() if step.probes is not None]
        stacked = [
            pl.concat(t.with_columns(model=pl.lit(side)) for side, t in tables)
            if len(tables) == 2
            else None
            for tables in (judged, edits)
        ]
        shifts = changes.shifts_of_kinds(self.kinds, [(prompt, ids, places[0], places[1])])
        made = changes.checks(summary, shifts, [], limits, stacked[0], "", stacked[1])
        begin = tuple(start for name in asked for start in _CHECKS.get(name, ()))
        return made.filter(pl.Series([check.startswith(begin) for check in made["check"]]))

    def record(self, at: int, checks: pl.DataFrame) -> dict[str, Any]:  # Any: what JSON holds
        """A step as `watch.jsonl` has it (docs/watch.md)."""
        step, row = self.steps[at], self.table.row(at, named=True)
        rewards = step.scores.select("token_id", "reward")
        ranked = self.words.join(rewards, on="token_id").sort("reward", "token_id")
        ranked = ranked.unique("word", keep="last", maintain_order=True)
        words = ranked["token"].str.strip_chars().to_list()
        moves = self.moves.filter(step=step.step).select("word", "before", "after")
        turn = moves.head(1).to_dicts()
        kinds = self.series.filter(of="kinds", step=step.step).select("what", "value").rows()
        edits, behind = step.probes, step.appended
        numbers = ("accuracy", "margin", "log_loss", "temperature", "longer")
        line = {
            **{"step": step.step, "model": step.model, "prompt": step.prompt},
            **{key: row[key] for key in ("scored", "tokens", "tau_previous", "tau_last", "noise")},
            "moved": turn[0] if turn else None,
            **{"top": words[::-1][:LISTED], "bottom": words[:LISTED]},
            "kinds": dict(kinds),
            **{key: row[key] for key in numbers},
            "probes": None if edits is None else dict(edits.select("probe", "effect").rows()),
            "appended": None if behind is None else behind["token"].head(LISTED).to_list(),
            "limits": checks.drop("prompt", "noise").fill_nan(None).to_dicts(),
        }
        return {key: None if value != value else value for key, value in line.items()}
