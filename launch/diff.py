"""Says what changed between two reward models, token by token, with a verdict.

Each side is a run of one model, or a checkpoint, which is swept first; a language model's run of
`assay logprobs` may stand for one. See configs/diff.py.
"""

import dataclasses
import functools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags
from absl.flags import FlagValues
from etils import epath
from jax.sharding import Mesh

import analysis
from analysis import Run, report
from analysis.chapters.changes import Changes
from analysis.measures.changes import Limits
from analysis.measures.two_models import AFTER, BEFORE, two_models
from analysis.report.folder import check_target
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.runs import storage
from engine.sweep.rewards import SweepSettings, sweep_vocabulary
from launch.common import command, findings, locking, reporting, scoring

_OTHER_STEP = 48  # candidates; no device's default
_OTHER_DTYPE = {"float32": "bfloat16", "bfloat16": "float32", "float16": "float32"}


def main(argv: Sequence[str]) -> int:
    """Runs the command with its arguments; returns the exit status."""
    failed: list[str] = []
    body = functools.partial(diff, failed)
    status = command.run("diff", argv, body, doc=__doc__, define=[define_flags], config="diff")
    return status or int(bool(failed))


def define_flags(given: FlagValues) -> None:
    """Defines --before, --after, their models, --noise, --report, --run and --prompt."""
    for side in (BEFORE, AFTER):
        what = "A run of one model, or a checkpoint."
        flags.DEFINE_string(side, None, what, flag_values=given)
        what = f"Slug of the model in --{side}, where it is a run of several."
        flags.DEFINE_string(f"{side}_model", "", what, flag_values=given)
    what = (
        "Other sweeps of one of the two models (dtype, step size, mesh), which measure the noise."
    )
    flags.DEFINE_list("noise", [], what, flag_values=given)
    flags.DEFINE_string("report", None, "Folder to write.", flag_values=given)
    what = "Folder for the rewards of checkpoints, new or to be continued."
    flags.DEFINE_string("run", "", what, flag_values=given)
    scoring.define_prompt(given)
    locking.define_wait(given)


def diff(failed: list[str], given: command.Given) -> str:
    """Flags -> rewards where they are missing -> one report; failed limits go into `failed`."""
    limits = Limits(**given.config.limits.to_dict())
    settings = reporting.settings_of(given.config.analyze)
    sides = {side: storage.path_of(command.paths(given, side)[0]) for side in (BEFORE, AFTER)}
    target = storage.path_of(command.paths(given, "report")[0])
    checkpoints = {side for side, path in sides.items() if _is_checkpoint(path)}
    if checkpoints and not given.run:
        raise AssayError("--run is missing; allowed: a folder for the rewards of the checkpoints")
    folders = [path for side, path in sides.items() if side not in checkpoints]
    check_target(target, [*folders, *([storage.path_of(given.run)] if given.run else [])])
    noise = [storage.path_of(path) for path in given.noise]
    if checkpoints:
        noise += _swept(given, sides, checkpoints)
    partial = settings.allow_incomplete
    runs = {side: analysis.load(path, allow_incomplete=partial) for side, path in sides.items()}
    named = tuple(name for name in given.config.compared.split(",") if name)
    models = {BEFORE: given.before_model, AFTER: given.after_model}
    run = two_models(runs[BEFORE], runs[AFTER], named, (models[BEFORE], models[AFTER]))
    readings = {_reading(run, side)["checkpoint_hash"]: side for side in runs}
    pairs = []
    for path in noise:
        other = analysis.load(path, allow_incomplete=partial)
        side, slug = _side_of(other, path, readings)
        asked = [prompt for model, prompt in other.results if model == slug]
        common = [prompt for prompt in run.prompts if prompt in asked]
        if not common:
            allowed = ", ".join(run.prompts)
            raise AssayError(f"--noise={path}: none of the prompts; allowed: {allowed}")
        pair = two_models(runs[side], other, common, (models[side], slug))
        dtypes = " and ".join(str(_reading(pair, each)["dtype"]) for each in (BEFORE, AFTER))
        pairs.append((f"noise: {side} in {dtypes} ({path.name})", pair))
    changes = Changes(limits=limits, noise=pairs)
    verdict = analysis.compute(run, {}, settings, [changes]).tables["changes_checks"]
    failed += verdict.filter(~verdict["holds"])["check"].to_list()
    chapters = (changes, *analysis.CHAPTERS)
    page = report.write_report(run, target, {}, settings, chapters=chapters)
    held = f"{len(failed)} of {verdict.height} limits do not hold"
    return f"{page}: {held if failed else f'all {verdict.height} limits hold'}"


def _is_checkpoint(path: epath.Path) -> bool:
    return storage.is_file(path / "model.json")


def _swept(
    given: command.Given, sides: dict[str, epath.Path], checkpoints: set[str]
) -> list[epath.Path]:
    """Sweeps the checkpoints among the sides, which become their runs.

    Returns:
      The run that measures the noise, if one is wanted.
    """
    noise = []
    for side in sorted(checkpoints, reverse=True):  # before, after
        path, sides[side] = sides[side], storage.path_of(given.run) / side
        model = Checkpoint.open(path, verify=scoring.verify(given.config))
        settings, mesh = scoring.settings(given.config, [model])
        _sweep(given, model, sides[side], settings, mesh)
        if given.config.measure_noise and side == (AFTER if AFTER in checkpoints else BEFORE):
            other = storage.path_of(given.run) / "noise"
            dtype = _OTHER_DTYPE[settings.dtype]
            otherwise = dataclasses.replace(settings, dtype=dtype, step_size=_OTHER_STEP)
            _sweep(given, model, other, otherwise, mesh)
            noise.append(other)
    return noise


def _sweep(
    given: command.Given,
    model: Checkpoint,
    run: epath.Path,
    settings: SweepSettings,
    mesh: Mesh,
) -> None:
    with locking.held(given, str(run), "diff"):
        sweep_vocabulary([model], scoring.prompts(given), str(run), settings, mesh, findings.show)


def _reading(run: Run, side: str) -> Mapping[str, Any]:  # Any: JSON of the manifest
    """What the rewards of one side depend on; imported ones do not say."""
    own = next(result for (model, _), result in run.results.items() if model == side)
    return {"checkpoint_hash": None, "dtype": "an unknown dtype", **own.fingerprint}


def _side_of(noise: Run, path: epath.Path, readings: Mapping[object, str]) -> tuple[str, str]:
    """The side whose model another run has swept too, and the model's slug there."""
    for (slug, _), result in noise.results.items():
        digest = result.fingerprint.get("checkpoint_hash")
        if digest is not None and digest in readings:
            return readings[digest], slug
    raise AssayError(
        f"--noise={path}: of neither model; allowed: another sweep of the checkpoint of --before "
        "or --after"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
