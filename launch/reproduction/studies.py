"""The analyses of a reading's run, as the comparison with the published values takes them."""

import dataclasses
from collections.abc import Mapping, Sequence

import polars as pl

from analysis import AnalyzeSettings, ModelInfo, Study
from analysis.published import comparison, rounding, singles, tables
from analysis.published.data import Published
from analysis.published.exhibits import EXHIBITS
from analysis.published.records import Readings
from analysis.published.run_values import RunValues
from analysis.published.verdicts import DIFFERS
from analysis.run import Run
from configs import analyze as defaults
from configs import known_models
from configs.known_models import ModelSpec
from launch.common import reporting
from launch.reproduction.asked import Asked
from launch.reproduction.readings import NOISE, PAPER, Reading

_TOP = 60  # tokens per end: more than are printed, because of ties
_DRAWS = 99  # of tests whose results are not compared: values alone are


def infos() -> dict[str, ModelInfo]:
    """The models of the paper, reward models first."""
    every = reporting.metadata()
    return {slug: every[slug] for slug in (*known_models.MODELS, *known_models.LANGUAGE_MODELS)}


def settings_of(asked: Asked, *, paper: bool) -> AnalyzeSettings:
    """The settings of a reading's analyses: the paper's, or the defaults of the report."""
    config = defaults.get_config()
    config.top = _TOP
    options = config.options
    options.shared_ends = True
    for key in ("afinn", "frequency", "bing", "permutations", "bootstraps"):
        options[key] = asked.config[key]
    if paper:
        options.match_trim, options.humans_matches, options.humans_in_median = "never", 0, True
    return reporting.settings_of(config)


def study_of(asked: Asked, reading: Reading, published: Published) -> Study | None:
    """The tables of a reading's run; None where it has no complete result."""
    run = run_of(asked, reading)
    if run is None:
        return None
    known = _without_lineage(infos()) if reading.paper else infos()
    return tables.study_of(run, known, settings_of(asked, paper=reading.paper), published)


def run_of(asked: Asked, reading: Reading) -> Run | None:
    """The complete results of a reading's run; None where it has none.

    In the paper's conventions the rewards of seven models are rounded as the paper's are: so there
    are ties, in τ-b and at the ends of a vocabulary.
    """
    run = tables.complete(asked.run(reading.id))
    return _rounded(run) if run is not None and reading.paper else run


def _rounded(run: Run) -> Run:
    return rounding.rounded(run, {slug: info.nickname for slug, info in infos().items()})


def single_changes(asked: Asked, published: Published, items: str = "") -> list[RunValues]:
    """The tables of the paper's run with one convention changed, for each that was computed.

    Args:
      asked: the call.
      published: the values to compare with.
      items: name of the list of items that is compared; "": the only one that was scored.
    """
    run = tables.complete(asked.run(PAPER))
    found = []
    for one in [] if run is None else singles.changes(run):
        study = _quick(asked, _rounded(one.run), published)
        computed = tables.own_of(one.name, study, infos(), items=items)
        found.append(dataclasses.replace(computed, tried=one.tried))
    return found


def list_name(asked: Asked) -> str:
    """Name of the list of items that is compared; "" where the call names none."""
    return "" if asked.elo is None else asked.elo.name


def differing(
    asked: Asked, spec: ModelSpec, published: Published, readings: Sequence[Reading]
) -> list[str]:
    """Prompts under which a published value of a model differs from that of the paper's run.

    Values over the vocabulary that all models share are left out, because they depend on which
    models have been scored so far.

    Args:
      asked: the call.
      spec: the model.
      published: the values to compare with.
      readings: of the runs; that in a second dtype, where there is one, measures the noise.
    """
    owns = {}
    for reading in readings:
        run = run_of(asked, reading) if reading.paper else None
        if run is not None:
            study = _quick(asked, singles.of_model(run, spec.slug), published)
            name = list_name(asked)
            owns[reading.id] = tables.own_of(reading.name, study, infos(), items=name)
    nothing = tables.own_of("", None, infos())
    found = Readings(paper=owns.get(PAPER, nothing), ours=nothing, noise=owns.get(NOISE))
    shared = [exhibit.id for exhibit in EXHIBITS if exhibit.of_shared]
    alone = ~pl.col("exhibit").is_in(shared)
    computed = Published(
        models=published.models.clear(),
        numbers=published.numbers.filter(alone, model=spec.nickname),
        tokens=published.tokens.filter(alone, model=spec.nickname),
    )
    prompts = [*computed.numbers["prompt"], *computed.tokens["prompt"]]
    return [p for p in dict.fromkeys(prompts) if _differs(computed, p, found)]


def _differs(published: Published, prompt: str, readings: Readings) -> bool:
    computed = dataclasses.replace(
        published,
        numbers=published.numbers.filter(prompt=prompt),
        tokens=published.tokens.filter(prompt=prompt),
    )
    compared = comparison.compare(computed, readings)
    return any(one.counts[DIFFERS] for one in compared)


def _quick(asked: Asked, run: Run, published: Published) -> Study:
    """The tables of a run in the paper's conventions, without draws for tests."""
    settings = settings_of(asked, paper=True)
    options = dataclasses.replace(settings.options, permutations=_DRAWS, bootstraps=_DRAWS)
    known = _without_lineage(infos())
    return tables.study_of(run, known, dataclasses.replace(settings, options=options), published)


def _without_lineage(known: Mapping[str, ModelInfo]) -> dict[str, ModelInfo]:
    """The paper does not test lineage."""
    return {slug: dataclasses.replace(info, lineage=None) for slug, info in known.items()}
