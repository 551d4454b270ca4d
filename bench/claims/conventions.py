"""Claims about conventions: readings that change no more than computing a model again does."""

import dataclasses
import pathlib
import tempfile
from collections.abc import Iterator, Mapping

import numpy as np

import analysis
from analysis.chapters import conventions
from analysis.chapters import findings_by_reading as by_reading
from analysis.measures import readings
from analysis.run import Run
from analysis.statistics import Array
from analysis.study import Study, table
from bench.claims import Rate, rates_of
from configs import analyze
from engine.runs.readings import DEFAULT, NOISE_STEP, Entry
from launch.common import reporting
from tests.support import runs

_TOKENS = 1_500  # of a draw
_DRAWS = 99  # permutations and bootstrap samples of the chapters
_READINGS = (DEFAULT, f"{NOISE_STEP}64", "bos-none", "mode-text", "newlines-trim")
_SIZES = (1e-5, 0.3)  # of the errors, in standard deviations of a reward
_CHANGES, _ORDER = "conventions: a finding changes", "conventions: an order changes beyond noise"


def rates(run: Run, draws: int) -> Iterator[Rate]:
    """How often each sentence appears where every reading is the default one with other errors.

    Args:
      run: a run folder with real rewards.
      draws: draws of each null.
    """
    rng = np.random.default_rng(0)
    settings = settings_of()
    for size in _SIZES:
        for name, rewards in (("made-up", made_up), ("real", real)):
            drawn = (_claims(run, rewards(run, rng), size, settings, rng) for _ in range(draws))
            yield from rates_of(f"{name} rewards, errors of {size:g} sd in all", drawn)


def settings_of() -> analysis.AnalyzeSettings:
    """The defaults of the report, with few draws."""
    settings = reporting.settings_of(analyze.get_config())
    options = dataclasses.replace(settings.options, permutations=_DRAWS, bootstraps=_DRAWS)
    return dataclasses.replace(settings, options=options)


def made_up(run: Run, rng: np.random.Generator) -> tuple[list[str], dict[str, Array]]:
    """Some tokens of a run, and rewards of no meaning: the prompts share a part."""
    tokens, own = real(run, rng)
    common = rng.normal(size=len(tokens))
    return tokens, {prompt: common + rng.normal(size=len(tokens)) for prompt in own}


def real(run: Run, rng: np.random.Generator) -> tuple[list[str], dict[str, Array]]:
    """Some tokens of a run, and a model's rewards of them under each prompt, standardised."""
    model = rng.choice(run.vocabulary_models)
    prompts = [prompt for prompt in run.vocabulary_prompts if (model, prompt) in run.results]
    vocabulary = run.vocabulary(model).collect()
    some = np.sort(rng.choice(len(vocabulary), _TOKENS, replace=False))
    found = {}
    for prompt in prompts:
        reward = run.rewards(model, prompt)[1][some].astype(np.float64)
        found[prompt] = (reward - reward.mean()) / reward.std()
    return vocabulary["token"][some].to_list(), found


def _claims(
    run: Run,
    drawn: tuple[list[str], Mapping[str, Array]],
    size: float,
    settings: analysis.AnalyzeSettings,
    rng: np.random.Generator,
) -> dict[str, bool]:
    """Which sentences appear where each reading has its own errors of one size."""
    tokens, rewards = drawn
    with tempfile.TemporaryDirectory() as folder:
        every = {
            name: _written(pathlib.Path(folder) / name, tokens, rewards, size, rng)
            for name in _READINGS
        }
        entries = {
            name: Entry(settings={"reading": name}, noise=name.startswith(NOISE_STEP))
            for name in _READINGS
        }
        found = readings.Readings(index={"m": entries}, runs=every)
        study = Study(run=every[DEFAULT], infos={}, settings=settings)
        made = study.tables
        agreement = readings.agreement(found, settings.top)
        findings = by_reading.findings_table(study, found, agreement)
        summary = conventions.summary(agreement, findings, found)
        for name, frame in (("readings", agreement), ("findings", findings), ("summary", summary)):
            made.add(table(f"conventions_{name}", make=frame.clone))
        said = [finding.text for finding in conventions.findings(study)]
    return {
        _CHANGES: any(text.startswith("Of") and "findings" in text for text in said),
        _ORDER: any("changes an order" in text for text in said),
    }


def _written(
    folder: pathlib.Path,
    tokens: list[str],
    rewards: Mapping[str, Array],
    size: float,
    rng: np.random.Generator,
) -> Run:
    scores = {
        ("m", prompt): own + size * rng.normal(size=len(own)) for prompt, own in rewards.items()
    }
    return analysis.load(runs.write_run(folder, {"v": tokens}, {"m": "v"}, scores, len(tokens)))
