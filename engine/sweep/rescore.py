"""Computes random rows of finished results again, by the plain pass, and compares them."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from jax.sharding import Mesh

from engine.checkpoint.card import REWARD, Checkpoint
from engine.checkpoint.restore import restore
from engine.errors import AssayError
from engine.runs import schema
from engine.runs.folder import RunFolder, read_table
from engine.runs.identity import changes
from engine.runs.result import Result, SelfCheck
from engine.scoring.conversations import ConversationRows
from engine.scoring.language_passes import LanguageScorer
from engine.scoring.reward_passes import RewardScorer, dtype_named, self_check
from engine.scoring.rows import Pooling, Rows, pooling_of, reply_rows, token_rows
from engine.settings import OBJECTIVES
from engine.sweep.logprob_jobs import conversation_replies, language_rows
from engine.sweep.outcomes import free_models

_AT_ONCE = 16  # conversations of a plain pass


def rescore(
    folder: RunFolder,
    checkpoints: Sequence[Checkpoint],
    mesh: Mesh,
    results: Sequence[Result],
    *,
    rows: int,
    seed: int,
) -> Iterator[tuple[Result, SelfCheck | str]]:
    """Compares `rows` random rows of each result with the plain pass.

    `results` are of `whole_results`; a result's model is found by its `checkpoint_hash`.

    Yields:
      Each result, and the comparison, or how it differs.
    """
    by_hash = {c.card.checkpoint_hash: c for c in checkpoints}
    for needs, same in itertools.groupby(sorted(results, key=_needs), key=_needs):
        checkpoint = by_hash[needs[0]]
        scorer = _load(checkpoint, mesh, *needs[1:])
        for result in same:
            rng = np.random.default_rng([seed, *result.path.encode()])
            try:
                yield result, _compare(folder, result, checkpoint, scorer, rows, rng)
            except AssayError as error:
                yield result, str(error)
        del scorer
        free_models()


def whole_results(folder: RunFolder, checkpoints: Iterable[Checkpoint]) -> list[Result]:
    """The results of some models that have all their rows."""
    hashes = {c.card.checkpoint_hash for c in checkpoints}
    results = folder.results.values()
    return [r for r in results if r.identity.checkpoint_hash in hashes and not r.missing]


def _needs(result: Result) -> tuple[str, str, tuple[str, ...], bool]:
    """Checkpoint, dtype, objectives, lens: results with equal ones share loaded parameters."""
    of = result.identity
    return of.checkpoint_hash, of.dtype, of.objectives, of.lens > 0


def _load(
    checkpoint: Checkpoint, mesh: Mesh, dtype: str, objectives: tuple[str, ...], lens: bool
) -> RewardScorer | LanguageScorer:
    if checkpoint.card.kind != REWARD:
        restored = restore([checkpoint], mesh, dtype_named(dtype))
        return LanguageScorer.build(*restored, mesh, step_size=1)
    head = checkpoint.card.reward_head
    kind = next((k for k in OBJECTIVES if tuple(head.columns(k)[1:]) == objectives), "none")
    restored = restore([checkpoint], mesh, dtype_named(dtype), objectives=kind)
    return RewardScorer.build(*restored, mesh, step_size=1, lens=lens)


def _compare(
    folder: RunFolder,
    result: Result,
    checkpoint: Checkpoint,
    scorer: RewardScorer | LanguageScorer,
    rows: int,
    rng: np.random.Generator,
) -> SelfCheck:
    """Compares a result's random rows; raises AssayError where they differ."""
    identity, frame = result.identity, pl.concat(result.frames())
    mixture = checkpoint.card.decoder.experts > 0
    chosen = np.sort(rng.choice(len(frame), min(rows, len(frame)), replace=False))
    if result.is_search:
        assert isinstance(scorer, RewardScorer)
        names, pooling = ["reward"], pooling_of(checkpoint, identity.pooling)
        replies = frame["token_ids"].gather(chosen).to_list()
        plain = _search_rewards(scorer, result, pooling, replies)
    else:
        listed = _rows(folder, checkpoint, result, frame)
        prompt = listed.prompt
        now = {"prefix_ids": prompt.prefix, "suffix_ids": prompt.suffix}
        then = {"prefix_ids": sum(identity.prefix_ids, ()), "suffix_ids": identity.suffix_ids}
        if why := changes(then, now):
            raise AssayError(f"the checkpoint renders the prompt differently: {why}")
        names = [list(listed.part_columns)[-1], *list(result.columns)[len(listed.part_columns) :]]
        samples = [chosen[i : i + _AT_ONCE].tolist() for i in range(0, len(chosen), _AT_ONCE)]
        plain_pass: Any = scorer.score_plainly  # of the rows that fit the scorer
        plain = np.concatenate([plain_pass(listed, sample)[0] for sample in samples], axis=1)
        if listed.baseline:
            kept, alone = np.array([[result.baseline]]), plain_pass(listed, listed.baseline)[0][:1]
            how = schema.SINGLE if mixture else schema.LARGEST
            sample = np.zeros(1, int)
            self_check("reply start", ["reward"], sample, kept, alone, identity.dtype, compared=how)
    written = frame.select(names).to_numpy().T[:, chosen]
    compared = schema.MEDIAN if mixture else schema.LARGEST
    return self_check("re-scored", names, chosen, written, plain, identity.dtype, compared=compared)


def _rows(folder: RunFolder, checkpoint: Checkpoint, result: Result, frame: pl.DataFrame) -> Rows:
    """What a result scored, made again from its checkpoint and its prompt or list."""
    identity = result.identity
    if not result.prompt:
        table = read_table(folder, schema.list_path(str(result.items)))
        if result.kind == schema.CONVERSATION_LOGPROBS_DIR:
            return conversation_replies(checkpoint, table, identity.form)
        return ConversationRows.of(checkpoint, table, identity.mode, identity.pooling)
    prompt = folder.prompts[result.prompt]
    texts = frame["item"].to_list() if "item" in frame.columns else None
    if identity.form:
        return language_rows(checkpoint, prompt, identity.form, texts)
    if texts is None:
        ids = frame["token_id"].to_list()
        return token_rows(checkpoint, prompt, identity.mode, identity.pooling, ids)
    return reply_rows(checkpoint, prompt, texts, identity.mode, identity.pooling)


def _search_rewards(
    scorer: RewardScorer, result: Result, pooling: Pooling, replies: Sequence[Sequence[int]]
) -> np.ndarray:
    """Rewards of sequences under the prompt of a search: float32 [1, sequences]."""
    [prefix], rewards = result.identity.prefix_ids, []
    for ids in replies:
        sequence = [*prefix, *ids, *result.identity.suffix_ids]
        rewards.append(scorer.plain_rewards([sequence], [pooling.position(sequence)])[0, 0])
    return np.array([rewards], np.float32)
