"""Blocs of models of which every two agree, and the tokens that a bloc agrees on."""

import functools
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from analysis.columns import KENDALL, RANK, Column, Spec, ends, several
from analysis.measures.shared_tokens import NOTHING_SHARED, shared_rankings
from analysis.sentences import listed
from analysis.statistics import Array
from analysis.statistics.kendall import Order, concordant_shares, pair_interval
from analysis.statistics.ranks import Ranking
from analysis.statistics.similarity import blocs
from analysis.study import Absent, Study
from analysis.words import lexicons
from analysis.words.stems import STARTS, WORD, folded, stem_numbers, words
from engine import display

PAIRS = Spec(
    "kendall_pairs_<prompt>",
    (
        *(*several("model", "model_a model_b"), KENDALL),
        *ends("fixed", "95 % for all pairs under the prompt together"),
        *several("share", "concordant discordant", "shares of pairs of tokens; the rest is tied"),
        Column("stems", "count"),
    ),
)
_BLOC, _MODELS = Column("bloc", "count"), Column("models")
_OTHER = Column("other", "count", "and bloc")
_OTHER_MODELS = Column("other_models", title="and models")
_WORD = (RANK, Column("token", "token"))
CLEAR = 0.3  # Mean tau beyond which models are said to rank alike, or to oppose one another.
RELATIONS = ("alike", "agree", "opposed", "disagree")  # Those that are claimed.
BLOCS = Spec(
    "blocs_<prompt>",
    (
        _BLOC.but(help="1 is the largest"),
        _MODELS.but(help="slugs joined by spaces"),
        *(_OTHER, _OTHER_MODELS.but(help="the bloc itself or a later one")),
        Column(
            "relation",
            help="within a bloc `agree`, or `alike` where ci_low is above 0.3, or `alone`; between "
            "two `disagree`, or `opposed` where ci_high is below −0.3, or `unclear`; `no order` "
            "for a model that scores every token alike",
        ),
        Column("pairs", "count"),
        Column("kendall", "fixed", "mean τ", "mean"),
        *(Column("lowest", "fixed", "lowest τ"), Column("highest", "fixed", "highest τ")),
        *ends("fixed", "of the mean"),
    ),
    page="bloc other relation kendall ci_low ci_high lowest highest pairs models other_models",
    title="Blocs",
)
CONSENSUS = Spec(
    "consensus_<prompt>",
    (
        *(_BLOC, _MODELS, Column("end", help="`highest`, `lowest`, `disputed`"), *_WORD),
        Column("percentile", "share", "mean percentile", "mean over the models"),
        Column(
            "spread",
            "share",
            "spread between models",
            "standard deviation between the models, ddof 1; NaN for one",
        ),
        Column("lowest", "share", "lowest of a model"),
        Column(
            "highest",
            "share",
            "highest of a model",
            "percentile in a model; blocs of two models at least, or the one model of a run",
        ),
    ),
    page="models end rank token percentile spread lowest highest",
    title="Words of the shared vocabulary, by mean percentile over the models of a bloc",
)
DISPUTED = Spec(
    "disputed_words_<prompt>",
    (
        *(_BLOC, _MODELS, _OTHER, _OTHER_MODELS),
        Column("higher", help="which of them rates the word higher: `bloc` or `other`"),
        *_WORD,
        Column("percentile", "share", "percentile in the bloc", "mean over its models"),
        Column("other_percentile", "share", "in the other", "the same in the other bloc"),
    ),
    page="models other_models higher rank token percentile other_percentile",
    title="Words on which two blocs differ most",
)


def kendall_pairs(
    tokens: pl.Series, orders: Mapping[str, Order], kendall: pl.DataFrame
) -> pl.DataFrame:
    """Every two models with the interval of their tau.

    Args:
      tokens: the tokens [N].
      orders: slug -> the model's order of them.
      kendall: Kendall's tau-b of every two models, as `agreement.kendall_matrix` makes it.

    Returns:
      The table `PAIRS`. Forms of one word are resampled together. NaN where a model has no order.
    """
    labels = stem_numbers(tokens)
    values = kendall.select(list(orders)).to_numpy()
    two = list(itertools.combinations(enumerate(orders), 2))
    rows = []
    for (i, a), (j, b) in two:
        tau = float(values[i, j])
        numbers = (np.nan,) * 4
        if not np.isnan(tau):
            interval = pair_interval(orders[a], orders[b], labels, tau, len(two))
            both = concordant_shares(orders[a].ranking, orders[b].ranking, tau)
            numbers = (interval.low, interval.high, *both)
        rows.append((a, b, tau, *numbers, int(labels.max()) + 1))
    return PAIRS.frame(rows)


def blocs_table(
    pairs: pl.DataFrame, models: Sequence[str], without_order: Sequence[str] = ()
) -> pl.DataFrame:
    """Groups of models of which every two agree, and how every two groups stand to one another.

    Complete linkage over the lower ends of the intervals, cut at 0: tau of every two models of a
    bloc is above 0. The intervals hold together, so that also holds of pairs chosen by their tau,
    and the mean of their ends bounds the mean tau of any pairs.

    Args:
      pairs: as `kendall_pairs` makes them.
      models: slugs of the models that have an order, in the order in which they are named.
      without_order: slugs of those that score every token alike.

    Returns:
      The table `BLOCS`. Two blocs disagree only where tau of every pair is below 0 beyond its
      interval. Models without an order have a row each, without a bloc.
    """
    place = {model: i for i, model in enumerate(models)}
    numbers = np.zeros((3, len(models), len(models)))
    for row in pairs.iter_rows(named=True):
        if row["model_a"] in place and row["model_b"] in place:
            i, j = place[row["model_a"]], place[row["model_b"]]
            values = [row[name] for name in ("kendall", "ci_low", "ci_high")]
            numbers[:, i, j] = numbers[:, j, i] = values
    groups = blocs(np.nan_to_num(numbers[1], nan=-1.0))
    rows = []
    for a, b in itertools.combinations_with_replacement(range(len(groups)), 2):
        cells = [(i, j) for i in groups[a] for j in groups[b] if a != b or i < j]
        each = numbers[:, [i for i, _ in cells], [j for _, j in cells]]
        means = _means(each)
        names = [" ".join(models[i] for i in groups[g]) for g in (a, b)]
        relation = _relation(a == b, each)
        rows.append((a + 1, names[0], b + 1, names[1], relation, len(cells), *means))
    lacking = [(None, model, None, None, "no order", 0, *(np.nan,) * 5) for model in without_order]
    return BLOCS.frame([*rows, *lacking])


def blocs_of(table: pl.DataFrame) -> list[list[str]]:
    """Slugs of the models of each bloc of at least two, in the order of `blocs_table`."""
    agreeing = table.filter(pl.col("relation").is_in(["alike", "agree"]))
    return [models.split() for models in agreeing["models"]]


def who(study: Study, models: Sequence[str]) -> str:
    """The nicknames of `models`, or "all 5 models"."""
    if len(models) == len(study.names) > 2:
        return f"all {len(models)} models"
    return listed([study.names[model] for model in models])


def ordinary_words(study: Study, tokens: pl.Series) -> pl.Series:
    """Those tokens that are whole words and not rare.

    Where some tokens begin with a space, those without one are endings.
    """
    known = sorted(lexicons.common_words(study.options.frequency))
    words = tokens.filter(tokens.str.contains(WORD))
    starts = words.str.contains(STARTS)
    words = words.filter(starts) if starts.any() else words
    return words.filter(folded(words).is_in(known))


def quoted(
    ordinary: pl.DataFrame, every: pl.DataFrame, side: str, count: int
) -> tuple[list[str], str]:
    """English lists of the first tokens of each side in quotation marks, and what they are.

    `ordinary` words where both sides, which are values of the column `side` of `every` token, have
    `count`; else the first of `every`, which may be pieces of words.
    """
    sides = every[side].unique(maintain_order=True)[:2]
    words, tokens = (
        [table.filter(pl.col(side) == value)["token"].head(count) for value in sides]
        for table in (ordinary, every)
    )
    enough = all(len(each) == count for each in words)
    shown = words if enough else tokens
    said = [listed([f"“{display.plain(t.strip() or t)}”" for t in each]) for each in shown]
    return said, "ordinary words" if enough else "tokens"


def with_nicknames(table: pl.DataFrame, study: Study, *columns: str) -> pl.DataFrame:
    """`table` with an English list of nicknames where `columns` have slugs."""
    named = pl.col(*columns).map_elements(
        lambda slugs: listed([study.names[slug] for slug in slugs.split()]), return_dtype=pl.String
    )
    return table.with_columns(named)


def _means(numbers: Array) -> tuple[float, ...]:
    """Mean tau, lowest, highest and the interval of the mean of `numbers` [3, pairs]."""
    if numbers.shape[1] == 0:
        return (np.nan,) * 5
    tau, low, high = numbers
    return float(tau.mean()), *map(float, (tau.min(), tau.max(), low.mean(), high.mean()))


def _relation(same: bool, numbers: Array) -> str:
    """How the models of a bloc, or of two, stand to one another; `numbers` [3, pairs]."""
    _, low, high = numbers
    if same and not len(low):
        return "alone"
    if same:
        return "alike" if low.mean() > CLEAR else "agree"
    if high.max() >= 0:
        return "unclear"
    return "opposed" if high.mean() < -CLEAR else "disagree"


def rankings(study: Study, prompt: str) -> dict[str, Ranking]:
    """Slug -> how it ranks the words that all models share, of each model scored under `prompt`."""
    tokens = study.tables["shared_rewards", prompt]["token"]
    if not len(tokens):
        raise Absent(study.tables.reason("shared_vocabulary") or NOTHING_SHARED)
    return shared_rankings(study.run, study.tables["shared_vocabulary"], prompt, tokens)


def shared_percentiles(study: Study, prompt: str) -> pl.DataFrame:
    """token, and one column per model: the percentiles of the words that all models share."""
    tokens = study.tables["shared_rewards", prompt].select("token")
    places = {model: order.percentiles for model, order in rankings(study, prompt).items()}
    return tokens.hstack(pl.DataFrame(places))


def consensus(percentiles: pl.DataFrame) -> pl.DataFrame:
    """Mean and spread of each token's percentiles over the models.

    Args:
      percentiles: token, and one column per model, as `shared_percentiles` makes them.

    Returns:
      token, percentile (mean over the models of the token's percentile in each, 0 to 1), spread
      (their standard deviation, ddof 1; NaN for one model), lowest and highest (of them), by
      falling percentile, then by token.
    """
    models = percentiles.columns[1:]
    each = np.stack([percentiles[model].to_numpy() for model in models])
    alone = len(models) == 1
    spread = np.full(percentiles.height, np.nan) if alone else each.std(axis=0, ddof=1)
    means = percentiles.select("token").with_columns(
        percentile=pl.Series(each.mean(axis=0), dtype=pl.Float64),
        spread=pl.Series(spread, dtype=pl.Float64),
        lowest=pl.Series(each.min(axis=0), dtype=pl.Float64),
        highest=pl.Series(each.max(axis=0), dtype=pl.Float64),
    )
    return means.sort("percentile", "token", descending=[True, False])


def consensus_ends(
    percentiles: pl.DataFrame,
    groups: Sequence[Sequence[str]],
    count: int,
    among: pl.Series | None = None,
) -> pl.DataFrame:
    """The words that the models of each bloc score highest and lowest, and those they dispute.

    Args:
      percentiles: token, and one column per model, as `shared_percentiles` makes them.
      groups: slugs of the models of each bloc.
      count: words at each end. Of spellings that differ by case and outer spaces, the first counts.
      among: the tokens that are listed; all by default. Percentiles are among all in any case.

    Returns:
      The table `CONSENSUS`: "highest" and "lowest" by percentile, "disputed" by spread; rank 1 is
      the extreme. One model disputes nothing.
    """
    frames = []
    for bloc, models in enumerate(groups, 1):
        means = consensus(percentiles.select("token", *models))
        ends = {"highest": means, "lowest": means.sort("percentile", "token")}
        if len(models) > 1:
            ends["disputed"] = means.sort("spread", "token", descending=[True, False])
        for end, ordered in ends.items():
            chosen = first_words(ordered, count, among).with_row_index("rank", 1)
            frames.append(CONSENSUS.frame(chosen, bloc=bloc, models=" ".join(models), end=end))
    return CONSENSUS.concat(frames)


def disputed_words(
    percentiles: pl.DataFrame, blocs: pl.DataFrame, count: int, among: pl.Series | None = None
) -> pl.DataFrame:
    """The words whose mean percentiles differ most between blocs that disagree more than chance.

    Args:
      percentiles: token, and one column per model, as `shared_percentiles` makes them.
      blocs: the table `BLOCS`.
      count: words on each side; one of spellings that differ only by case and outer spaces.
      among: the tokens that are listed; all by default.

    Returns:
      The table `DISPUTED`: for each two blocs that disagree or oppose one another the words that
      the first rates higher, then those that the other does; rank 1 differs most.
    """

    @functools.cache
    def mean(models: str) -> Array:
        each = [percentiles[model].to_numpy() for model in models.split()]
        average: Array = np.stack(each).mean(axis=0)
        return average

    frames = []
    apart = blocs.filter(pl.col("relation").is_in(["opposed", "disagree"]))
    for row in apart.iter_rows(named=True):
        both = percentiles.select(
            "token",
            percentile=pl.Series(mean(row["models"])),
            other_percentile=pl.Series(mean(row["other_models"])),
        )
        gap = pl.col("percentile") - pl.col("other_percentile")
        named = {name: row[name] for name in ("bloc", "models", "other", "other_models")}
        for higher, by in (("bloc", -gap), ("other", gap)):
            ordered = both.filter(by < 0).sort(by, "token")
            chosen = first_words(ordered, count, among).with_row_index("rank", 1)
            frames.append(DISPUTED.frame(chosen, **named, higher=higher))
    return DISPUTED.concat(frames)


def first_words(table: pl.DataFrame, count: int, among: pl.Series | None = None) -> pl.DataFrame:
    """The first `count` rows of `table`, one of those that differ only by case and outer space.

    Of the tokens `among` alone, where that is given: another spelling hides none of them.
    """
    table = table if among is None else table.filter(pl.col("token").is_in(among.implode()))
    # The ends hold many spellings of one word, so a longer head is searched.
    head = table.head(100 * count)
    numbered = head.with_columns(_word=pl.Series(words(head["token"])))
    return numbered.unique("_word", keep="first", maintain_order=True).head(count).drop("_word")
