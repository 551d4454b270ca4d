"""Rewards of conversations with prompts of their own, into a run folder."""

from collections.abc import Sequence

import polars as pl
from jax.sharding import Mesh

from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.runs import schema
from engine.runs.reader import Json
from engine.scoring.conversations import ConversationRows, ConversationScorer
from engine.scoring.rows import Pooling
from engine.settings import AUTO, MODES, SweepSettings, check_choice
from engine.sweep import loop, setup
from engine.sweep.jobs import Job
from engine.sweep.outcomes import Ended
from engine.sweep.reward_jobs import load_scorer, pooling_of, sharing


def sweep_conversations(
    checkpoints: Sequence[Checkpoint],
    name: str,
    table: pl.DataFrame,
    file_sha256: str,
    run: str,
    settings: SweepSettings,
    mesh: Mesh,
    ended: Ended = lambda outcomes: None,
) -> int:
    """Scores conversations with prompts of their own into `run/conversations/<name>`.

    `table` has `schema.LIST_COLUMNS`; see `setup.admit_conversations` and `sweep_vocabulary`.
    """
    if settings.lens:
        raise AssayError("lens=True: only vocabularies have a lens; allowed for lists: False")
    manifest = setup.open_run(run, checkpoints, None, settings, mesh)
    tables = setup.admit_conversations(manifest, name, table, file_sha256)
    jobs = []
    for group in sharing(checkpoints, settings):
        pooling = pooling_of(group[0], settings.pooling)
        mode = "text" if settings.mode == AUTO else settings.mode
        rows = conversation_rows(group[0], table, mode, pooling)
        for checkpoint in group:
            fingerprint: Json = {"mode": mode, **pooling.choice}
            if objectives := checkpoint.card.reward_head.columns(settings.objectives)[1:]:
                fingerprint["objectives"] = list(objectives)
            path = schema.conversations_path(name, checkpoint.card.slug)
            jobs.append(Job(checkpoint=checkpoint, path=path, rows=rows, fingerprint=fingerprint))

    def load(group: Sequence[Checkpoint], step_size: int) -> ConversationScorer:
        return ConversationScorer(load_scorer(settings, mesh, group, step_size))

    return loop.run(manifest, jobs, load, settings, mesh, ended=ended, tables=tables)


def conversation_rows(
    checkpoint: Checkpoint, table: pl.DataFrame, mode: str, pooling: Pooling
) -> ConversationRows:
    """The conversations of a list (`schema.LIST_COLUMNS`)."""
    check_choice("mode", mode, MODES)
    names = [
        f"row {row}" if side == "reply" else f"row {row}, {side}"
        for row, side in table.select("row", "side").iter_rows()
    ]
    messages = table["messages"].to_list()
    return ConversationRows(checkpoint.template, messages, names, mode, pooling=pooling)
