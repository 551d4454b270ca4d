"""The groups of tables, each computed where its inputs are there, and otherwise with a reason.

Every function returns fields of `tables.Tables` and writes into `absent` why a table is empty: a
file stem, or a field of `Tables` that no file is named after, -> one sentence.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from analysis import (
    agreement,
    framing,
    humans,
    identity,
    item_logprobs,
    items,
    lexicons,
    logprobs,
    matching,
    objectives,
    sentiment,
    sequences,
    variance,
)
from analysis.load import Run
from analysis.models import ModelInfo
from analysis.options import Options
from engine.runs.schema import Columns

Fields = dict[str, Any]
Absent = dict[str, str]

ONE_MODEL = "Only one model was scored: agreement needs two."
NOTHING_SHARED = "The models share no tokens, so their orders cannot be compared."
NO_VOCABULARY = "No model scored its vocabulary."
_RSA_MODELS = 4  # Three models have three pairs: nothing can be told from six orders.


def agreements(
    rewards: Mapping[str, pl.DataFrame],
    models: pl.DataFrame,
    infos: Mapping[str, ModelInfo],
    options: Options,
    absent: Absent,
) -> Fields:
    """kendall, spearman, rbo, mds, rsa and rsa_fit, by prompt; consensus; variance."""
    stems = ("kendall_tau", "spearman", "rbo", "mds", "rsa")
    fields: dict[str, dict[str, pl.DataFrame]] = {
        name: {} for name in ("kendall", "spearman", "rbo", "mds", "rsa", "rsa_fit", "consensus")
    }
    for prompt, table in rewards.items():
        if table.height:
            fields["consensus"][prompt] = agreement.consensus(table)
        reason = (
            ONE_MODEL
            if models.height < 2
            else "Fewer than two models were scored under this prompt."
        )
        if table.width < 3 or not table.height:
            absent |= {
                f"{s}_{prompt}": reason if table.width < 3 else NOTHING_SHARED for s in stems
            }
            continue
        fields["kendall"][prompt] = matrix = agreement.kendall_matrix(table)
        fields["spearman"][prompt] = agreement.spearman_matrix(table)
        fields["rbo"][prompt] = agreement.rbo_matrix(table, options.rbo_p)
        _maps(prompt, matrix, models, infos, options, fields, absent)
    fits = [t.select(pl.lit(p).alias("prompt"), pl.all()) for p, t in fields["rsa_fit"].items()]
    common = {p: t for p, t in rewards.items() if t.height and t.width > 1}
    split = variance.variance_table(common) if common else variance.variance_table(_NOTHING)
    if split.height == 0:
        absent["variance"] = (
            "Variance is split over shared tokens and two models or two prompts at least; "
            "this run has too few."
        )
    return fields | {
        "rsa_fit": pl.concat(fits) if fits else pl.DataFrame(schema=_FIT),
        "variance": split,
    }


def _maps(
    prompt: str,
    matrix: pl.DataFrame,
    models: pl.DataFrame,
    infos: Mapping[str, ModelInfo],
    options: Options,
    fields: dict[str, dict[str, pl.DataFrame]],
    absent: Absent,
) -> None:
    names = matrix.columns[1:]
    ordered = np.isfinite(np.diag(matrix.select(names).to_numpy())).sum()
    if ordered < 2:
        few = "Fewer than two models have an order: the others score every token alike."
        absent |= {f"mds_{prompt}": few, f"rsa_{prompt}": few}
        return
    fields["mds"][prompt] = agreement.mds_table(matrix, np.random.default_rng(options.seed))
    if ordered < _RSA_MODELS:
        absent[f"rsa_{prompt}"] = f"What explains agreement takes {_RSA_MODELS} models or more."
        return
    known = models.filter(pl.col("model").is_in(names))
    lineage = {slug: info.lineage for slug, info in infos.items()}
    by = agreement.predictors(known, lineage)
    if not by:
        absent[f"rsa_{prompt}"] = (
            "Neither bases, developers, sizes nor ranks are known of all models and differ."
        )
        return
    rng = np.random.default_rng(options.seed)
    table, fit = agreement.rsa_table(matrix, by, rng, options.permutations)
    fields["rsa"][prompt], fields["rsa_fit"][prompt] = (
        table,
        fit.select(pl.lit(len(by)).cast(pl.Int64).alias("predictors"), pl.all()),
    )


def words(run: Run, order: Sequence[str], options: Options, absent: Absent) -> Fields:
    """sentiment_*, frequency_*, bing_* and the counts of their matches."""
    counts: list[pl.DataFrame] = []
    graded = _points(run, order, "afinn", options, counts, absent, "sentiment_slopes")
    slopes = sentiment.sentiment_slopes(graded if graded.height else _GRADED)
    fields: Fields = {"sentiment_points": graded, "sentiment_slopes": slopes}
    used = _frequencies(run, order, graded, options, counts, absent)
    fields |= {"frequency_points": used, "frequency_slopes": sentiment.frequency_slopes(used)}
    absent_bing = "No Bing lexicon was named (options.bing)."
    plain = _LABELLED
    if options.bing:
        plain = _points(run, order, "bing", options, counts, absent, "bing_effects")
    else:
        absent["bing_effects"] = absent_bing
    fields |= {"bing_points": plain, "bing_effects": sentiment.valence_effects(plain)}
    return fields | {"matches": counts}


def _points(
    run: Run,
    order: Sequence[str],
    name: str,
    options: Options,
    counts: list[pl.DataFrame],
    absent: Absent,
    stem: str,
) -> pl.DataFrame:
    empty = _GRADED if name == "afinn" else _LABELLED
    if not run.results:
        absent[stem] = NO_VOCABULARY
        return empty
    path = getattr(options, name)
    try:
        lexicon = lexicons.afinn(path) if name == "afinn" else lexicons.bing(path)
    except lexicons.LexiconError as error:
        absent[stem] = f"No lexicon: {error}."
        return empty
    source = path or "AFINN-111"

    def matcher(vocabulary: pl.DataFrame) -> pl.DataFrame:
        return lexicons.match(vocabulary, lexicon, options.match_trim)

    how = "trimmed, any case" if options.match_trim else "not trimmed, any case"
    counts.append(matching.matches(run, order, matcher, stem.split("_")[0], source, how))
    found = matching.points(run, order, matcher)
    if found.height == 0:
        absent[stem] = f"No token matches a word of {source} ({how})."
        return empty
    return found


def _frequencies(
    run: Run,
    order: Sequence[str],
    graded: pl.DataFrame,
    options: Options,
    counts: list[pl.DataFrame],
    absent: Absent,
) -> pl.DataFrame:
    empty = sentiment.frequency_points(_GRADED, _FREQUENCY)
    if graded.height == 0:
        absent["frequency_slopes"] = f"It needs sentiment. {absent['sentiment_slopes']}"
        return empty
    try:
        often = lexicons.frequency(options.frequency)
    except lexicons.LexiconError as error:
        absent["frequency_slopes"] = f"No word frequencies: {error}."
        return empty
    found = sentiment.frequency_points(graded, often)
    source = options.frequency or "wordfreq"
    if found.height == 0:
        absent["frequency_slopes"] = f"No matched word is in {source}."
        return empty
    sizes = found.group_by("model", maintain_order=True).agg(
        tokens=pl.col("token_id").n_unique().cast(pl.Int64),
        words=pl.col("word").n_unique().cast(pl.Int64),
    )
    named = {
        "analysis": pl.lit("frequency"),
        "source": pl.lit(source),
        "matching": pl.lit("words of AFINN"),
    }
    of = counts[-1].select("model", "of")
    joined = sizes.join(of, on="model", how="left", validate="1:1", maintain_order="left")
    counts.append(joined.select(**named, model="model", tokens="tokens", words="words", of="of"))
    return found


def frames(run: Run, order: Sequence[str], options: Options, top: int, absent: Absent) -> Fields:
    """framing, framing_sum, framing_difference, framing_axis; the prompts of the last three."""
    there = [model for model in order if model in run.vocabulary_models]
    table = framing.framing_table(run, there)
    if table.height == 0:
        why = "No model was scored under two prompts." if run.results else NO_VOCABULARY
        absent |= dict.fromkeys(("framing", *_TWO), why)
    prompts = options.framing
    if prompts[0] not in run.vocabulary_prompts and prompts[1] != "greatest":
        prompts = ("greatest", prompts[1])
    sums, differences = framing.framing_ends(run, there, prompts, top)
    if sums.height == 0 and table.height:
        both = " and ".join(f"“{prompt}”" for prompt in prompts)
        absent |= dict.fromkeys(_TWO, f"No model was scored under both {both}.")
    return {
        "framing": table,
        "framing_sum": sums,
        "framing_difference": differences,
        "framing_axis": framing.framing_axis(run, there, prompts),
        "framing_prompts": prompts,
    }


def lists(run: Run, order: Sequence[str], top: int, absent: Absent) -> Fields:
    """items_points, items_top_bottom, items_standing."""
    names = items.lists_of_items(run)
    points = {name: items.items_points(run, name, order) for name in names}
    every = pl.concat([items.items_points(run, "", []), *points.values()])
    if not names:
        absent["items_standing"] = "No reward model scored a list of items."
    return {
        "items_points": points,
        "items_top_bottom": items.items_top_bottom(every, top),
        "items_standing": items.items_standing(every),
    }


def people(run: Run, order: Sequence[str], options: Options, absent: Absent) -> Fields:
    """humans_correlation, humans_gap, humans_kendall, humans_ranks."""
    stems = ("humans_correlation", "humans_gap")
    names = items.lists_of_items(run)
    sides = {key: humans.side_by_side(run, *key, order) for key in run.lists() if key[0] in names}
    known = {key: table for key, table in sides.items() if table is not None and table.height}
    unknown = ", ".join(sorted({items for items, _ in sides.keys() - known.keys()}))
    why = f"What people think of the items is not known ({unknown})."
    if not sides:
        absent |= dict.fromkeys(stems, "No list of items was scored.")
    elif not known:
        absent |= dict.fromkeys(stems, why)
    elif unknown:
        absent["humans_ranks"] = why
    ranked = {key: humans.humans_ranks(table) for key, table in known.items()}
    found = [humans.humans_correlation(table, *key) for key, table in known.items()]
    gaps = [
        humans.humans_gap(table, *key, options.humans_in_median) for key, table in ranked.items()
    ]
    return {
        "humans_correlation": pl.concat([pl.DataFrame(schema=_CORRELATION), *found]),
        "humans_gap": pl.concat([pl.DataFrame(schema=_GAP), *gaps]),
        "humans_kendall": {key: humans.humans_kendall(table) for key, table in known.items()},
        "humans_ranks": ranked,
    }


def identities(
    run: Run, order: Sequence[str], options: Options, counts: list[pl.DataFrame], absent: Absent
) -> Fields:
    """identity, identity_q."""
    rng = np.random.default_rng(options.seed)
    none = _tested(identity.identity_groups(pl.DataFrame(), rng))
    if not run.results:
        absent["identity"] = NO_VOCABULARY
        return none
    try:
        terms = lexicons.identity(options.identity)
    except lexicons.LexiconError as error:
        absent["identity"] = f"No identity terms: {error}."
        return none

    def matcher(vocabulary: pl.DataFrame) -> pl.DataFrame:
        return lexicons.match_cased(vocabulary, terms)

    source = "ours" + (f" and {options.identity}" if options.identity else "")
    counts.append(matching.matches(run, order, matcher, "identity", source, "trimmed"))
    found = identity.identity_words(run, order, terms)
    if found.filter(pl.col("group") != lexicons.NEUTRAL).height == 0:
        absent["identity"] = "No token is one of the identity terms."
        return none
    table = identity.identity_groups(found, rng, options.permutations, options.bootstraps)
    return _tested(table.filter(pl.col("group") != lexicons.NEUTRAL))


def _tested(groups: pl.DataFrame) -> Fields:
    return {"identity": groups.drop("difference"), "identity_q": identity.with_q(groups)}


def searches(run: Run, absent: Absent) -> Fields:
    """Fields sequences and sequence_*."""
    found = sequences.sequences_table(run)
    transfer = sequences.sequence_transfer(run, found)
    if found.height == 0:
        absent["sequences"] = "No search for sequences was run."
    if transfer.height == 0:
        absent["sequence_transfer"] = "No other model scored a sequence that was found."
    return {
        "sequences": found,
        "sequence_traces": sequences.sequence_traces(run),
        "sequence_transfer": transfer,
    }


def makeup(run: Run, order: Sequence[str], top: int, absent: Absent) -> Fields:
    """Fields objectives and objectives_*."""
    found = objectives.objectives_table(run, order)
    if found.height == 0:
        absent["objectives"] = (
            "No model was swept with its objectives (--config.objectives=values)."
            if run.results
            else NO_VOCABULARY
        )
    cells = [key for key, result in run.results.items() if result.objectives]
    return {
        "objectives": found,
        "objectives_ends": objectives.objectives_ends(run, order, top),
        "objectives_spearman": {key: objectives.objectives_spearman(run, *key) for key in cells},
    }


def language(run: Run, order: Sequence[str], top: int, absent: Absent) -> Fields:
    """logprobs, logprobs_*, item_logprobs and item_logprobs_*."""
    asked = dict.fromkeys(prompt for _, prompt in run.logprobs)
    against = logprobs.logprobs_rewards(run, order)
    ratio = logprobs.logprobs_ratio(run, top)
    if not asked:
        what = "next tokens" if run.item_logprobs else "log-probabilities"
        absent["logprobs"] = f"No language model’s {what} are in the run."
    if against.height == 0:
        absent["logprobs_rewards"] = absent.get(
            "logprobs", "No reward model was scored under a prompt of the language models."
        )
    if ratio.height == 0:
        absent["logprobs_ratio"] = absent.get(
            "logprobs", "No two language models were asked one prompt in one form."
        )
    listed = item_logprobs.item_logprobs_rewards(run, order)
    if listed.height == 0:
        why = "No reward model scored a list that a language model read, under its prompt."
        none = absent.get("logprobs", "No language model read a list of items.")
        absent["item_logprobs"] = why if run.item_logprobs else none
    names = listed.select("list", "prompt", "language_model").unique(maintain_order=True)
    keys = [(items, prompt, model) for items, prompt, model in names.iter_rows()]
    return {
        "logprobs": {prompt: logprobs.logprobs_ends(run, prompt, top) for prompt in asked},
        "logprobs_rewards": against,
        "logprobs_ratio": ratio,
        "item_logprobs": listed,
        "item_logprobs_points": {
            key: item_logprobs.item_logprobs_points(run, *key, order) for key in keys
        },
        "item_logprobs_ratio": item_logprobs.item_logprobs_ratio(run, top),
    }


_TWO = ("framing_sum", "framing_difference", "framing_axis")
_NOTHING = {"": pl.DataFrame(schema={"token": pl.String})}
_POINT: Columns = {**matching.POINT, "word": pl.String}
_GRADED = pl.DataFrame(schema={**_POINT, "value": pl.Float64, "reward": pl.Float64})
_LABELLED = pl.DataFrame(schema={**_POINT, "valence": pl.String, "reward": pl.Float64})
_FREQUENCY = pl.DataFrame(schema={"word": pl.String, "per_million": pl.Float64})
_FIT: Columns = {
    "prompt": pl.String,
    "predictors": pl.Int64,
    "pairs": pl.Int64,
    "r_squared": pl.Float64,
    "p": pl.Float64,
    "max_vif": pl.Float64,
}
_LIST: Columns = {"list": pl.String, "prompt": pl.String}
_CORRELATION: Columns = {**_LIST, "model": pl.String, "spearman": pl.Float64, "kendall": pl.Float64}
_GAP: Columns = {
    **_LIST,
    "item": pl.String,
    **dict.fromkeys(("human_rank", "model_rank", "gap"), pl.Float64),
}
