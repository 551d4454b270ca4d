"""Reply starts: the prompts that the flags --after and --after_items make."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from jax.sharding import Mesh

from engine.checkpoint.card import Checkpoint
from engine.display import counted, shortened
from engine.errors import AssayError
from engine.lists.reply_starts import read_reply_starts
from engine.runs.schema import parted
from engine.scoring.rows import reply_rows, token_rows
from engine.settings import AfterSettings, SweepSettings
from engine.sweep.repeated import repeat_rewards
from engine.text.chat_template import with_reply_start
from launch.common import scoring
from launch.common.command import Given, paths
from launch.common.config import made
from launch.common.text import say

_TOKEN = 256  # positions of a token, at most, where its text is tokenised anew
_SHOWN = 40  # characters of a reply


def prompts(given: Given, plain: Mapping[str, str], *, only: bool) -> Mapping[str, str]:
    """Prompt id -> text of the prompts with a reply start that the command line names.

    Args:
      given: the parsed flags.
      plain: the prompts of the command, by id.
      only: whether the command has no other use for `plain`.

    Raises:
      AssayError: no text, no such file or nothing in it; --prompt beside a file with prompts.
    """
    texts = [with_reply_start(prompt, text) for prompt in plain.values() for text in given.after]
    if "" in given.after:
        raise AssayError("--after='': empty; allowed: the text of a reply")
    if given.after_items is not None:
        path = Path(paths(given, "after_items")[0])
        settings = made(AfterSettings, given.config.after)
        sampled = read_reply_starts(path, settings, given.config.seed)
        has_prompts = sampled.replies[0][0] is not None
        if has_prompts and given.prompt and only and not given.after:
            raise AssayError("the rows of --after_items have prompts; leave out --prompt")
        for prompt, reply in sampled.replies:
            own = plain.values() if prompt is None else [prompt]
            texts += [with_reply_start(text, reply) for text in own]
        more = f"; {sampled.left_out:,} replies cannot be used" if sampled.left_out else ""
        rows = ", ".join(map(str, sampled.rows))
        replies = counted(len({*sampled.replies}), "reply")
        say(f"note: behind {replies} of {path} (rows {rows}){more}")
    return {scoring.prompt_id(text): text for text in texts}


def fitting(
    models: Sequence[Checkpoint], prompts: Mapping[str, str], mode: str, pooling: str
) -> Mapping[str, str]:
    """The prompts (id -> text) with reply starts that leave every model room for each token.

    The others are named on standard error. Raises AssayError where none is left.
    """

    def fits(model: Checkpoint, text: str) -> bool:
        most = model.card.decoder.max_positions
        alone = reply_rows(model, text, [""], "text", pooling).extent()[0]
        if alone + _TOKEN <= most:
            return True
        return alone < most and token_rows(model, text, mode, pooling).extent()[0] <= most

    kept = {p: text for p, text in prompts.items() if all(fits(model, text) for model in models)}
    long = [
        repr(shortened(parted(text)[1], _SHOWN)) for p, text in prompts.items() if p not in kept
    ]
    least = min((model.card.decoder.max_positions for model in models), default=0)
    if long:
        size, first = counted(len(long), "reply"), ", ".join(long[:3])
        note = f"{size} cannot be used, since too long for the {least:,} tokens of a model: {first}"
        if not kept:
            raise AssayError(f"{note}; allowed: shorter ones")
        say(f"note: {note}{', …' if len(long) > 3 else ''}")
    return kept


def repeat(
    models: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    settings: SweepSettings,
    mesh: Mesh,
) -> int:
    """Repeats the tokens that move the rewards of swept replies most; returns the new rewards."""
    texts = dataclasses.replace(settings, mode="text", lens=False)
    return repeat_rewards(models, prompts, run, texts, mesh)
