"""Rewards of every token, and of lists of replies: what is scored, and the pass that scores it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import polars as pl
from jax.sharding import Mesh

from engine import mesh as meshes
from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import restore, sharing_groups
from engine.errors import AssayError
from engine.models.heads import OBJECTIVES
from engine.runs import schema
from engine.runs.manifest import Manifest, items_hash
from engine.scoring.batches import Bucket
from engine.scoring.reward_passes import Scorer, check_step, dtype_named
from engine.scoring.rows import (
    MODES,
    POOLINGS,
    ReplyRows,
    Rows,
    TokenRows,
    TokenTextRows,
    check_choice,
)
from engine.sweep import loop
from engine.text.chat_template import ChatTemplate
from engine.types import Prefix, PromptIds


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepSettings(loop.Settings):
    """How rewards are computed. `mode` and `pooling` are part of a result's fingerprint too."""

    mode: str  # `ids` or `text`: how a reply becomes ids
    pooling: str  # `last` or `first_pad`: where its reward is read
    objectives: str  # columns beside the reward: one of `heads.OBJECTIVES`

    def __post_init__(self):
        super().__post_init__()
        check_choice("mode", self.mode, MODES)
        check_choice("pooling", self.pooling, POOLINGS)
        check_choice("objectives", self.objectives, OBJECTIVES)


def sweep_vocabulary(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    settings: SweepSettings,
    mesh: Mesh,
    finished: Callable[[str, str, pl.DataFrame], None] = lambda *result: None,
) -> int:
    """Scores every token under every prompt and model into `run/scores`.

    Args:
      checkpoints: models; those on one decoder share a pass.
      prompts: prompt id -> text.
      run: run folder, new or to be continued.
      settings: mode `ids` puts each id between the template's; `text` decodes it, renders the
        conversation and tokenises the whole text, as the paper did.
      mesh: from `engine.mesh.build_mesh`.
      finished: called as soon as a model has all rewards under a prompt: with slug, prompt id and
        a frame of token_id, token and reward.

    Returns:
      How many rewards were computed; 0 where the run was complete.

    Raises:
      AssayError: bad input, a result begun under another fingerprint, a reward that is not finite
        (its token ids named), a self-check beyond tolerance.
    """

    def rows(checkpoint: Checkpoint, text: str) -> Rows:
        size, pad = loop.tokens_of(checkpoint), pad_token(checkpoint, settings.pooling)
        return token_rows(checkpoint.template, text, size, settings.mode, pad)

    def named(checkpoint: Checkpoint, result: str, numbers: np.ndarray) -> None:
        rows = {"token_id": range(numbers.shape[1]), "reward": numbers[0]}
        scores = pl.DataFrame(rows, schema.SCORE_COLUMNS)
        scores = scores.with_columns(token=pl.Series(checkpoint.template.tokens, dtype=pl.String))
        finished(checkpoint.card.slug, result.rsplit("=")[-1], scores)

    manifest = loop.open_run(run, checkpoints, prompts)
    planned = _plan(manifest, checkpoints, prompts, rows, schema.scores_path, settings, mesh)
    loop.begin(manifest, loop.missing_vocabularies(manifest, checkpoints))
    return loop.run_jobs(manifest, planned, settings, _loader(settings, mesh), named)


def sweep_replies(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    name: str,
    replies: Sequence[str],
    run: str,
    settings: SweepSettings,
    mesh: Mesh,
) -> int:
    """Scores the list `replies` of any lengths into `run/items/<name>`; see `sweep_vocabulary`."""
    if not replies:
        raise AssayError(f"item list {name!r}: empty; allowed: at least one reply")

    def rows(checkpoint: Checkpoint, text: str) -> Rows:
        template, pad = checkpoint.template, pad_token(checkpoint, settings.pooling)
        return ReplyRows(template.split(text), template, replies, settings.mode, pad=pad)

    def path(model: str, prompt: str) -> str:
        return schema.items_path(name, model, prompt)

    schema.check_names([name])
    manifest = loop.open_run(run, checkpoints, prompts)
    manifest.admit("lists", name, {"rows": len(replies), "items_hash": items_hash(replies)})
    planned = _plan(manifest, checkpoints, prompts, rows, path, settings, mesh)
    loop.begin(manifest, {})
    return loop.run_jobs(manifest, planned, settings, _loader(settings, mesh))


def token_rows(template: ChatTemplate, text: str, size: int, mode: str, pad: int | None) -> Rows:
    """Every token of the vocabulary as the reply to a prompt."""
    check_choice("mode", mode, MODES)
    split = template.split(text)
    if mode == "ids":
        return TokenRows(split, size, pad=pad)
    return TokenTextRows(split, template, template.tokens, mode, pad=pad)


def pad_token(checkpoint: Checkpoint, pooling: str) -> int | None:
    """The id before which rewards are read; None where they are read at the last id.

    Raises:
      AssayError: another pooling, or `first_pad` of a model whose config names no pad token.
    """
    check_choice("pooling", pooling, POOLINGS)
    pad = checkpoint.card.pad_token_id
    if pooling == "first_pad" and pad is None:
        raise AssayError(
            f"pooling='first_pad': model {checkpoint.card.slug!r} has no pad_token_id "
            "(model.json); allowed: 'last'"
        )
    return pad if pooling == "first_pad" else None


def _plan(
    manifest: Manifest,
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    rows: Callable[[Checkpoint, str], Rows],
    path: Callable[[str, str], str],
    settings: SweepSettings,
    mesh: Mesh,
) -> list[loop.Job]:
    def objectives(checkpoint: Checkpoint) -> Sequence[str]:
        return checkpoint.card.reward_head.columns(settings.objectives)[1:]

    _check_objectives(checkpoints, settings.objectives)
    groups, about = sharing_groups(checkpoints), {"mode": settings.mode}
    if settings.pooling != "last":  # runs of before this choice have no such key
        about["pooling"] = settings.pooling
    planned = loop.plan(manifest, groups, prompts, rows, path, about, settings, objectives)
    check_step(settings.step_size, mesh)
    for group in groups:
        meshes.check_mesh(mesh, group[0].card.decoder)
    return planned


def _check_objectives(checkpoints: Sequence[Checkpoint], objectives: str) -> None:
    """A model without objectives has its reward alone; a run where none has any is refused."""
    heads = [checkpoint.card.reward_head for checkpoint in checkpoints]
    found = {
        "none": True,
        "values": any(head.objectives for head in heads),
        "quantiles": any(head.quantiles > 1 for head in heads),
    }
    if not found[objectives]:
        slugs = ", ".join(checkpoint.card.slug for checkpoint in checkpoints)
        raise AssayError(f"objectives={objectives!r}, but none of the models has any: {slugs}")


def _loader(settings: SweepSettings, mesh: Mesh) -> Callable[[Sequence[Checkpoint]], "RewardPass"]:
    def load(group: Sequence[Checkpoint]) -> RewardPass:
        dtype = dtype_named(settings.dtype)
        restored = restore(group, mesh, dtype, objectives=settings.objectives)
        return RewardPass(Scorer.build(*restored, mesh, step_size=settings.step_size))

    return load


@dataclasses.dataclass(frozen=True)
class RewardPass:
    """A scorer as the host loop sees it (`loop.Pass`)."""

    scorer: Scorer

    def prefill(self, prompt: PromptIds) -> Prefix:
        """Keys, values and gates of the prompt's prefix."""
        return self.scorer.prefill(prompt)

    def score(
        self, prefix: Prefix, rows: Rows, start: int, stop: int, advance: Callable[[int], object]
    ) -> Sequence[np.ndarray]:
        """Rewards and objectives of a range of rows: float32 [columns, stop - start] a model."""
        buckets = rows.buckets(start, stop)
        scored = score_buckets(self.scorer, prefix, buckets, stop - start, advance)
        return self.scorer.split(scored)

    def plain(self, rows: Rows, sample: Sequence[int]) -> Sequence[np.ndarray]:
        """The same of some rows, nothing shared: float32 [columns, sample] a model."""
        sequences = rows.sequences(sample)
        plain = self.scorer.plain_rewards(sequences, [rows.read_at(s) for s in sequences])
        return self.scorer.split(plain)

    def coefficients(self, prefix: Prefix) -> Sequence[dict[str, float] | None]:
        """What each model's gate makes of its objectives; None without a gate."""
        return self.scorer.coefficients(prefix)


def score_buckets(
    scorer: Scorer,
    prefix: Prefix,
    buckets: Sequence[Bucket],
    rows: int,
    advance: Callable[[int], object] = lambda candidates: None,
) -> np.ndarray:
    """What the models say of the rows that the buckets stand for: float32 [W, rows].

    `advance` is told how many candidates each step finished.
    """
    rewards = np.empty((sum(map(len, scorer.columns)), rows), np.float32)
    for bucket in buckets:
        steps = []
        for step in scorer.rewards(prefix, bucket.candidates):
            steps.append(step)
            advance(step.shape[1])
        scored = np.concatenate(steps, axis=1)
        rewards[:, bucket.rows] = scored[:, bucket.row_candidate]
    return rewards
