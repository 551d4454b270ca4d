"""What `assay diff` compares: runs, and checkpoints that are swept first.

Everything is checked before the first sweep, and nothing is written by a check: sweeps of two
checkpoints and of their noise may take hours.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from etils import epath
from jax.sharding import Mesh
from ml_collections import config_flags

import analysis
from analysis import Run
from analysis.measures.two_models import (
    AFTER,
    BEFORE,
    Asked,
    Side,
    matching,
    scored,
    side_of,
    two_models,
)
from configs import sweep as sweep_config
from engine.checkpoint.card import REWARD, Checkpoint
from engine.display import counted
from engine.errors import AssayError
from engine.lists.files import ConversationList
from engine.runs import storage
from engine.runs.identity import Identity
from engine.runs.schema import SCORES_DIR
from engine.settings import SweepSettings, check_choice
from engine.sweep.outcomes import Outcome
from engine.sweep.reward_jobs import check_vocabulary, sweep_rewards
from engine.sweep.setup import model_entry
from launch.common import command, locking, scoring, sources
from launch.common.inputs import check_rendering

_OTHER_STEPS = (48, 40)  # candidates; no device's defaults
_OTHER_DTYPE = {"float32": "bfloat16", "bfloat16": "float32", "float16": "float32"}


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """Where the numbers of one model come from."""

    side: Side  # what is known of them
    of: str  # "before" or "after"; of noise, the side whose model it is
    folder: epath.Path
    run: Run | None = None  # the run; None where a sweep writes it first
    sweep: NeededSweep | None = None  # that sweep, or None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """A comparison that has been checked."""

    sides: Mapping[str, Origin]  # "before" and "after"
    prompts: Sequence[str]  # ids of those that are compared
    # Other sweeps of one of the two models, and the prompts that they share.
    noise: Sequence[tuple[Origin, Sequence[str]]]
    listed: ConversationList | None  # pairs that both judge
    partial: bool  # whether runs may be incomplete

    @property
    def cost(self) -> str:
        """What the sweeps are, and what the noise adds to them; "" where nothing is swept."""
        swept = [of for of, origin in self.sides.items() if origin.sweep is not None]
        if not swept:
            return ""
        said = f"sweeping {' and '.join(swept)} under {counted(len(self.prompts), 'prompt')}"
        said += f", and scoring {self.listed.size_in_words}" if self.listed else ""
        for origin, prompts in self.noise:
            if origin.sweep is not None:
                said += (
                    f"; then, to measure the noise, {origin.of} once more, in "
                    f"{origin.sweep.settings.dtype}, under {counted(len(prompts), 'prompt')}: "
                    f"{origin.of} takes "
                    f"{1 + len(prompts) / len(self.prompts):.3g} times as long by it "
                    "(--config.noise=off: no such sweep; =one: under the first prompt)"
                )
        return said

    def sweep(self, given: command.Given) -> None:
        """Computes what is missing of the rewards, those of the two sides first."""
        outcomes: list[Outcome] = []  # of the pairs
        for origin in [*self.sides.values(), *(origin for origin, _ in self.noise)]:
            if origin.sweep is None:
                continue
            models, _, run, settings, mesh = origin.sweep
            with locking.run_lock(given, run, "diff"):
                sweep_rewards(*origin.sweep, scoring.show_extremes)
                if self.listed is not None and origin in self.sides.values():
                    settings = dataclasses.replace(settings, lens=False)
                    where = (models, None, run, settings, mesh)
                    sweep_rewards(*where, on_outcomes=outcomes.extend, items=self.listed[:3])
        scoring.show_first_rows(outcomes)

    def tokens_under(self, prompt: str) -> int:
        """How many tokens both sides have under a prompt."""
        sides = [origin.side for origin in self.sides.values()]
        first, second = (side.tokens for side in sides)
        return sum(i in first and i in second for i in sides[0].prompts[prompt].ids.tolist())

    def compared(self) -> tuple[Run, list[tuple[str, Run]]]:
        """The two models as one run; each pair of sweeps that measures noise, with its name."""
        both, pairs = self._pair(self.sides[BEFORE], self.sides[AFTER], self.prompts), []
        for origin, prompts in self.noise:
            pair = self._pair(self.sides[origin.of], origin, prompts)
            prompt = next(iter(pair.prompts))
            dtypes = [
                pair.results[of, prompt].identity.dtype or "an unknown dtype"
                for of in (BEFORE, AFTER)
            ]
            name = f"noise: {origin.of} in {' and '.join(dtypes)} ({origin.folder.name})"
            pairs.append((name, pair))
        return both, pairs

    def _pair(self, first: Origin, second: Origin, prompts: Sequence[str]) -> Run:
        """The models of two origins as one run."""
        runs = [
            origin.run or analysis.load(origin.folder, allow_incomplete=self.partial)
            for origin in (first, second)
        ]
        return two_models(runs[0], runs[1], prompts, (first.side.slug, second.side.slug))


def planned(
    given: command.Given,
    paths: Mapping[str, epath.Path],
    partial: bool,
    listed: ConversationList | None,
) -> Comparison:
    """Opens and checks everything that `assay diff` needs of "before" and "after".

    Each is a run, which may be incomplete if `partial`, or a checkpoint. `listed` are pairs that
    both judge.

    Raises:
      AssayError: what cannot be compared or swept, or a setting that would be ignored.
    """
    check_choice("noise", given.config.noise, ("all", "one", "off"))
    swept = [of for of, path in paths.items() if sources.is_model(str(path))]
    if swept and storage.is_file(storage.path_of(given.run)):
        raise AssayError(f"--run={given.run}: a file; allowed: a folder")
    named = [name for name in given.config.compared.split(",") if name]
    sides, verify = {}, scoring.verify_setting(given.config)
    models = sources.opened([str(paths[of]) for of in swept], given.config, verify) if swept else []
    for of, path in paths.items():
        if of in swept:
            sides[of] = _from_checkpoint(given, of, models[swept.index(of)], named)
            if listed is not None and (sweep := sides[of].sweep) is not None:
                check_rendering(sweep.models, listed)
        else:
            run = analysis.load(path, allow_incomplete=partial)
            side = side_of(run, given[f"{of}_model"].value, f"--{of}")
            sides[of] = Origin(side=side, of=of, folder=path, run=run)
            if listed is not None:
                _check_judged(run, side, listed)
    if not swept:  # said of what was found to be runs
        _refuse_settings_of_sweeps(given)
    prompts = matching(sides[BEFORE].side, sides[AFTER].side, named)
    noise = [_given_noise(path, sides, prompts, partial) for path in given.noise]
    if swept and given.config.noise != "off":
        side = sides[AFTER if AFTER in swept else BEFORE]
        under = prompts if given.config.noise == "all" else prompts[:1]
        noise.append((_swept_again(given, side, under), under))
    return Comparison(sides=sides, prompts=prompts, noise=noise, listed=listed, partial=partial)


def _check_judged(run: Run, side: Side, listed: ConversationList) -> None:
    """Raises AssayError for a run in which the model has not scored the same pairs."""
    result = run.conversations.get((listed.name, side.slug))
    if result is None or not run.conversation_list(listed.name, side.slug).equals(listed.table):
        has = "has no scores of" if result is None else "scored other rows under the name"
        raise AssayError(
            f"{side.name}: {side.slug} {has} {listed.name!r}; allowed: a run into which `assay "
            "score --items=<the same file>` wrote, or a checkpoint"
        )


def _from_checkpoint(
    given: command.Given, of: str, model: Checkpoint, named: Sequence[str]
) -> Origin:
    model.expect(REWARD)
    chosen, slug = given[f"{of}_model"].value, model.card.slug
    if chosen not in ("", slug):
        raise AssayError(f"--{of}_model={chosen!r}; allowed: {slug}")
    prompts = scoring.prompts(given)
    if named and set(named) <= set(prompts):
        prompts = {name: prompts[name] for name in named}
    folder = storage.path_of(given.run) / of
    where = scoring.settings(given.config, [model])
    sweep = NeededSweep([model], prompts, str(folder), *where)
    return Origin(side=sweep.side(f"--{of}"), of=of, folder=folder, sweep=sweep)


def _swept_again(given: command.Given, origin: Origin, prompts: Sequence[str]) -> Origin:
    """Another sweep of a side that is swept: another dtype, and steps of another size."""
    assert origin.sweep is not None
    folder, settings = storage.path_of(given.run) / "noise", origin.sweep.settings
    settings = dataclasses.replace(
        settings,
        dtype=_OTHER_DTYPE[settings.dtype],
        step_size=next(step for step in _OTHER_STEPS if step != settings.step_size),
        lens=False,
    )
    texts = {prompt: origin.sweep.prompts[prompt] for prompt in prompts}
    sweep = origin.sweep._replace(prompts=texts, run=str(folder), settings=settings)
    return Origin(side=sweep.side("the noise"), of=origin.of, folder=folder, sweep=sweep)


def _given_noise(
    path: str, sides: Mapping[str, Origin], prompts: Sequence[str], partial: bool
) -> tuple[Origin, list[str]]:
    """A run of `--noise`, and the prompts under which no side has the same numbers."""
    folder, name = storage.path_of(path), f"--noise={path}"
    run = analysis.load(folder, allow_incomplete=partial)
    owners, slug = _owners_of(run, name, sides)
    side = side_of(run, slug, name)
    common = [prompt for prompt in prompts if prompt in side.prompts]
    if not common:
        raise AssayError(f"{name}: none of the prompts; allowed: {', '.join(prompts)}")
    noise = Origin(side=side, of=owners[0], folder=folder, run=run)
    matching(sides[owners[0]].side, side, common)
    equal = {prompt: [of for of in owners if _same(sides[of], noise, prompt)] for prompt in common}
    if all(equal.values()):
        raise AssayError(
            f"{name}: has the same rewards or log-probabilities as --{equal[common[0]][0]}; "
            "allowed: another sweep of that checkpoint, in another dtype or step size, or on "
            "another mesh"
        )
    return noise, [prompt for prompt in common if not equal[prompt]]


def _same(origin: Origin, noise: Origin, prompt: str) -> bool:
    """Whether a run has the numbers of a side under a prompt."""
    if origin.run is None or noise.run is None:  # it is still to be swept
        return False
    slugs = origin.side.slug, noise.side.slug
    pair = two_models(origin.run, noise.run, [prompt], slugs)
    first, second = (pair.rewards(of, prompt)[1] for of in (BEFORE, AFTER))
    return np.array_equal(first, second)


def _owners_of(noise: Run, name: str, sides: Mapping[str, Origin]) -> tuple[list[str], str]:
    """The sides that another run has scored again, and the model's slug there."""
    hashes = {
        of: _identities(known.identity for known in origin.side.prompts.values())
        for of, origin in sides.items()
    }
    for slug in dict.fromkeys(model for model, _ in (*noise.results, *noise.logprobs)):
        theirs = _identities(result.identity for result in scored(noise, slug).values())
        owners = [of for of in (AFTER, BEFORE) if theirs & hashes[of]]
        if owners:
            return owners, slug
    raise AssayError(
        f"{name}: of neither model; allowed: another sweep of the checkpoint of --before or "
        "--after, in its mode and pooling"
    )


def _identities(identities: Iterable[Identity]) -> set[tuple[str, ...]]:
    """Checkpoint, mode and pooling of identities; of imported rewards none is known."""
    return {(i.checkpoint_hash, i.mode, i.pooling) for i in identities if not i.imported}


def _refuse_settings_of_sweeps(given: command.Given) -> None:
    """Refuses what only a sweep heeds, where both sides are runs."""
    defaults = sweep_config.get_config()
    set_here = [key.split(".")[0] for key in config_flags.get_override_values(given["config"])]
    if given.config.prompts != defaults.prompts:
        set_here.insert(0, "prompts")
    ignored = [f"--config.{key}" for key in set_here if key in defaults]
    ignored = ["--prompt"] * bool(given.prompt) + ignored
    if ignored:
        raise AssayError(
            f"{ignored[0]}: both sides are runs, so nothing is swept; allowed: "
            "--config.compared=<ids> chooses among their prompts"
        )
