"""Rewards of every token of the vocabulary, and of lists of replies, into a run folder."""

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import polars as pl
from jax.sharding import Mesh
from tqdm import tqdm

from engine import mesh as meshes
from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import restore, sharing_groups
from engine.errors import AssayError
from engine.models.heads import OBJECTIVES
from engine.planning.admission import Place
from engine.runs import schema
from engine.runs.manifest import Manifest, items_hash
from engine.runs.provenance import ids_hash
from engine.scoring.reward_passes import RewardScorer, dtype_named
from engine.scoring.rows import (
    AUTO,
    LAST,
    MODES,
    POOLINGS,
    Pooling,
    ReplyRows,
    RewardRows,
    TokenRows,
    TokenTextRows,
    check_choice,
)
from engine.sweep import loop, setup, steps
from engine.sweep.outcomes import Ended
from engine.sweep.results import Result, check_present

# Puts models that share a pass on the devices, for steps of a size.
Load = Callable[[Sequence[Checkpoint], int], RewardScorer]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepSettings(loop.Settings):
    """How rewards are computed. The settings here are part of a result's fingerprint."""

    mode: str  # how a reply becomes token ids: `ids`, `text` or `auto` (`mode_of`)
    pooling: str  # where the reward is read: a kind of `Pooling`, or `auto` (`pooling_of`)
    objectives: str  # columns beside the reward: one of `heads.OBJECTIVES`
    tokens: int | None = None  # of a vocabulary, drawn at random with `seed`; None: all
    lens: bool = False  # whether vocabularies also get the reward after every layer

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("mode", self.mode, (AUTO, *MODES))
        check_choice("pooling", self.pooling, (AUTO, *POOLINGS))
        check_choice("objectives", self.objectives, OBJECTIVES)
        if self.tokens is not None and (type(self.tokens) is not int or self.tokens < 1):
            raise AssayError(f"tokens={self.tokens!r}; allowed: integers >= 1")
        if type(self.lens) is not bool:
            raise AssayError(f"lens={self.lens!r}; allowed: True, False")


def sweep_vocabulary(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    settings: SweepSettings,
    mesh: Mesh,
    finished: Callable[[str, str, pl.DataFrame], object] = lambda *result: None,
    ended: Ended = lambda outcomes: None,
    load: Load | None = None,
) -> int:
    """Scores every token under every prompt and model into `run/scores`.

    Args:
      checkpoints: models; those on one decoder share a pass.
      prompts: prompt id -> text.
      run: run folder, new or to be continued.
      settings: mode `ids` puts each token id between the template's ids; `text` decodes it,
        renders the conversation and tokenises the whole text, as the paper did; `auto` is `ids`,
        or `text` for a model whose template cannot be cut around a reply.
      mesh: from `engine.mesh.build_mesh`.
      finished: called as soon as a model has all rewards under a prompt, with its slug, the
        prompt's id and a frame of token_id, token and reward.
      ended: called at the end with what became of each model.
      load: puts models on the devices; by default each call of this function restores them.

    Returns:
      The number of rewards that were computed; 0 if the run was complete.

    Raises:
      AssayError: bad input, a result begun under another fingerprint, a reward that is not finite
        (with its token ids), a self-check beyond tolerance.
      SomeFailed: some models failed; the others are complete.
    """
    manifest, results, refused, place = _planned(checkpoints, prompts, run, settings, mesh)
    if settings.mode == AUTO:
        _say_text(results)
    steps.advise(results, settings.part_size, place.data)
    vocabularies = setup.missing_vocabularies(manifest, checkpoints)
    setup.begin(manifest, vocabularies, results, settings.part_size)

    def tell(result: Result, numbers: np.ndarray) -> None:
        columns = {**result.rows.keys(0, len(result.rows)), "reward": numbers[0]}
        scores = pl.DataFrame(columns, schema.SCORE_COLUMNS)
        tokens = result.checkpoint.tokens
        own = pl.Series([tokens[i] for i in scores["token_id"]], dtype=pl.String)
        finished(result.model, result.prompt, scores.with_columns(token=own))

    load = load or functools.partial(_load, settings, mesh, refused)
    return loop.run(manifest, results, load, settings, mesh, tell, ended)


def _say_text(results: Sequence[Result]) -> None:
    """Says on standard error which models are scored in mode `text` for want of a cut."""
    texts = {r.model for r in results if isinstance(r.rows, TokenTextRows)}
    for slug in sorted(texts) if processes.writes() else ():
        tqdm.write(
            f"note: {slug}: tokens are scored as texts (--config.mode=text), since its chat "
            "template cannot be cut around a reply",
            file=sys.stderr,
        )


def check_vocabulary(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    settings: SweepSettings,
    mesh: Mesh,
) -> dict[tuple[str, str], Mapping[str, object]]:
    """Refuses what `sweep_vocabulary` would refuse before its first pass; writes nothing.

    Args:
      checkpoints: as there, and so are the others.
      prompts: prompt id -> text.
      run: run folder, new or to be continued.
      settings: of the sweep.
      mesh: from `engine.mesh.build_mesh`.

    Returns:
      (slug, prompt id) -> the fingerprint that the result is going to have, or has.

    Raises:
      AssayError: bad input, a run that cannot be continued so, a model that does not fit.
    """
    manifest, results, _, _ = _planned(checkpoints, prompts, run, settings, mesh)
    check_present(manifest, results, settings.part_size)
    return {(r.model, r.prompt): manifest.result(r.path)["fingerprint"] for r in results}


def sweep_replies(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    name: str,
    replies: Sequence[str],
    run: str,
    settings: SweepSettings,
    mesh: Mesh,
    ended: Ended = lambda outcomes: None,
    load: Load | None = None,
) -> int:
    """Scores the list `replies` of any lengths into `run/items/<name>`; see `sweep_vocabulary`."""
    if not replies:
        raise AssayError(f"item list {name!r}: empty; allowed: at least one reply")
    if settings.lens:
        raise AssayError("lens=True: only vocabularies have a lens; allowed for lists: False")
    schema.check_names([name])
    manifest = setup.open_run(run, checkpoints, prompts, settings, mesh)
    setup.admit(manifest, "lists", name, {"rows": len(replies), "items_hash": items_hash(replies)})
    _check(checkpoints, settings, mesh)
    results, place = [], Place.of(mesh)
    path = functools.partial(schema.items_path, name)
    for group in sharing_groups(checkpoints):
        mode = mode_of(group[0], prompts.values(), settings.mode)
        pooling = pooling_of(group[0], settings.pooling)
        every = {
            prompt: reply_rows(group[0], text, replies, mode, pooling)
            for prompt, text in prompts.items()
        }
        choices = _choices(mode, pooling)
        results += _admit(manifest, group, every, path, choices, settings, mesh, place)
    refused = steps.refusals(results, settings, place)
    steps.advise(results, settings.part_size, place.data)
    setup.begin(manifest, {}, results, settings.part_size)
    load = load or functools.partial(_load, settings, mesh, refused)
    return loop.run(manifest, results, load, settings, mesh, ended=ended)


def chosen_tokens(ids: Sequence[int], count: int | None, seed: int) -> Sequence[int] | None:
    """A fixed random subset of a vocabulary's ids, ascending; None where that is all of them.

    Args:
      ids: of the vocabulary, ascending.
      count: of the subset; None for all.
      seed: of the draw.
    """
    if count is None or count >= len(ids):
        return None
    drawn = np.random.default_rng([seed, len(ids)]).choice(len(ids), count, replace=False)
    return [ids[i] for i in np.sort(drawn)]


def mode_of(checkpoint: Checkpoint, prompts: Iterable[str], mode: str) -> str:
    """How replies become token ids: `auto` is `ids`, or `text` where a prompt cannot be cut."""
    check_choice("mode", mode, (AUTO, *MODES))
    if mode != AUTO:
        return mode
    return "ids" if all(map(checkpoint.template.cuttable, prompts)) else "text"


def pooling_of(checkpoint: Checkpoint, pooling: str) -> Pooling:
    """Where rewards are read; `auto` is what the conversion found for the model.

    Raises:
      AssayError: an unknown pooling, or one by pad tokens of a model whose config has none.
    """
    check_choice("pooling", pooling, (AUTO, *POOLINGS))
    kind, pad = (
        checkpoint.card.pooling if pooling == AUTO else pooling,
        checkpoint.card.pad_token_id,
    )
    if kind != "last" and pad is None:
        raise AssayError(
            f"pooling={kind!r}: model {checkpoint.card.slug!r} has no pad_token_id "
            "(model.json); allowed: 'last'"
        )
    return LAST if kind == "last" else Pooling(kind, pad)


def token_rows(
    checkpoint: Checkpoint,
    prompt: str,
    mode: str,
    pooling: Pooling,
    chosen: Sequence[int] | None = None,
) -> RewardRows:
    """Every candidate of the vocabulary as the reply to a prompt, or the `chosen` ones.

    Raises:
      AssayError: mode `ids` of a template that cannot be cut around a reply.
    """
    check_choice("mode", mode, MODES)
    template, ids = checkpoint.template, checkpoint.token_ids if chosen is None else chosen
    if mode == "ids":
        return TokenRows(template.split(prompt), ids, pooling=pooling)
    texts = [checkpoint.tokens[i] for i in ids]
    return TokenTextRows(template.around(prompt), template, texts, mode, ids, pooling=pooling)


def reply_rows(
    checkpoint: Checkpoint, prompt: str, replies: Sequence[str], mode: str, pooling: Pooling
) -> ReplyRows:
    """A list of replies to a prompt.

    Raises:
      AssayError: mode `ids` of a template that cannot be cut around a reply.
    """
    template = checkpoint.template
    around = template.split(prompt) if mode == "ids" else template.around(prompt)
    return ReplyRows(around, template, replies, mode, pooling=pooling)


def _choices(mode: str, pooling: Pooling) -> dict[str, object]:
    """How replies are read: all parts of a result must agree on it."""
    return {"mode": mode, **pooling.choice}


def _admit(
    manifest: Manifest,
    group: Sequence[Checkpoint],
    rows: Mapping[str, RewardRows],
    path_of: Callable[[str, str], str],
    choices: Mapping[str, object],
    settings: SweepSettings,
    mesh: Mesh,
    place: Place,
) -> list[Result]:
    """The results of models that share a decoder, under every prompt.

    Args:
      manifest: of the run.
      group: the models.
      rows: prompt id -> what is scored.
      path_of: slug and prompt id -> folder of the result.
      choices: from `_choices`.
      settings: of the run.
      mesh: the devices.
      place: the same, with their free memory.
    """
    pairs = [(prompt, checkpoint) for prompt in rows for checkpoint in group]
    paths = [path_of(checkpoint.card.slug, prompt) for prompt, checkpoint in pairs]
    step = steps.choose_step(
        manifest,
        group,
        paths,
        [each.prompt for each in rows.values()],
        settings,
        place,
        listed=any(isinstance(each, ReplyRows) for each in rows.values()),
    )
    return [
        setup.admit_result(
            manifest,
            checkpoint,
            path,
            rows[prompt],
            settings,
            mesh,
            step_size=step,
            objectives=checkpoint.card.reward_head.columns(settings.objectives)[1:],
            lens=checkpoint.card.reward_head.depth if settings.lens else 0,
            **choices,
        )
        for path, (prompt, checkpoint) in zip(paths, pairs, strict=True)
    ]


def _planned(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    settings: SweepSettings,
    mesh: Mesh,
) -> tuple[Manifest, list[Result], dict[tuple[str, ...], str], Place]:
    """What a sweep of vocabularies is going to do, with all of it checked and nothing written.

    Returns:
      The manifest, the results, why models cannot be loaded (`steps.refusals`), and the place.
    """
    manifest = setup.open_run(run, checkpoints, prompts, settings, mesh)
    _check(checkpoints, settings, mesh)
    results, place = [], Place.of(mesh)
    for group in sharing_groups(checkpoints):
        mode = mode_of(group[0], prompts.values(), settings.mode)
        pooling = pooling_of(group[0], settings.pooling)
        chosen = chosen_tokens(group[0].token_ids, settings.tokens, settings.seed)
        every = {
            prompt: token_rows(group[0], text, mode, pooling, chosen)
            for prompt, text in prompts.items()
        }
        choices = _choices(mode, pooling)
        if chosen is not None:
            drawn = {"count": settings.tokens, "seed": settings.seed, "sha256": ids_hash(chosen)}
            choices["tokens"] = drawn
        path = schema.scores_path
        results += _admit(manifest, group, every, path, choices, settings, mesh, place)
    refused = steps.refusals(results, settings, place)
    return manifest, results, refused, place


def _check(checkpoints: Sequence[Checkpoint], settings: SweepSettings, mesh: Mesh) -> None:
    """Refuses a mesh that does not fit, and objectives that no model has."""
    setup.check_meshes(mesh, checkpoints)
    heads = [checkpoint.card.reward_head for checkpoint in checkpoints]
    available = {
        "none": True,
        "values": any(head.objectives for head in heads),
        "quantiles": any(head.quantiles > 1 for head in heads),
    }
    if not available[settings.objectives]:
        slugs = ", ".join(checkpoint.card.slug for checkpoint in checkpoints)
        raise AssayError(
            f"objectives={settings.objectives!r}, but none of the models has any: {slugs}"
        )


def _load(
    settings: SweepSettings,
    mesh: Mesh,
    refused: Mapping[tuple[str, ...], str],
    group: Sequence[Checkpoint],
    step_size: int,
) -> RewardScorer:
    for checkpoint in group:
        meshes.check_mesh(mesh, checkpoint.card.decoder)
    steps.check_refused(refused, group)
    restored = restore(group, mesh, dtype_named(settings.dtype), objectives=settings.objectives)
    return RewardScorer.build(*restored, mesh, step_size=step_size, lens=settings.lens)
