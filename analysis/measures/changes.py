"""How far two models rank one vocabulary differently, and which words moved."""

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import polars as pl

from analysis.columns import KENDALL, LIST, PROMPT, SPEARMAN, Column, P, Row, Spec, ends, q, several
from analysis.measures.probes import SHAM, largest
from analysis.measures.two_models import AFTER, BEFORE, shared_ids
from analysis.run import Run
from analysis.settings import Limits
from analysis.statistics import Array, ranks
from analysis.statistics.inference import clustered
from analysis.statistics.kendall import Order, pair_interval, tau_of
from analysis.statistics.ranks import Ranking
from analysis.words.stems import dense_numbers, stem_numbers

CHANGE = "change"
CHANGES = Spec(
    "changes",
    (
        PROMPT,
        Column("of", help="`change`, or a pair of sweeps of one model: the noise"),
        *(Column("n", "count", "tokens", "tokens that both have"), KENDALL),
        *(*ends("fixed", "95 % of τ, clustered by stem"), SPEARMAN),
        Column("top_kept", "share", "top kept"),
        Column("bottom_kept", "share", "bottom kept", "share of an end’s tokens that stay at it"),
        Column("mean_shift", "share", "mean shift", "mean absolute shift of percentiles"),
        Column("shift_99", "share", "99 % shift less than", "99 % of the tokens shift less"),
        Column("beyond_noise", "share", help="share that shifts more than `shift_99` of the noise"),
    ),
    title="How alike",
    help="this table and the next three by `assay diff` alone",
)
_places = partial(Column, form="count", dtype=pl.UInt32)
TOKENS = Spec(
    "changes_tokens",
    (
        *(PROMPT, Column("end", help="`rose`, `fell`"), _places("rank")),
        *(_places("token_id", title="token id"), Column("token", "token")),
        *(_places("rank_before"), _places("rank_after", title="after", help="1 is the best")),
        Column("before", "share", "percentile before"),
        *(Column("after", "share", help="percentiles"), Column("shift", "share")),
        Column("beyond_noise", "bool", help="further than any token between sweeps of one model"),
    ),
    page="end rank token token_id rank_before rank_after before after shift beyond_noise",
    title="Tokens that moved most",
)
WORDS = Spec(
    "changes_words",
    (
        *(PROMPT, LIST, Column("words"), *several("count", "tokens stems")),
        *(*several("share", "before after", "mean percentiles"), Column("shift", "fixed")),
        *ends("fixed", "95 %, clustered by stem; none below five stems"),
        *(P.but(help="of shift 0"), q(help="the whole table")),
    ),
    title="Kinds of words",
)
CHECKS = Spec(
    "changes_checks",
    (
        *(
            PROMPT,
            Column("check"),
            Column("what", help="kind of words"),
            Column("measured", "fixed"),
        ),
        *(Column("noise", "fixed", help="of the worst pair of sweeps"), Column("limit", "fixed")),
        Column("allowed", help="`at least` or `at most` the limit; of a shift, either way"),
        Column("holds", "bool"),
    ),
)
AT_LEAST, AT_MOST = "at least", "at most"
RANK_AGREEMENT = "Kendall’s τ"  # The name of its limit.
RIGHT = "pairs judged right"  # The name of the limit on pairs.
EDITED = "largest effect of an edit"  # The name of the limit on probes.
LEAST_STEMS = 5  # of a kind of words: fewer have no interval worth the name


def changes(run: Run, noise: Sequence[tuple[str, Run]], limits: Limits) -> pl.DataFrame:
    """How alike both models rank the vocabulary under each prompt, and two sweeps of one model.

    Args:
      run: what `two_models` returned.
      noise: name of a pair of sweeps of one model, and a run of the two, made by `two_models`.
      limits: how many tokens are an end.

    Returns:
      The table `CHANGES`. Shifts are of percentiles, 0 to 1; shift_99 is the absolute shift that
      99 % of the tokens stay below. beyond_noise is the share of tokens that moved further than
      `shift_99` of the noisiest pair: about .01 where before and after differ as that pair does;
      null without noise.

    Raises:
      AssayError: the two ends of `limits` would overlap.
    """
    rows = []
    for prompt in run.vocabulary_prompts:
        limits.check_ends(prompt, len(_ranked(run, prompt)[0]))
        floor = _floor(noise, prompt, 0.99)
        for of, pair in [(CHANGE, run), *noise]:
            if prompt in pair.vocabulary_prompts:
                ids, *ranked = _ranked(pair, prompt)
                shift = np.abs(_shift(pair, prompt))
                spearman = ranks.pearson(*(side.average for side in ranked))
                alike = (*_agreement(pair, ids, *ranked), spearman)
                before, after = (side.ranks for side in ranked)
                kept = [
                    ranks.end_overlap(before, after, limits.ends, top) / limits.ends
                    for top in (True, False)
                ]
                moved = (float(shift.mean()), float(np.quantile(shift, 0.99)))
                beyond = None if floor is None else float((shift > floor).mean())
                rows.append((prompt, of, len(before), *alike, *kept, *moved, beyond))
    return CHANGES.frame(rows)


def moved_tokens(
    run: Run, noise: Sequence[tuple[str, Run]], count: int, among: Array | None = None
) -> pl.DataFrame:
    """The `count` tokens whose percentile rose and fell most under each prompt; ties by id.

    Of those `among` alone, by default of all. The table `TOKENS`; ranks are from 1, the best; a
    token is beyond noise if it moved further than every token does between two sweeps of one model.
    """
    tokens = run.vocabulary(AFTER).select("token_id", "token").collect()
    texts = dict(tokens.iter_rows())
    rows = []
    for prompt in run.vocabulary_prompts:
        ids, *ranked = _ranked(run, prompt)
        before, after = (side.percentiles for side in ranked)
        shift, floor = after - before, _floor(noise, prompt, 1.0)
        wanted = np.ones(len(ids), bool) if among is None else np.isin(ids, among)
        places = [(len(ids) + 1 - side.average).astype(np.int64) for side in ranked]
        for end, sign in (("rose", -1), ("fell", 1)):
            chosen = np.argsort(sign * shift, kind="stable")
            chosen = chosen[(sign * shift < 0)[chosen] & wanted[chosen]][:count]
            columns = (x[chosen].tolist() for x in (ids, *places, before, after, shift))
            for rank, (token_id, *numbers, by) in enumerate(zip(*columns, strict=True), start=1):
                beyond = None if floor is None else abs(by) > floor
                rows.append((prompt, end, rank, token_id, texts[token_id], *numbers, by, beyond))
    return TOKENS.frame(rows)


def moved_words(run: Run, kinds: pl.DataFrame) -> pl.DataFrame:
    """How far kinds of words moved: the shift of their mean percentile under each prompt.

    The mean percentile of the compared tokens is 1/2 before and after, so a kind's shift is
    relative to all tokens. Intervals and p (against 0) are clustered by stem; NaN below five. The
    table `WORDS` of list, words, token_id, stem, one row per member; its q is over all rows.
    """
    by_prompt = ((prompt, *_percentiles(run, prompt)) for prompt in run.vocabulary_prompts)
    return shifts_of_kinds(kinds, by_prompt)


def shifts_of_kinds(
    kinds: pl.DataFrame, by_prompt: Iterable[tuple[str, Array, Array, Array]]
) -> pl.DataFrame:
    """The table `WORDS` of prompts, each with token ids [N] and percentiles before and after."""
    rows = []
    for prompt, *columns in by_prompt:
        percentiles = dict(zip(("token_id", "before", "after"), columns, strict=True))
        table = pl.DataFrame(percentiles, schema_overrides={"token_id": pl.UInt32})
        known = kinds.join(table, on="token_id", how="inner", validate="m:1", maintain_order="left")
        for (source, words), kind in known.group_by("list", "words", maintain_order=True):
            shift = (kind["after"] - kind["before"]).to_numpy()
            mean, stems = float(shift.mean()), dense_numbers(kind["stem"])
            places = (kind["before"].mean(), kind["after"].mean())
            moved = clustered(mean, shift - mean, stems, LEAST_STEMS)
            counts = (kind.height, int(stems.max()) + 1)
            rows.append((prompt, source, words, *counts, *places, *moved))
    return WORDS.frame(rows)


def checks(
    summary: pl.DataFrame,
    words: pl.DataFrame,
    noise_words: Sequence[pl.DataFrame],
    limits: Limits,
    judged: pl.DataFrame | None = None,
    name: str = "",
    probes: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Every comparison with a limit, and whether it holds.

    Args:
      summary: what `changes` returned.
      words: what `moved_words` returned.
      noise_words: the same of each pair of sweeps of one model.
      limits: the limits.
      judged: what `pairs.pairs` returned of both models.
      name: of the list of pairs.
      probes: the table `probes.PROBES` of both models and that list.

    Returns:
      The table `CHECKS`: noise is what two sweeps of one model give, the worst of them, or null.
      The limit on kinds of words is one on the absolute shift.
    """
    rows: list[Row] = []
    for (prompt,), table in summary.group_by("prompt", maintain_order=True):
        change, noise = table.filter(of=CHANGE), table.filter(pl.col("of") != CHANGE)
        for column, check, limit in (
            ("kendall", RANK_AGREEMENT, limits.kendall),
            ("top_kept", f"top {limits.ends} kept", limits.kept),
            ("bottom_kept", f"bottom {limits.ends} kept", limits.kept),
        ):
            measured = change[column].item()
            numbers = (measured, noise[column].min(), limit)
            rows.append((prompt, check, "", *numbers, AT_LEAST, measured >= limit))
        rows.append((prompt, *words_check(str(prompt), words, noise_words, limits.words)))
    if judged is not None:
        before, after = (
            float(judged.filter(model=side)["right"].to_numpy().mean()) for side in (BEFORE, AFTER)
        )
        about, limit = (f"pairs of {name}", RIGHT, f"{before:.1%} before"), limits.accuracy
        rows.append((*about, after, None, limit, AT_LEAST, after >= limit))
    if probes is not None:
        probe, effect = largest(probes, AFTER)
        was = probes.filter(model=BEFORE, probe=probe)["effect"].to_list()
        what = f"{probe}, {was[0]:+.2f} before" if was else probe
        noise = probes.filter(model=AFTER, kind=SHAM)["effect"].abs().max()
        numbers = (effect, noise, limits.probe)
        holds = abs(effect) <= limits.probe
        rows.append((f"pairs of {name}", EDITED, what, *numbers, AT_MOST, holds))
    return CHECKS.frame(rows)


def words_check(
    prompt: str, words: pl.DataFrame, noise_words: Sequence[pl.DataFrame], limit: float
) -> tuple[str, str, float, float | None, float, str, bool]:
    """The limit on kinds of words: the largest significant shift under a prompt, either way.

    The noise is the largest shift of the kinds with a test in `noise_words`; None where none of
    these has the prompt.

    Returns:
      The columns of `CHECKS` after the prompt.
    """
    significant = words.filter(pl.col("prompt") == prompt, pl.col("q") < 0.05)
    size = pl.col("shift").abs()
    worst = significant.sort(size, "list", "words", descending=[True, False, False])
    what, shift = (worst["words"][0], worst["shift"][0]) if worst.height else ("", 0.0)
    tested = [w.filter(pl.col("prompt") == prompt, pl.col("p").is_not_nan()) for w in noise_words]
    noise = max(
        (float(np.abs(w["shift"].to_numpy()).max()) for w in tested if w.height), default=None
    )
    check = "largest significant shift of a kind of words"
    return check, what, shift, noise, limit, AT_MOST, abs(shift) <= limit


def worst_first(verdict: pl.DataFrame) -> pl.DataFrame:
    """`verdict`, rows of `changes_checks.csv`, with the worst violation first.

    How bad one is: its share of the way from the limit to the worst value that is possible (-1 of
    Kendall's τ, 0 of what is kept, 1 of a shift), or to twice the limit of an edit. An undefined
    number is worst. Limits that hold come last, the nearest to its limit first; ties keep their
    order.
    """
    limit, measured = pl.col("limit"), pl.col("measured")
    shift = pl.col("allowed") == AT_MOST
    lowest = pl.when(pl.col("check") == RANK_AGREEMENT).then(-1.0).otherwise(0.0)
    way = pl.when(shift).then(1 - limit).otherwise(limit - lowest)
    way = pl.when(pl.col("check") == EDITED).then(limit).otherwise(way)
    over = pl.when(shift).then(measured.abs() - limit).otherwise(limit - measured)
    share = (over / way.clip(1e-9)).fill_nan(np.inf)
    return verdict.sort("holds", share, descending=[False, True], maintain_order=True)


def noise_floors(run: Run, noise: Sequence[tuple[str, Run]]) -> pl.DataFrame:
    """Prompt and floor: the largest shift of a token between two sweeps of one model, or null."""
    floors = [(prompt, _floor(noise, prompt, 1.0)) for prompt in run.vocabulary_prompts]
    return pl.DataFrame(floors, {"prompt": pl.String, "floor": pl.Float64}, orient="row")


def kinds_with_a_test(words: pl.DataFrame) -> tuple[int, int]:
    """How many kinds of words in `WORDS` have stems enough for a test, and how many there are."""
    stems = words.group_by("list", "words").agg(pl.col("stems").min())["stems"]
    return int((stems >= LEAST_STEMS).sum()), len(stems)


def _ranked(run: Run, prompt: str) -> tuple[Array, Ranking, Ranking]:
    """Ids of the tokens that both models have [N], and their rankings before and after."""
    ids = run.rewards(BEFORE, prompt)[0]
    ids = ids[np.isin(ids, shared_ids(run))]
    return ids, run.ranked(BEFORE, prompt, ids), run.ranked(AFTER, prompt, ids)


def _agreement(run: Run, ids: Array, before: Ranking, after: Ranking) -> tuple[float, float, float]:
    """Kendall's tau-b, and the ends of its interval."""
    orders = Order.of(before), Order.of(after)
    tau = tau_of(*(order.ranking for order in orders))
    tokens = run.vocabulary(AFTER).select("token_id", "token").collect()
    texts = tokens.filter(pl.col("token_id").is_in(ids)).sort("token_id")["token"]
    estimate = pair_interval(*orders, stem_numbers(texts), tau, tests=1)
    return tau, estimate.low, estimate.high


def _percentiles(run: Run, prompt: str) -> tuple[Array, Array, Array]:
    """Token ids [N], and the percentiles before and after [N]."""
    ids, before, after = _ranked(run, prompt)
    return ids, before.percentiles, after.percentiles


def _shift(run: Run, prompt: str) -> Array:
    _, before, after = _percentiles(run, prompt)
    return np.asarray(after - before)


def _floor(noise: Sequence[tuple[str, Run]], prompt: str, share: float) -> float | None:
    """The absolute shift that a share of the tokens stays below in the noisiest pair of sweeps."""
    shifts = [_shift(run, prompt) for _, run in noise if prompt in run.vocabulary_prompts]
    return max((float(np.quantile(np.abs(s), share)) for s in shifts), default=None)
