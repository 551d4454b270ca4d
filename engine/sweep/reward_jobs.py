"""Rewards of every token of the vocabulary, and of lists of replies, into a run folder."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import polars as pl
from jax.sharding import Mesh
from tqdm import tqdm

from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import restore, sharing_groups
from engine.errors import AssayError
from engine.runs import schema
from engine.scoring.reward_passes import RewardScorer, dtype_named
from engine.scoring.rows import RewardRows, mode_of, pooling_of, reply_rows, token_rows
from engine.settings import AUTO, SweepSettings
from engine.sweep import loop, setup
from engine.sweep.jobs import RowsJob, identity_of
from engine.sweep.outcomes import OnOutcomes, OnRewards
from engine.sweep.setup import Items


def sweep_rewards(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str] | None,
    run: str,
    settings: SweepSettings,
    mesh: Mesh,
    on_rewards: OnRewards = lambda *result: None,
    on_outcomes: OnOutcomes = lambda outcomes: None,
    load: loop.Load | None = None,
    *,
    items: Items | None = None,
    chosen: Sequence[int] | None = None,
) -> int:
    """Scores every token under every prompt and model into `run/scores`, or the replies of a list.

    Of the `chosen` token ids alone where they are given; they are then the vocabulary of the run.

    `prompts` are texts by id; None for `items` that have prompts of their own. Lists go into
    `run/items/<name>` or `run/conversations/<name>`. Models that share a decoder share a pass;
    `load` puts them on the devices, by default by restoring them. `on_rewards` is called, for
    vocabularies only, as soon as a model has all rewards under a prompt, and once early with those
    of the first part (`loop.run`); `on_outcomes`, at the end, with what became of each model.

    Returns:
      The number of rewards that were computed; 0 if the run was complete.

    Raises:
      AssayError: bad input, a result that the run holds with another identity, a reward that is
        not finite (with its token ids), a self-check beyond tolerance.
      SomeFailed: some models failed; the other models are complete.
    """
    if items is not None and settings.lens:
        raise AssayError("lens=True: only vocabularies have a lens; allowed for lists: False")
    for checkpoint in checkpoints if settings.lens else ():
        checkpoint.expect_decoder("lens=True")
    folder = setup.open_run(run, checkpoints, prompts, settings, mesh)
    tables = {} if items is None else setup.admit_list(folder, *items)
    jobs = _jobs(checkpoints, prompts or {}, settings, items, chosen)
    if settings.mode == AUTO and items is None:
        _say_text(jobs)

    def tell(job: RowsJob, numbers: np.ndarray) -> None:
        if items is not None:
            return
        columns = {**job.rows.keys(0, len(numbers[0])), "reward": numbers[0]}
        scores = pl.DataFrame(columns, schema.SCORE_COLUMNS)
        names = [job.checkpoint.tokens[i] for i in scores["token_id"]]
        token = pl.Series(names, dtype=pl.String)
        left = len(job.rows) - len(scores)
        on_rewards(job.model, job.prompt, scores.with_columns(token=token), left)

    arguments = (folder, jobs, load or partial(load_scorer, settings, mesh), settings, mesh)
    return loop.run(*arguments, on_numbers=tell, on_outcomes=on_outcomes, tables=tables)


def _say_text(jobs: Sequence[RowsJob]) -> None:
    """Names the models that are scored as texts because their template cannot be cut."""
    texts = {job.model for job in jobs if job.identity.mode == "text"}
    for slug in sorted(texts) if processes.writes() else ():
        tqdm.write(
            f"note: {slug}: tokens are scored as texts (--config.mode=text) where its chat "
            "template cannot be cut around a reply, or changes the end of one",
            file=sys.stderr,
        )


def check_vocabulary(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    settings: SweepSettings,
    mesh: Mesh,
) -> dict[tuple[str, str], RowsJob]:
    """Refuses what `sweep_rewards` would refuse before its first pass; writes nothing.

    Returns:
      (slug, prompt id) -> the job: the identity that the result is going to have, or has, its step.

    Raises:
      AssayError: bad input, a run that cannot be continued with these inputs, a model that does
        not fit.
    """
    folder = setup.open_run(run, checkpoints, prompts, settings, mesh)
    jobs, _ = setup.find_missing(folder, _jobs(checkpoints, prompts, settings), settings, mesh)
    return {(job.model, job.prompt): job for job in jobs}


def _jobs(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    settings: SweepSettings,
    items: Items | None = None,
    chosen: Sequence[int] | None = None,
) -> list[RowsJob]:
    """A job for each model under each prompt; models that share a decoder have the same rows."""
    jobs, (name, listed) = [], items[:2] if items else ("", None)
    for group in sharing(checkpoints, settings):
        first, pooling = group[0], settings.pooling
        modes = _modes(first, prompts, settings.mode)
        # slug -> path, the mode, and the rows
        of: list[tuple[Callable[[str], str], str, RewardRows]] = []
        if isinstance(listed, pl.DataFrame):
            from engine.scoring.conversations import ConversationRows  # which few sweeps have

            mode = "text" if settings.mode == AUTO else settings.mode
            conversations = ConversationRows.of(first, listed, mode, pooling)
            setup.say_unread(first.card.slug, conversations.unread)
            of.append((partial(schema.conversations_path, name), mode, conversations))
        elif listed is not None:
            for prompt, text in prompts.items():
                replies = reply_rows(first, text, listed, modes[prompt], pooling)
                path = partial(schema.items_path, name, prompt=prompt)
                of.append((path, modes[prompt], replies))
        else:
            for prompt, text in prompts.items():
                vocabulary = token_rows(first, text, modes[prompt], pooling, chosen)
                of.append((partial(schema.scores_path, prompt=prompt), modes[prompt], vocabulary))
        for path_of, mode, rows in of:
            for checkpoint in group:
                head = checkpoint.card.reward_head
                identity = identity_of(
                    checkpoint,
                    rows.prompt,
                    settings,
                    rows=len(rows),
                    mode=mode,
                    pooling=pooling_of(first, pooling).kind,
                    objectives=tuple(head.columns(settings.objectives)[1:]),
                    lens=head.depth if settings.lens else 0,
                )
                path = path_of(checkpoint.card.slug)
                jobs.append(RowsJob(checkpoint=checkpoint, path=path, rows=rows, identity=identity))
    return jobs


def _modes(checkpoint: Checkpoint, prompts: Mapping[str, str], mode: str) -> dict[str, str]:
    """Prompt id -> how replies become token ids.

    `auto` is one mode for all plain prompts, and one for each with a reply start, which the
    template may change.
    """
    plain = {p: text for p, text in prompts.items() if not schema.parted(text)[1]}
    modes = dict.fromkeys(plain, mode_of(checkpoint, plain.values(), mode))
    return modes | {
        p: mode_of(checkpoint, [text], mode) for p, text in prompts.items() if p not in plain
    }


def sharing(
    checkpoints: Sequence[Checkpoint], settings: SweepSettings
) -> Sequence[Sequence[Checkpoint]]:
    """Models that share a decoder; refuses objectives that no model has."""
    heads = [checkpoint.card.reward_head for checkpoint in checkpoints]
    if settings.objectives == "values" and not any(head.objectives for head in heads):
        slugs = ", ".join(checkpoint.card.slug for checkpoint in checkpoints)
        raise AssayError(f"objectives='values', but none of the models has any: {slugs}")
    return sharing_groups(checkpoints)


def load_scorer(
    settings: SweepSettings, mesh: Mesh, group: Sequence[Checkpoint], step_size: int
) -> RewardScorer:
    """Restores models that share a decoder, for a given step size."""
    restored = restore(group, mesh, dtype_named(settings.dtype), objectives=settings.objectives)
    return RewardScorer.build(*restored, mesh, step_size=step_size, lens=settings.lens)
