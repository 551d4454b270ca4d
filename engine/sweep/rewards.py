"""Rewards of every token of the vocabulary, and of lists of replies, into a run folder."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import polars as pl
from jax.sharding import Mesh

from engine import mesh as meshes
from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import restore, sharing_groups
from engine.errors import AssayError
from engine.models.heads import OBJECTIVES
from engine.planning.admission import Place
from engine.runs import schema
from engine.runs.manifest import Manifest, items_hash
from engine.runs.token_ids import ids_hash
from engine.scoring.reward_passes import RewardScorer, dtype_named
from engine.scoring.rows import (
    MODES,
    POOLINGS,
    ChosenTokenRows,
    ReplyRows,
    RewardRows,
    TokenRows,
    TokenTextRows,
    check_choice,
)
from engine.sweep import loop, setup, steps
from engine.sweep.outcomes import Ended
from engine.sweep.results import Result, check_present
from engine.text.chat_template import ChatTemplate

# Puts models that share a pass on the devices, for steps of a size.
Load = Callable[[Sequence[Checkpoint], int], RewardScorer]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepSettings(loop.Settings):
    """How rewards are computed. The settings here are part of a result's fingerprint."""

    mode: str  # how a reply becomes token ids: `ids` or `text`
    pooling: str  # where the reward is read: `last` or `first_pad`
    objectives: str  # columns beside the reward: one of `heads.OBJECTIVES`
    tokens: int | None = None  # of a vocabulary, drawn at random with `seed`; None: all
    lens: bool = False  # whether vocabularies also get the reward after every layer

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("mode", self.mode, MODES)
        check_choice("pooling", self.pooling, POOLINGS)
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
        renders the conversation and tokenises the whole text, as the paper did.
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
    steps.advise(results, settings.part_size, place.data)
    vocabularies = setup.missing_vocabularies(manifest, checkpoints)
    setup.begin(manifest, vocabularies, results, settings.part_size)

    def tell(result: Result, numbers: np.ndarray) -> None:
        columns = {**result.rows.keys(0, len(result.rows)), "reward": numbers[0]}
        scores = pl.DataFrame(columns, schema.SCORE_COLUMNS)
        tokens = pl.Series(result.checkpoint.template.tokens, dtype=pl.String)
        own = tokens.gather(scores["token_id"])
        finished(result.model, result.prompt, scores.with_columns(token=own))

    load = load or functools.partial(_load, settings, mesh, refused)
    return loop.run(manifest, results, load, settings, mesh, tell, ended)


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
        template, pad = group[0].template, pad_token(group[0], settings.pooling)
        every = {
            prompt: ReplyRows(template.split(text), template, replies, settings.mode, pad=pad)
            for prompt, text in prompts.items()
        }
        results += _admit(manifest, group, every, path, settings, mesh, place)
    refused = steps.refusals(results, settings, place)
    steps.advise(results, settings.part_size, place.data)
    setup.begin(manifest, {}, results, settings.part_size)
    load = load or functools.partial(_load, settings, mesh, refused)
    return loop.run(manifest, results, load, settings, mesh, ended=ended)


def chosen_tokens(size: int, count: int | None, seed: int) -> Sequence[int] | None:
    """Ids of a fixed random subset of a vocabulary, ascending; None where that is all of it.

    Args:
      size: of the vocabulary.
      count: of the subset; None for all.
      seed: of the draw.
    """
    if count is None or count >= size:
        return None
    drawn = np.random.default_rng([seed, size]).choice(size, count, replace=False)
    ids: list[int] = np.sort(drawn).tolist()
    return ids


def token_rows(
    template: ChatTemplate,
    prompt: str,
    size: int,
    mode: str,
    pad: int | None,
    chosen: Sequence[int] | None = None,
) -> RewardRows:
    """Every token of the vocabulary as the reply to a prompt, or the `chosen` ones."""
    check_choice("mode", mode, MODES)
    split = template.split(prompt)
    if chosen is not None:
        texts = [template.tokens[token_id] for token_id in chosen]
        return ChosenTokenRows(split, template, texts, mode, chosen, pad=pad)
    if mode == "ids":
        return TokenRows(split, size, pad=pad)
    return TokenTextRows(split, template, template.tokens, mode, pad=pad)


def pad_token(checkpoint: Checkpoint, pooling: str) -> int | None:
    """The token id before which rewards are read; None where they are read at the last id.

    Raises:
      AssayError: an unknown pooling, or `first_pad` for a model whose config has no pad token.
    """
    check_choice("pooling", pooling, POOLINGS)
    pad = checkpoint.card.pad_token_id
    if pooling == "first_pad" and pad is None:
        raise AssayError(
            f"pooling='first_pad': model {checkpoint.card.slug!r} has no pad_token_id "
            "(model.json); allowed: 'last'"
        )
    return pad if pooling == "first_pad" else None


def _admit(
    manifest: Manifest,
    group: Sequence[Checkpoint],
    rows: Mapping[str, RewardRows],
    path_of: Callable[[str, str], str],
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
      settings: of the run.
      mesh: the devices.
      place: the same, with their free memory.
    """
    choices: dict[str, object] = {"mode": settings.mode}
    # Runs that are older than a setting have no such key.
    if settings.pooling != "last":
        choices["pooling"] = settings.pooling
    for chosen in (each for each in rows.values() if isinstance(each, ChosenTokenRows)):
        choices["tokens"] = {
            "count": settings.tokens,
            "seed": settings.seed,
            "sha256": ids_hash(chosen.token_ids),
        }
    pairs = [(prompt, checkpoint) for prompt in rows for checkpoint in group]
    paths = [path_of(checkpoint.card.slug, prompt) for prompt, checkpoint in pairs]
    step = steps.choose_step(
        manifest,
        group,
        paths,
        [each.prompt for each in rows.values()],
        settings,
        place,
        listed=any(
            isinstance(each, ReplyRows)
            and not (isinstance(each, ChosenTokenRows) and each.mode == "ids")
            for each in rows.values()
        ),
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
        pad, size = pad_token(group[0], settings.pooling), setup.tokens_of(group[0])
        chosen = chosen_tokens(size, settings.tokens, settings.seed)
        every = {
            prompt: token_rows(group[0].template, text, size, settings.mode, pad, chosen)
            for prompt, text in prompts.items()
        }
        results += _admit(manifest, group, every, schema.scores_path, settings, mesh, place)
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
