"""The analyses of a reproduction's runs, as the comparison with the published values takes them."""

import dataclasses

import polars as pl

from analysis import AnalyzeSettings, ModelInfo, Study
from analysis.published import comparison, rounding, singles, tables
from analysis.published.comparison import Readings
from analysis.published.data import Published
from analysis.published.exhibits import EXHIBITS
from analysis.published.run_values import RunValues
from analysis.published.verdicts import DIFFERS
from analysis.run import Run
from configs import analyze as defaults
from configs import known_models
from configs.known_models import ModelSpec
from launch.common import reporting
from launch.reproduction.call import NOISE, OURS, PAPER, Call

_TOP = 60  # tokens per end: more than are printed, because of ties
_DRAWS = 99  # of tests whose results are not compared: values alone are


def infos(*, lineage: bool = True) -> dict[str, ModelInfo]:
    """The models of the paper, reward models first; the paper does not test lineage."""
    every = reporting.metadata()
    known = {slug: every[slug] for slug in (*known_models.MODELS, *known_models.LANGUAGE_MODELS)}
    if lineage:
        return known
    return {slug: dataclasses.replace(info, lineage=None) for slug, info in known.items()}


def list_name(call: Call) -> str:
    """Name of the list of items that is compared; "" where the call names none."""
    return "" if call.elo is None else call.elo.name


def run_of(call: Call, name: str) -> Run | None:
    """The complete results of a run; None where it has none.

    In the paper's conventions the rewards of seven models are rounded as the paper's are: so there
    are ties, in τ-b and at the ends of a vocabulary.
    """
    run = tables.complete(call.run(name))
    return _rounded(run) if run is not None and name != OURS else run


def study_of(call: Call, name: str, published: Published) -> Study | None:
    """The tables of a run; None where it has no complete result."""
    run = run_of(call, name)
    if run is None:
        return None
    known = infos(lineage=name == OURS)
    return tables.study_of(run, known, _settings(call, paper=name != OURS), published)


def single_changes(call: Call, published: Published) -> list[RunValues]:
    """The tables of the paper's run with one convention changed, for each that was computed."""
    run = tables.complete(call.run(PAPER))
    changes = []
    for name, changed, tried in [] if run is None else singles.changes(run):
        study = _values_alone(call, _rounded(changed), published)
        values = tables.own_of(name, study, infos(), items=list_name(call))
        changes.append(dataclasses.replace(values, tried=tried))
    return changes


def differing(call: Call, spec: ModelSpec, published: Published, *, noise: bool) -> list[str]:
    """Prompts under which a published value of a model differs from that of the paper's run.

    Values over the vocabulary that all models share are left out, because they depend on which
    models have been scored so far. With `noise` the run in a second dtype measures the noise.
    """
    values = {}
    for name in (PAPER, NOISE) if noise else (PAPER,):
        run = run_of(call, name)
        if run is not None:
            study = _values_alone(call, singles.of_model(run, spec.slug), published)
            values[name] = tables.own_of(name, study, infos(), items=list_name(call))
    nothing = tables.own_of("", None, infos())
    both = Readings(paper=values.get(PAPER, nothing), ours=nothing, noise=values.get(NOISE))
    alone = ~pl.col("exhibit").is_in([exhibit.id for exhibit in EXHIBITS if exhibit.of_shared])
    numbers = published.numbers.filter(alone, model=spec.nickname)
    tokens = published.tokens.filter(alone, model=spec.nickname)

    def differs(prompt: str) -> bool:
        of_prompt = Published(
            models=published.models.clear(),
            numbers=numbers.filter(prompt=prompt),
            tokens=tokens.filter(prompt=prompt),
        )
        return any(one.counts[DIFFERS] for one in comparison.compare(of_prompt, both))

    return list(filter(differs, dict.fromkeys([*numbers["prompt"], *tokens["prompt"]])))


def _settings(call: Call, *, paper: bool, draws: int | None = None) -> AnalyzeSettings:
    """Settings of a run's analyses: the paper's, or the report's; `draws`: of tests."""
    config = defaults.get_config()
    config.top = _TOP
    options = config.options
    options.shared_ends = True
    for key in ("afinn", "frequency", "bing", "permutations", "bootstraps"):
        options[key] = call.config[key]
    if draws is not None:
        options.permutations = options.bootstraps = draws
    if paper:
        options.match_trim, options.frequency_join = "never", "paper"
        options.humans_matches, options.humans_in_median = 0, True
    return reporting.settings_of(config)


def _values_alone(call: Call, run: Run, published: Published) -> Study:
    """The tables of a run in the paper's conventions, without draws for tests."""
    settings = _settings(call, paper=True, draws=_DRAWS)
    return tables.study_of(run, infos(lineage=False), settings, published)


def _rounded(run: Run) -> Run:
    return rounding.rounded(run, {slug: info.nickname for slug, info in infos().items()})
