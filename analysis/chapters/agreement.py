"""How far the models agree: square matrices of rank statistics, and blocs of models that agree."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import polars as pl

from analysis.blocks import Block, Files, Finding, Folded, Heading, Mark, Marks, Picture, notes
from analysis.chapters import blocs as model_blocs
from analysis.charts.heat_map import heat_map
from analysis.sentences import listed
from analysis.statistics import Array, kendall, ranks
from analysis.statistics.kendall import Order
from analysis.statistics.ranks import Ranking, rank_biased_overlap
from analysis.study import NO_VOCABULARY, Absent, Analysis, Study, Table, required, table
from engine.runs.schema import Columns

_Matrix: TypeAlias = Callable[[Sequence[Ranking]], Array]
ONE_MODEL = "Only one model was scored: agreement needs two."
# Table -> what its numbers are, and how its chart is read.
_MATRICES = {
    "kendall_tau": (
        "Kendall’s τ",
        "Kendall’s τ-b on the shared vocabulary (1: the same order, −1: the opposite one); "
        "models that agree stand together.",
    ),
    "spearman": ("Spearman’s ρ", "Spearman’s ρ, as τ, but far disagreements weigh more."),
    "rbo": (
        "rank-biased overlap",
        "rank-biased overlap, how many of the highest tokens are the same; 0 means none.",
    ),
}
# Models, other models and relation of every claim under one prompt.
_Claims: TypeAlias = tuple[tuple[str, str, str], ...]
_PLAIN = {
    "alike": "tend to rank the words alike",
    "agree": "rank the words somewhat alike",
    "opposed": "rank the words in largely opposite ways",
    "disagree": "rank the words in partly opposite ways",
}
_NAMED = 3  # Prompts, and pairs of blocs, that a sentence names.
_WORDS = 2  # Disputed words that a sentence names, on each side.
_ITSELF = pl.col("bloc") == pl.col("other")  # Rows of `blocs_table` of a bloc, not of two.


def _tables(study: Study) -> Iterator[Table]:
    """Of each prompt the matrices, and what the blocs agree on and differ on."""
    matrices: dict[str, _Matrix] = {"kendall_tau": kendall.tau_matrix, "spearman": _rhos}
    matrices["rbo"] = partial(overlaps, p=study.options.rbo_p)
    for prompt in study.run.vocabulary_prompts:
        orders = functools.cache(partial(_orders, study, prompt))
        for name, matrix in matrices.items():
            yield table(name, prompt, make=partial(_matrix_of, orders, matrix))
        yield table("kendall_pairs", prompt, make=partial(_pairs_of, study, prompt, orders))
        yield table("blocs", prompt, make=partial(_blocs_of, study, prompt))
        yield table("consensus", prompt, make=partial(_consensus_of, study, prompt))
        yield table("disputed_words", prompt, make=partial(_disputed_of, study, prompt))


def kendall_matrix(rewards: pl.DataFrame) -> pl.DataFrame:
    """Kendall's tau-b of every pair of models: the table `kendall_tau_<prompt>.csv`.

    Args:
      rewards: token, and one column per model, as `tokens.shared_rewards` makes them.

    Returns:
      A square table: model, then one column per model, both in the order of `rewards`.
    """
    return _square(_rankings(rewards), kendall.tau_matrix)


def spearman_matrix(rewards: pl.DataFrame) -> pl.DataFrame:
    """Spearman's rho of every pair of models: the table `spearman_<prompt>.csv`.

    Takes and returns the same shapes as `kendall_matrix`.
    """
    return _square(_rankings(rewards), _rhos)


def _rhos(columns: Sequence[Ranking]) -> Array:
    return ranks.pearson_matrix([column.average for column in columns])


def overlaps(columns: Sequence[Ranking], p: float) -> Array:
    """Rank-biased overlap of every two rankings [M, M]; `p` is the persistence, in (0, 1)."""
    values = np.empty((len(columns), len(columns)))
    positions = [column.positions for column in columns]
    for i, x in enumerate(positions):
        for j, y in enumerate(positions[: i + 1]):
            overlap = rank_biased_overlap(x, y, p)
            values[i, j] = values[j, i] = overlap
    return values


def _pairs_of(study: Study, prompt: str, orders: Callable[[], Mapping[str, Order]]) -> pl.DataFrame:
    kendall = study.tables["kendall_tau", prompt]
    return model_blocs.kendall_pairs(
        study.tables["shared_rewards", prompt]["token"], orders(), kendall
    )


def _blocs_of(study: Study, prompt: str) -> pl.DataFrame:
    kendall = study.tables["kendall_tau", prompt]
    models = kendall.columns[1:]
    # Tau of a model with itself is not defined where it scores every token alike.
    has = dict(zip(models, ~np.isnan(np.diag(kendall.select(models).to_numpy())), strict=True))
    ordered, flat = [m for m in models if has[m]], [m for m in models if not has[m]]
    return model_blocs.blocs_table(study.tables["kendall_pairs", prompt], ordered, flat)


def _consensus_of(study: Study, prompt: str) -> pl.DataFrame:
    """`consensus_ends` of the blocs, or of the one model that was scored."""
    percentiles = model_blocs.shared_percentiles(study, prompt)
    models = percentiles.columns[1:]
    groups = [models] if len(models) == 1 else model_blocs.blocs_of(study.tables["blocs", prompt])
    ends = model_blocs.consensus_ends(percentiles, groups, study.settings.top)
    return required(ends, "No two models agree more than chance under this prompt.")


def _disputed_of(study: Study, prompt: str) -> pl.DataFrame:
    blocs, percentiles = (
        study.tables["blocs", prompt],
        model_blocs.shared_percentiles(study, prompt),
    )
    words = model_blocs.disputed_words(percentiles, blocs, study.settings.top)
    return required(words, "No two blocs of models disagree more than chance under this prompt.")


def _orders(study: Study, prompt: str) -> Mapping[str, Order]:
    """The order of each model that was scored under `prompt`, of two at least."""
    if len(study.models) < 2:
        raise Absent(ONE_MODEL)
    if len(study.scored_under(prompt)) < 2:
        raise Absent("Fewer than two models were scored under this prompt.")
    rankings = model_blocs.rankings(study, prompt)
    return {model: Order.of(order) for model, order in rankings.items()}


def _matrix_of(orders: Callable[[], Mapping[str, Order]], matrix: _Matrix) -> pl.DataFrame:
    return _square({model: order.ranking for model, order in orders().items()}, matrix)


def _rankings(rewards: pl.DataFrame) -> Mapping[str, Ranking]:
    return {model: ranks.ranking(rewards[model].to_numpy()) for model in rewards.columns[1:]}


def _square(rankings: Mapping[str, Ranking], matrix: _Matrix) -> pl.DataFrame:
    """A table of the `matrix` [M, M] of the models of `rankings`.

    The diagonal is computed too: it is NaN, not 1, where a model scores every token alike.
    """
    models = list(rankings)
    schema: Columns = {"model": pl.String, **dict.fromkeys(models, pl.Float64)}
    values = matrix(list(rankings.values()))
    return pl.DataFrame([models, *values.T], schema=schema, orient="col")


def _drawn(study: Study) -> Iterator[Block]:
    """Blocs and heat maps, prompt by prompt."""
    if not study.scored:
        raise Absent(NO_VOCABULARY)
    if len(study.models) < 2:
        raise Absent(ONE_MODEL)
    prompts = study.run.vocabulary_prompts
    known = [prompt for prompt in prompts if study.tables.get("kendall_tau", prompt) is not None]
    for prompt in known:
        yield Heading(study.prompt_names[prompt])
        yield from _blocs_rows(study, prompt)
        first, *other_maps = (_heat_map(study, name, prompt) for name in _MATRICES)
        files = Files([f"{name}_{prompt}.csv" for name in (*_MATRICES, "kendall_pairs")])
        yield from (first, Folded("Spearman’s ρ and rank-biased overlap", [*other_maps, files]))
    yield from notes(study.tables.reason("kendall_tau", p) for p in prompts if p not in known)


def _blocs_rows(study: Study, prompt: str) -> list[Block]:
    """The blocs of one prompt, with nicknames; a bloc itself has no other."""
    blocs, disputed = study.tables["blocs", prompt], study.tables.get("disputed_words", prompt)
    named = model_blocs.with_nicknames(blocs, study, "models", "other_models")
    once = {name: pl.when(~_ITSELF).then(name) for name in ("other", "other_models")}
    lacking = [study.names[slug] for slug in blocs.filter(relation="no order")["models"]]
    both = ("models", "other_models")
    words = None if disputed is None else model_blocs.with_nicknames(disputed, study, *both)
    shown = named.with_columns(**once).filter(pl.col("relation") != "no order")
    return [
        *model_blocs.BLOCS.rows(shown, prompt),
        *notes(f"{model} has no order to compare." for model in lacking),
        *model_blocs.DISPUTED.rows(words, prompt),
    ]


def _heat_map(study: Study, name: str, prompt: str) -> Picture:
    matrix = study.tables[name, prompt]
    listed = " ".join(study.tables["blocs", prompt].filter(_ITSELF)["models"]).split()
    order = pl.Enum(listed + [m for m in matrix.columns[1:] if m not in listed])
    beside = matrix.select("model", *order.categories).sort(pl.col("model").cast(order))
    label, caption = _MATRICES[name]
    caption = f"Asked {study.prompt_names[prompt]}: {caption}"
    return Picture(f"{name}_{prompt}", caption, partial(heat_map, beside, study.names, label))


def _marks(study: Study) -> Marks | None:
    """Mean τ of the blocs under the prompt of the first finding, and between them."""
    first = next(findings(study), None)
    if first is None:
        return None
    prompt = first.picture.removeprefix("kendall_tau_")
    blocs = study.tables["blocs", prompt]
    marks = []
    known = blocs.filter(pl.col("kendall").is_not_nan()).sort(
        _ITSELF, descending=True, maintain_order=True
    )
    for row in known.iter_rows(named=True):
        own, other = (len(row[key].split()) for key in ("models", "other_models"))
        itself = row["models"] == row["other_models"]
        who = f"within the {own} models" if itself else f"between {own} and {other}"
        marks.append(Mark(who, row["kendall"], row["ci_low"], row["ci_high"]))
    asked = study.prompt_names[prompt]
    axis = f"mean Kendall’s τ asked {asked}; 1: the same order, −1: the opposite"
    return Marks.some(marks, axis, what="pairs")


def findings(study: Study) -> Iterator[Finding]:
    """Who opposes whom under which prompts, or where nobody does, who ranks alike."""
    same: dict[_Claims, list[str]] = {}
    for (prompt,), blocs in study.tables.of("blocs").items():
        held = blocs.filter(pl.col("relation").is_in(model_blocs.RELATIONS))
        if claims := tuple(held.select("models", "other_models", "relation").rows()):
            same.setdefault(claims, []).append(prompt)
    ordered = sorted(same.items(), key=lambda item: not _opposing(item[0]))
    if ordered:
        plain = " ".join(_plainly(study, claims, prompts) for claims, prompts in ordered[:_NAMED])
        yield Finding(text=plain, picture=f"kendall_tau_{ordered[0][1][0]}")


def _opposing(claims: _Claims) -> list[tuple[str, str, str]]:
    return [claim for claim in claims if claim[2] in ("opposed", "disagree")]


def _plainly(study: Study, claims: _Claims, prompts: list[str]) -> str:
    """Who opposes whom, or where nobody does, who ranks alike."""
    clauses = []
    for models, other_models, relation in (_opposing(claims) or claims)[:_NAMED]:
        first, second = (model_blocs.who(study, slugs.split()) for slugs in (models, other_models))
        who = first if models == other_models else f"{first} on one side and {second} on the other"
        clauses.append(f"{who} {_PLAIN[relation]}")
    words = _disputed(study, prompts) if len(clauses) == 1 else ""
    names = [study.prompt_names[prompt] for prompt in prompts]
    many = f"{len(names)} prompts such as {names[0]}"
    return f"Asked {listed(names) if len(names) <= _NAMED else many}, {'; '.join(clauses)}.{words}"


def _disputed(study: Study, prompts: list[str]) -> str:
    """The words that the only two blocs which disagree rate most differently, or ""."""
    words = study.tables.get("disputed_words", prompts[0])
    if words is None or words["higher"].n_unique() < 2:
        return ""
    percentiles = model_blocs.shared_percentiles(study, prompts[0])
    known = model_blocs.ordinary_words(study, percentiles["token"])
    blocs = study.tables["blocs", prompts[0]]
    ordinary = model_blocs.disputed_words(percentiles, blocs, _WORDS, known)
    (up, down), what = model_blocs.quoted(ordinary, words, "higher", _WORDS)
    asked = f", asked {study.prompt_names[prompts[0]]}" if len(prompts) > 1 else ""
    return (
        f" Of {what}{asked}, the first side ranks {up} furthest above the other side, and {down} "
        "furthest below it."
    )


ANALYSIS = Analysis(
    id="agreement",
    title="Agreement",
    lead="How alike do two models rank the shared vocabulary, whatever the scale of their rewards? "
    "Kendall’s τ is 1 for equal orders, 0 for unrelated and −1 for opposite ones. A bloc is a "
    "group of models that agree more than chance: the interval of τ is above 0 for every two of "
    f"them. They rank alike where the interval of their mean τ is above {model_blocs.CLEAR}. Two "
    "blocs disagree more than chance where the interval of τ is below 0 for every model of one "
    "with every model of the other, and oppose one another where that of the mean is below "
    f"−{model_blocs.CLEAR}. Intervals are of 95%, for all pairs under a prompt together. Ordinary "
    "words are whole and occur .3 times in a million or more. “Hydro” is no ordinary word: "
    "longer words that begin with it are more than five times as frequent.",
    make=_tables,
    parts=(_drawn,),
    told=(findings,),
    marks=_marks,
)
