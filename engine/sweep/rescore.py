"""Computes random rows of finished results again, by the plain pass, and compares them."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from etils import epath
from jax.sharding import Mesh

from engine.checkpoint.card import REWARD, Checkpoint
from engine.checkpoint.restore import restore
from engine.errors import AssayError
from engine.runs import parts, provenance, schema
from engine.runs.reader import Json
from engine.scoring.conversations import ConversationRows
from engine.scoring.language_passes import LanguageScorer
from engine.scoring.reward_passes import RewardScorer, dtype_named, self_check
from engine.scoring.rows import Pooling, Rows, pooling_of, reply_rows, token_rows
from engine.settings import OBJECTIVES
from engine.sweep.logprob_jobs import conversation_replies, language_rows
from engine.sweep.outcomes import free_models

_AT_ONCE = 16  # conversations of a plain pass


def rescore(
    run: epath.Path,
    content: Json,
    checkpoints: Sequence[Checkpoint],
    mesh: Mesh,
    paths: Sequence[str],
    *,
    rows: int,
    seed: int,
) -> Iterator[tuple[str, Json | str]]:
    """Compares `rows` random rows of each result with the plain pass.

    `paths` are of `whole_results`; a result's model is found by its `checkpoint_hash`.

    Yields:
      The path of each result, and its entry `self_check` of the manifest, or how it differs.
    """
    by_hash = {c.card.checkpoint_hash: c for c in checkpoints}
    ordered = sorted(paths, key=lambda path: _needs(path, content))
    for needs, same in itertools.groupby(ordered, key=lambda path: _needs(path, content)):
        checkpoint = by_hash[needs[0]]
        scorer = _load(checkpoint, mesh, *needs[1:])
        for path in same:
            rng = np.random.default_rng([seed, *path.encode()])
            try:
                yield path, _compare(run, path, content, checkpoint, scorer, rows, rng)
            except AssayError as error:
                yield path, str(error)
        del scorer
        free_models()


def whole_results(content: Json, checkpoints: Iterable[Checkpoint]) -> list[str]:
    """Paths of the results of some models that have all their rows."""
    hashes = {c.card.checkpoint_hash for c in checkpoints}
    return [
        path
        for path, entry in content["results"].items()
        if entry["fingerprint"].get("checkpoint_hash") in hashes
        and sum(part["rows"] for part in entry["parts"].values())
        >= entry["fingerprint"].get("rows", 1)  # a search has no such number
    ]


def _needs(path: str, content: Json) -> tuple[str, str, tuple[str, ...], bool]:
    """Checkpoint, dtype, objectives, lens: results with equal ones share loaded parameters."""
    of = content["results"][path]["fingerprint"]
    return of["checkpoint_hash"], of["dtype"], tuple(of.get("objectives", ())), "lens" in of


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
    run: epath.Path,
    path: str,
    content: Json,
    checkpoint: Checkpoint,
    scorer: RewardScorer | LanguageScorer,
    rows: int,
    rng: np.random.Generator,
) -> Json:
    """The self-check of a result's random rows; raises AssayError where it fails."""
    fingerprint = content["results"][path]["fingerprint"]
    frame = _read(run, path, content)
    chosen = np.sort(rng.choice(len(frame), min(rows, len(frame)), replace=False))
    if path.startswith(f"{schema.SEQUENCES_DIR}/"):
        assert isinstance(scorer, RewardScorer)
        names = ["reward"]
        pooling = pooling_of(checkpoint, fingerprint.get("pooling", "last"))
        plain = _search_rewards(
            scorer, fingerprint, pooling, frame["token_ids"].gather(chosen).to_list()
        )
    else:
        listed = _rows(run, checkpoint, path, content, frame)
        prompt = listed.prompt
        ids = {"prefix_ids": list(prompt.prefix), "suffix_ids": list(prompt.suffix)}
        if why := provenance.changes({k: fingerprint[k] for k in ids}, ids):
            raise AssayError(f"the checkpoint renders its prompt otherwise: {why}")
        names = [list(listed.part_columns)[-1], *schema.columns_beside(fingerprint)]
        samples = [chosen[i : i + _AT_ONCE].tolist() for i in range(0, len(chosen), _AT_ONCE)]
        plain_pass: Any = scorer.score_plainly  # of the rows that fit the scorer
        plain = np.concatenate([plain_pass(listed, sample)[0] for sample in samples], axis=1)
    written = frame.select(names).to_numpy().T[:, chosen]
    mixture, dtype = checkpoint.card.decoder.experts > 0, fingerprint["dtype"]
    return self_check("re-scored", names, chosen, written, plain, dtype, mixture=mixture)


def _read(run: epath.Path, path: str, content: Json) -> pl.DataFrame:
    wanted = provenance.of_result(content, path)
    entries = content["results"][path]["parts"]
    folder = (run / path).parent if path.startswith(f"{schema.SEQUENCES_DIR}/") else run / path
    frames = [
        parts.read_frame(folder / name, part["sha256"], wanted).frame
        for name, part in sorted(entries.items())
    ]
    return pl.concat(frames)


def _rows(
    run: epath.Path, checkpoint: Checkpoint, path: str, content: Json, frame: pl.DataFrame
) -> Rows:
    """What a result scored, made again from its checkpoint and its prompt or list."""
    fingerprint = content["results"][path]["fingerprint"]
    kind, name, *_ = path.split("/")
    pooling = fingerprint.get("pooling", "last")
    if kind in (schema.CONVERSATIONS_DIR, schema.CONVERSATION_LOGPROBS_DIR):
        place = schema.list_path(name)
        table = parts.read_frame(run / place, None, {"path": place}).frame
        if kind == schema.CONVERSATION_LOGPROBS_DIR:
            return conversation_replies(checkpoint, table, fingerprint["form"])
        return ConversationRows.of(checkpoint, table, fingerprint["mode"], pooling)
    prompt = content["prompts"][path.rpartition("prompt=")[2]]
    texts = frame["item"].to_list() if "item" in frame.columns else None
    if "form" in fingerprint:
        return language_rows(checkpoint, prompt, fingerprint["form"], texts)
    if texts is None:
        ids = frame["token_id"].to_list()
        return token_rows(checkpoint, prompt, fingerprint["mode"], pooling, ids)
    return reply_rows(checkpoint, prompt, texts, fingerprint["mode"], pooling)


def _search_rewards(
    scorer: RewardScorer, fingerprint: Json, pooling: Pooling, replies: Sequence[Sequence[int]]
) -> np.ndarray:
    """Mean reward of sequences over the prompts of a search: float32 [1, sequences]."""
    suffix = fingerprint["suffix_ids"]
    rewards = []
    for ids in replies:
        sequences = [[*prefix, *ids, *suffix] for prefix in fingerprint["prefix_ids"]]
        read_at = [pooling.position(sequence) for sequence in sequences]
        rewards.append(scorer.plain_rewards(sequences, read_at)[0].mean())
    return np.array([rewards], np.float32)
