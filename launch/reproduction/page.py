"""The last stage: tables of each run, the comparison with the published values, paper.html."""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from analysis import Study
from analysis.published import comparison, explanations, page, run_values, tables
from analysis.published.comparison import Compared, Readings
from analysis.published.data import Published
from engine.runs import storage
from engine.runs.reader import Result
from launch.common.text import say
from launch.pipeline import ModelState
from launch.reproduction import readings, runs, studies
from launch.reproduction.call import NOISE, OURS, PAPER, Call

NAME = "paper.html"
_PAPERS = "the paper and the files of its authors’ release"


def write(
    call: Call, states: Sequence[ModelState], published: Published, folder: str
) -> tuple[Path, list[Compared]]:
    """Compares what the runs hold with the published values, and writes the page.

    `states` says what became of each model, and `folder` where the values were read; "": they are
    the paper's.
    """
    infos, items = studies.infos(), studies.list_name(call)
    failures = {slug: "not among --models" for slug in infos}
    for spec, state in zip(call.models, states, strict=True):
        failures.pop(spec.slug, None)
        if state.failure:
            failures[spec.slug] = state.failure
    made: dict[str, Study] = {}
    values = {}
    for name, title in call.runs.items():
        say(f"tables: {title}")
        study = studies.study_of(call, name, published)
        if study is not None:
            made[name] = study
        values[name] = tables.own_of(title, study, infos, failures, _absent(call), items)
    singles = studies.single_changes(call, published)
    every = Readings(
        paper=values[PAPER], ours=values[OURS], noise=values.get(NOISE), singles=singles
    )
    compared = comparison.compare(published, every)
    run_values.replaced(published, values[PAPER]).write(call.root / "own")
    say("figures")
    with tempfile.TemporaryDirectory() as place:
        drawn = tables.draw(made[PAPER], Path(place), items) if PAPER in made else {}
    about = page.About(
        models=[(state.name, _progress(call, index, state)) for index, state in enumerate(states)],
        settings=readings.CONVENTIONS,
        facts=[*_facts(made.get(PAPER)), *noise_facts(call, made)],
        tried=untried(call, compared),
        published=f"the values in {folder}" if folder else _PAPERS,
    )
    path = call.root / NAME
    text = page.render(compared, about, drawn)
    storage.write_atomic(storage.path_of(path), text.encode())
    return path, compared


def untried(call: Call, compared: Sequence[Compared]) -> list[str]:
    """Of which models single conventions were not changed, with the reason.

    Whether their values are the published ones is a matter of this comparison: what was tried
    before may have been compared with other values.
    """
    same = explanations.alike(compared)
    scopes = {spec.nickname: readings.done(call, spec) for spec in call.rewards}
    without = [name for name, scope in scopes.items() if not scope or not scope.prompts]
    kinds = (
        (True, "Nothing had to be tried, because their own values are the published ones"),
        (False, "Not tried against these values (assay reproduce --readings=differing does it)"),
    )
    named = [(why, [n for n in without if (n in same) == met]) for met, why in kinds]
    return [f"{why}: {', '.join(names)}." for why, names in named if names]


def noise_facts(call: Call, made: Mapping[str, Study]) -> list[str]:
    """Of how many models and results the noise between dtypes is known, or how to measure it."""
    if PAPER not in made:
        return []
    second, results = call.config.second_dtype, _results(made[PAPER])
    if not second:
        other = "bfloat16" if "float32" in _dtypes(results.values()) else "float32"
        return [
            "No verdict is “within noise”: this call does not ask for the noise between dtypes. "
            f"--config.second_dtype={other} computes the paper’s conventions in {other} too."
        ]
    known = results.keys() & _results(made[NOISE]).keys() if NOISE in made else set()
    models = [len({key[-2] for key in keys}) for keys in (known, results)]
    return [
        f"Noise was measured against the same conventions in {second}: "
        f"{models[0]} of {models[1]} models, {len(known)} of {len(results)} results."
    ]


def _absent(call: Call) -> dict[tuple[str, ...], str]:
    """Table -> why it is absent: what compares with people needs their ranks."""
    if call.elo is not None and call.elo.humans is not None:
        return {}
    what = "no items were given" if call.elo is None else "the items have no human ranks"
    reason = f"{what}: give --elo, a CSV of the authors’ release"
    return {(name,): reason for name in ("humans_correlation", "humans_gap", "humans_kendall")}


def _progress(call: Call, index: int, state: ModelState) -> str:
    """A model's state for a reader: results that are complete, and why others are not."""
    spec, there = call.models[index], runs.complete(call)
    parts = []
    for stage in call.all_stages_of(spec):
        places = runs.wanted(call, spec, stage)
        done = sum(place in there for place in places)
        if done or (places and stage in call.stages):
            parts.append(f"{stage} {done} of {len(places)}")
    failed = readings.failures(call, spec).items()
    parts += [f"{name} could not be computed: {why}" for name, why in failed]
    if state.failure:
        parts.append(f"failed: {state.failure}")
    return "; ".join(parts) or "no results"


def _facts(study: Study | None) -> list[str]:
    if study is None:
        return ["No result is complete yet."]
    run = study.run
    every = [*run.results.values(), *run.items.values(), *run.logprobs.values()]
    folders = ", ".join(str(folder) for folder in run.folders)
    lines = [f"Run of the paper’s conventions: {folders}, dtype {', '.join(_dtypes(every))}."]
    matched = study.tables.get("matches", "frequency")
    if matched is not None and matched.height:
        lines.append(f"Word frequencies are from {matched['source'][0]}.")
    return lines


def _dtypes(results: Iterable[Result]) -> list[str]:
    return sorted({str(result.fingerprint.get("dtype")) for result in results})


def _results(study: Study) -> dict[tuple[str, ...], Result]:
    """The rewards of a run, by model and prompt, those of items by list as well."""
    return dict([*study.run.results.items(), *study.run.items.items()])
