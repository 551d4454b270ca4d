"""The last stage: tables of each reading, the comparison with the published values, paper.html."""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from analysis import Study
from analysis.published import comparison, data, explanations, page, run_values, tables
from analysis.published.data import Published
from analysis.published.records import Compared, Readings
from engine.runs import storage
from engine.runs.reader import Result
from launch.reproduction import results, studies, trials
from launch.reproduction.asked import Asked
from launch.reproduction.readings import CONVENTIONS, NOISE, OURS, PAPER, Reading
from launch.reproduction.work import State

NAME = "paper.html"


def write(
    asked: Asked,
    readings: Sequence[Reading],
    states: Sequence[State],
    published: Published,
    compared_with: str,
) -> tuple[Path, list[Compared]]:
    """Compares what the runs hold with the published values, and writes the page.

    Args:
      asked: the call.
      readings: of its runs.
      states: what became of each model.
      published: the values to compare with.
      compared_with: what they are, for the reader.

    Returns:
      Path of the page, and the comparison.
    """
    infos, failures = studies.infos(), _failures(asked, states)
    absent, items = _absent(asked), studies.list_name(asked)
    made: dict[str, Study] = {}
    found = {}
    for reading in readings:
        print(f"tables: {reading.name}", file=sys.stderr, flush=True)
        study = studies.study_of(asked, reading, published)
        if study is not None:
            made[reading.id] = study
        found[reading.id] = tables.own_of(reading.name, study, infos, failures, absent, items)
    both = Readings(
        paper=found[PAPER],
        ours=found[OURS],
        noise=found.get(NOISE),
        singles=studies.single_changes(asked, published, items),
    )
    compared = comparison.compare(published, both)
    run_values.replaced(published, found[PAPER]).write(asked.root / "own")
    print("figures", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        drawn = tables.draw(made[PAPER], Path(folder), items) if PAPER in made else {}
    about = page.About(
        models=[(s.spec.nickname, _said(asked, s, readings)) for s in states],
        settings=CONVENTIONS,
        facts=[*_facts(made.get(PAPER)), *_of_noise(asked, made)],
        tried=_tried(asked, compared),
        published=compared_with,
    )
    path = asked.root / NAME
    text = page.render(compared, about, drawn)
    storage.write_atomic(storage.path_of(path), text.encode())
    return path, compared


def _failures(asked: Asked, states: Sequence[State]) -> dict[str, str]:
    """Slug -> why a model has no results, where a reader would ask."""
    reasons = {slug: "not among --models" for slug in studies.infos()}
    for state in states:
        reasons.pop(state.spec.slug, None)
        if state.failure:
            reasons[state.spec.slug] = state.failure
    return reasons


def _absent(asked: Asked) -> dict[tuple[str, ...], str]:
    """Table -> why it is absent: what compares with people needs their ranks."""
    if asked.elo is not None and asked.elo.humans is not None:
        return {}
    what = "no items were given" if asked.elo is None else "the items have no human ranks"
    reason = f"{what}: give --elo, a CSV of the authors' release"
    return {(name,): reason for name in ("humans_correlation", "humans_gap", "humans_kendall")}


def _said(asked: Asked, state: State, readings: Sequence[Reading]) -> str:
    """A model's state for a reader: results that are complete, and why others are not."""
    there = results.complete(asked)
    parts = []
    for stage in asked.all_stages_of(state.spec):
        places = results.wanted(asked, state.spec, stage, readings)
        done = sum(place in there for place in places)
        if done or (places and asked.runs(stage)):
            parts.append(f"{stage} {done} of {len(places)}")
    failed = trials.failures(asked, state.spec).items()
    parts += [f"{name} could not be computed: {why}" for name, why in failed]
    if state.failure:
        parts.append(f"failed: {state.failure}")
    return "; ".join(parts) or "no results"


def _tried(asked: Asked, compared: Sequence[Compared]) -> list[str]:
    """Of which models single conventions were not changed, with the reason.

    Whether their values are the published ones is asked of this comparison: what was tried before
    may have been judged by others.
    """
    same = explanations.alike(compared)
    scopes = {spec.nickname: trials.done(asked, spec) for spec in asked.rewards}
    without = [name for name, scope in scopes.items() if not scope or not scope.prompts]
    kinds = {
        "Nothing had to be tried, because their own values are the published ones": [
            name for name in without if name in same
        ],
        "Not tried against these values (assay reproduce --readings=differing does it)": [
            name for name in without if name not in same
        ],
    }
    return [f"{said}: {', '.join(names)}." for said, names in kinds.items() if names]


def _facts(study: Study | None) -> list[str]:
    if study is None:
        return ["No result is complete yet."]
    run = study.run
    every = [*run.results.values(), *run.items.values(), *run.logprobs.values()]
    dtypes = sorted({str(result.fingerprint.get("dtype")) for result in every})
    folders = ", ".join(str(folder) for folder in run.folders)
    lines = [f"Run of the paper’s conventions: {folders}, dtype {', '.join(dtypes)}."]
    matched = study.tables.get("matches", "frequency")
    if matched is not None and matched.height:
        lines.append(f"Word frequencies are from {matched['source'][0]}.")
    return lines


def _of_noise(asked: Asked, made: Mapping[str, Study]) -> list[str]:
    """Of how many models and results the noise between two dtypes is known, and how it is asked."""
    if PAPER not in made:
        return []
    second, own = asked.config.second_dtype, _results(made[PAPER])
    found = own.keys() & _results(made[NOISE]).keys() if NOISE in made else set()
    same = [spec.nickname for spec in asked.rewards if second and results.has_no_noise(asked, spec)]
    none = [f"No noise for {', '.join(same)}: the run is in {second} already."] if same else []
    if found:
        models = [len({key[-2] for key in keys}) for keys in (found, own)]
        return [
            *none,
            f"Noise was measured against the same conventions in {second}: "
            f"{models[0]} of {models[1]} models, {len(found)} of {len(own)} results.",
        ]
    if second and len(same) == len(asked.rewards) > 0:
        return none
    if second:
        return [
            *none,
            f"No verdict is “within noise”: none of {len(own)} results is there in {second} too, "
            "which --config.second_dtype asks for.",
        ]
    dtypes = {str(result.fingerprint.get("dtype")) for result in own.values()}
    other = "bfloat16" if "float32" in dtypes else "float32"
    return [
        "No verdict is “within noise”: this call does not ask for the noise between dtypes. "
        f"--config.second_dtype={other} computes the paper’s conventions in {other} too."
    ]


def _results(study: Study) -> dict[tuple[str, ...], Result]:
    """The rewards of a run, by model and prompt, those of items by list as well."""
    return dict([*study.run.results.items(), *study.run.items.items()])


def read_published(folder: str) -> tuple[Published, str]:
    """What to compare with: the paper, or the folder `own` of another reproduction.

    Raises:
      AssayError: the folder does not hold such values.
    """
    if not folder:
        return data.read(), "the paper and the files of its authors’ release"
    published = data.read(Path(folder))
    own.check_names(published, f"--published={folder}")
    return published, f"the values in {folder}"
