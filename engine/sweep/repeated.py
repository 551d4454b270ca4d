"""The tokens that move the rewards of replies most, repeated behind each of these replies."""

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from jax.sharding import Mesh

from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.runs import schema, storage
from engine.runs.folder import RunFolder
from engine.runs.identity import items_hash
from engine.scoring.rows import reply_rows
from engine.settings import SweepSettings
from engine.sweep.outcomes import OnOutcomes
from engine.sweep.reward_jobs import sweep_rewards

_TOKENS = 30  # of each group


def repeat_rewards(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    settings: SweepSettings,
    mesh: Mesh,
    on_outcomes: OnOutcomes = lambda outcomes: None,
) -> int:
    """Scores tokens repeated `schema.TIMES` times behind reply starts that the run has swept.

    They are the 30 tokens that raise the rewards of most replies most, 30 that lower them, and 30
    random others. Each group is a list of the run (`schema.repeated_list`) of texts, in the mode
    `text`. Reply starts that leave no room for the longest are left out.

    Returns:
      The number of rewards that were computed.

    Raises:
      AssayError, SomeFailed: as `sweep_rewards`.
    """
    computed = 0
    for checkpoint in checkpoints:
        lists = processes.from_first(
            f"repeated tokens of {checkpoint.card.slug}",
            functools.partial(_lists, run, checkpoint, prompts, settings),
        )
        for group, replies in lists.items():
            items = schema.repeated_list(group, items_hash(replies)), replies
            most = checkpoint.card.decoder.max_positions
            fitting = {
                prompt: text
                for prompt, text in prompts.items()
                if reply_rows(checkpoint, text, replies, "text", settings.pooling).extent()[0]
                <= most
            }
            if fitting:
                arguments = ([checkpoint], fitting, run, settings, mesh)
                computed += sweep_rewards(*arguments, on_outcomes=on_outcomes, items=items)
    return computed


def _lists(
    run: str, checkpoint: Checkpoint, prompts: Mapping[str, str], settings: SweepSettings
) -> dict[str, list[str]]:
    """Group -> its tokens, each repeated, one after the other; groups without tokens left out."""
    folder, effects, noise = RunFolder.read(storage.path_of(run)), [], []
    for prompt in prompts:
        result = folder.results[schema.scores_path(checkpoint.card.slug, prompt)]
        frame = pl.concat(result.frames()).sort("token_id")
        effects.append(frame["reward"].to_numpy() - (result.baseline or 0.0))
        noise.append([result.self_check.noise if result.self_check else 0.0])
    vocabulary = folder.table(schema.vocab_path(checkpoint.card.tokenizer_hash))
    assert vocabulary is not None  # written with the results
    tokens = vocabulary.sort("token_id").filter(
        pl.col("token_id").is_in(frame["token_id"].implode())
    )
    # A text that is no character, or that the template trims, is no token when it is repeated.
    text, trimmed = tokens["token"], (tokens["round_trip"] == "empty").fill_null(value=False)
    usable = text.is_first_distinct() & (text != "") & ~text.str.contains("\ufffd") & ~trimmed
    usable = np.flatnonzero(usable.to_numpy())
    raised = (np.array(effects) > noise).mean(axis=0)
    lowered = (-np.array(effects) > noise).mean(axis=0)
    order = np.argsort(-np.mean(effects, axis=0), kind="stable")
    order = order[np.isin(order, usable)]
    groups = {
        "raise": order[raised[order] > 0.5][:_TOKENS],
        "lower": order[::-1][lowered[order[::-1]] > 0.5][:_TOKENS],
    }
    others = np.setdiff1d(usable, np.concatenate([*groups.values()]))
    rng = np.random.default_rng(settings.seed)
    groups["random"] = rng.choice(others, min(_TOKENS, len(others)), replace=False)
    return {
        group: [tokens["token"][int(at)] * times for at in places for times in schema.TIMES]
        for group, places in groups.items()
        if len(places)
    }
