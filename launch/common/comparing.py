"""The sweeps that `assay diff` needs of checkpoints.

Everything is checked before the first sweep, and nothing is written by a check: sweeps of two
checkpoints and of their noise may take hours.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from etils import epath
from jax.sharding import Mesh

import analysis
from analysis.compare import Difference, check_limits, diff, noise_of
from analysis.measures.two_models import AFTER, BEFORE, Asked, Side, matching, side_of
from analysis.run import Run
from analysis.settings import AnalyzeSettings, Limits
from engine.checkpoint.card import REWARD, Checkpoint
from engine.display import counted
from engine.errors import AssayError
from engine.lists.files import ConversationList
from engine.runs import storage
from engine.runs.schema import PROBES, SCORES_DIR
from engine.settings import SweepSettings, setting
from engine.sources.resolve import is_model
from engine.sweep.outcomes import Outcome
from engine.sweep.reward_jobs import check_vocabulary, sweep_rewards
from engine.sweep.setup import model_entry
from launch.common import command, scoring, sources
from launch.common.config import keys_set
from launch.common.inputs import check_rendering
from launch.common.text import say

_OTHER_STEPS = (48, 40)  # candidates; no device's defaults
_OTHER_DTYPE = {"float32": "bfloat16", "bfloat16": "float32", "float16": "float32"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiffSettings:
    """What `assay diff` takes beside the settings of a sweep."""

    compared: str = setting("Prompts to compare; empty: all, which both sides must have.", "")
    noise: bool = setting(
        "For the noise, sweep --after (or --before) again in another dtype and step size.", True
    )
    limits: Limits = setting("Limits of the verdict.")
    analyze: AnalyzeSettings = setting("Settings of the report", like="assay analyze")


class NeededSweep(NamedTuple):
    """A sweep that a comparison needs: the first arguments of `sweep_rewards`."""

    models: Sequence[Checkpoint]
    prompts: Mapping[str, str]
    run: str
    settings: SweepSettings
    mesh: Mesh

    def side(self, name: str) -> Side:
        """What the sweep is going to write, as a side of a comparison."""
        [model] = self.models
        ids = np.array(model.token_ids, np.uint32)
        prompts = {
            prompt: Asked(
                text=self.prompts[prompt], kind=SCORES_DIR, identity=job.identity, ids=ids
            )
            for (_, prompt), job in check_vocabulary(*self).items()
        }
        card = model.card
        return Side(
            name=name,
            slug=card.slug,
            record=model_entry(card),
            tokens=model.tokens,
            prompts=prompts,
        )

    def again(self, prompts: Sequence[str], run: epath.Path) -> "NeededSweep":
        """Another sweep of the model: in another dtype, and in steps of another size."""
        settings = dataclasses.replace(
            self.settings,
            dtype=_OTHER_DTYPE[self.settings.dtype],
            step_size=next(step for step in _OTHER_STEPS if step != self.settings.step_size),
            lens=False,
        )
        texts = {prompt: self.prompts[prompt] for prompt in prompts}
        sweep = self._replace(prompts=texts, run=str(run), settings=settings)
        check_vocabulary(*sweep)
        return sweep


def compared(
    given: command.Given,
    paths: Mapping[str, epath.Path],
    target: epath.Path,
    lists: Sequence[ConversationList],
    limits: Limits,
    settings: AnalyzeSettings,
) -> Difference:
    """Checks everything that `assay diff` needs, sweeps what is a checkpoint, writes the report.

    Args:
      given: the parsed flags.
      paths: of "before" and "after", each a run or a checkpoint.
      target: folder of the report.
      lists: pairs that both score, and their edited replies, where there are any.
      limits: what the two may differ by.
      settings: of the report.

    Raises:
      AssayError: what cannot be compared or swept, or a setting that would be ignored.
    """
    compared = [name for name in given.config.compared.split(",") if name]
    sweeps = _sweeps(given, paths, compared)
    load = functools.partial(analysis.load, allow_incomplete=settings.allow_incomplete)
    runs = {of: load(path) for of, path in paths.items() if of not in sweeps}
    sides = {
        of: sweeps[of].side(f"--{of}")
        if of in sweeps
        else side_of(runs[of], given[f"{of}_model"].value, f"--{of}")
        for of in paths
    }
    for listed in lists:
        check_rendering([model for sweep in sweeps.values() for model in sweep.models], listed)
        for of, run in runs.items():
            _check_judged(run, sides[of], listed)
    if not sweeps:  # said of what was found to be runs
        _refuse_settings_of_sweeps(given)
    prompts = matching(sides[BEFORE], sides[AFTER], compared)
    check_limits(limits, sides, prompts)
    noise = [load(path) for path in given.noise]
    for path, run in zip(given.noise, noise, strict=True):
        noise_of(run, sides, runs, prompts, f"--noise={path}")
    again: NeededSweep | None = None
    line = f"sweeping {' and '.join(sweeps)} under {counted(len(prompts), 'prompt')}"
    if sweeps and given.config.noise:
        again = [*sweeps.values()][-1].again(prompts, storage.path_of(given.run) / "noise")
        line += f", for the noise {[*sweeps][-1]} also in {again.settings.dtype}"
    if sweeps:
        say(line)
        _sweep(given, [*sweeps.values()], again, lists)
    runs |= {of: load(sweep.run) for of, sweep in sweeps.items()}
    if again:
        measured = load(again.run)
        try:
            noise_of(measured, sides, runs, prompts, f"{again.run}")
            noise.append(measured)
        except AssayError as error:  # as of a model whose rewards no dtype changes
            say(f"note: no noise was measured: {error}")
    return diff(
        runs[BEFORE],
        runs[AFTER],
        target,
        models=(sides[BEFORE].slug, sides[AFTER].slug),
        prompts=prompts,
        noise=noise,
        pairs=lists[0].name if lists else "",
        probes=len(lists) > 1,
        limits=limits,
        settings=settings,
    )


def _sweeps(
    given: command.Given, paths: Mapping[str, epath.Path], compared: Sequence[str]
) -> dict[str, NeededSweep]:
    """The sweeps of the sides that are checkpoints; `compared` are the prompts to compare."""
    swept = {of: str(path) for of, path in paths.items() if is_model(str(path))}
    if not swept:
        return {}
    if storage.is_file(storage.path_of(given.run)):
        raise AssayError(f"--run={given.run}: a file; allowed: a folder")
    opened = sources.opened([*swept.values()], given.config, given.config.verify)
    prompts, sweeps = scoring.prompts(given), dict[str, NeededSweep]()
    if compared and set(compared) <= set(prompts):
        prompts = {name: prompts[name] for name in compared}
    for of, model in zip(swept, opened, strict=True):
        model.expect(REWARD)
        if given[f"{of}_model"].value not in ("", model.card.slug):
            raise AssayError(
                f"--{of}_model={given[f'{of}_model'].value!r}; allowed: {model.card.slug}"
            )
        settings, mesh = scoring.settings(SweepSettings, given.config, [model])
        folder = storage.path_of(given.run) / of
        sweeps[of] = NeededSweep([model], prompts, str(folder), settings, mesh)
    return sweeps


def _sweep(
    given: command.Given,
    sweeps: Sequence[NeededSweep],
    again: NeededSweep | None,
    lists: Sequence[ConversationList],
) -> None:
    """Computes what is missing of the rewards, those of the two sides first.

    `lists` are of the pairs, and of their edited replies.
    """
    outcomes: list[Outcome] = []  # of the lists
    for sweep in [*sweeps, again] if again else sweeps:
        with command.run_lock("diff", sweep.run, wait=given.wait):
            sweep_rewards(*sweep, scoring.show_extremes)
            for listed in lists if sweep is not again else ():
                plain = dataclasses.replace(sweep.settings, lens=False)
                arguments = (sweep.models, None, sweep.run, plain, sweep.mesh)
                sweep_rewards(*arguments, on_outcomes=outcomes.extend, items=listed[:3])
    scoring.show_first_rows(outcomes)


def _check_judged(run: Run, side: Side, listed: ConversationList) -> None:
    """Raises AssayError for a run in which the model has not scored the same pairs, or edits."""
    edited, key = listed.name.endswith(PROBES), (listed.name.removesuffix(PROBES), side.slug)
    is_scored = key in (run.probes if edited else run.conversations)
    if not is_scored or not run.conversation_list(*key, probes=edited).equals(listed.table):
        has = "scored other rows under the name" if is_scored else "has no scores of"
        raise AssayError(
            f"{side.name}: {side.slug} {has} {listed.name!r}; allowed: a run into which `assay "
            f"score --items=<the same file>{' --probes' * edited}` wrote, or a checkpoint"
        )


def _refuse_settings_of_sweeps(given: command.Given) -> None:
    """Refuses settings that only sweeps use if both sides are runs."""
    own = {field.name for field in dataclasses.fields(DiffSettings)}
    ignored = [f"--config.{key}" for key in keys_set(given) if key.split(".")[0] not in own]
    ignored = ["--prompt"] * bool(given.prompt) + ignored
    if ignored:
        raise AssayError(
            f"{ignored[0]}: both sides are runs, so nothing is swept; remove it "
            "(--config.compared=<ids> chooses among their prompts)"
        )
