"""`--reward-of=<policy>,<reference>`: two language models as one reward model."""

import dataclasses
from collections.abc import Sequence

from engine.display import counted
from engine.errors import AssayError
from engine.lists.files import ConversationList
from engine.settings import ImplicitSettings, Settings, SweepSettings
from engine.sweep.logprob_jobs import Pair, sweep_pair
from launch.common import inputs, scoring, sources
from launch.common.command import CommandResult, Given, paths, run_lock
from launch.common.config import keys_set, made

# Settings of rewards that a head reads.
_OF_HEADS = [
    field.name
    for field in dataclasses.fields(SweepSettings)
    if field not in dataclasses.fields(Settings)
]


def computed(
    given: Given,
    command: str,
    items: tuple[str, Sequence[str]] | ConversationList | None = None,
    probes: ConversationList | None = None,
) -> CommandResult:
    """Rewards of every token, or of a list, into the run; returns the command's last line.

    A list of conversations is scored under its own prompts, and so are its edited replies, if any.

    Raises:
      AssayError: not two language models, flags and settings that only reward models have, and what
        `sweep_pair` refuses.
    """
    flag = f"--reward-of={','.join(given['reward-of'].value)}"
    if len(given["reward-of"].value) != 2:
        raise AssayError(f"{flag}; allowed: two models, <policy>,<reference>")
    if given.checkpoint:
        raise AssayError(
            f"--checkpoint with {flag}; score them in separate commands with the same --run"
        )
    if given.shard is not None:
        raise AssayError(f"--shard with {flag}, whose two models are one share; remove it")
    for name in _OF_HEADS:
        if name in keys_set(given):
            raise AssayError(
                f"{name}={given.config[name]!r} with {flag}: language models have no such setting"
            )
    run = paths(given, "run")[0]
    names = paths(given, "reward-of")
    policy, reference = sources.checkpoints(names, given.config, given.config.verify)
    pair = Pair(policy, reference, made(ImplicitSettings, given.config))
    listed = items if isinstance(items, ConversationList) else None
    prompts = None if listed else scoring.prompts(given)
    if listed:
        inputs.check_rendering(pair.checkpoints, listed)
    arguments = (pair, prompts, run, *scoring.settings(Settings, given.config, pair.checkpoints))
    with run_lock(command, run, wait=given.wait):
        rewards = sweep_pair(
            *arguments,
            items[:3] if isinstance(items, ConversationList) else items,
            on_rewards=scoring.show_extremes,
            on_outcomes=scoring.show_models,
        )
        if listed:
            inputs.record(listed, run, [pair.slug])
            if probes:
                rewards += sweep_pair(*arguments, probes[:3])
                inputs.record(probes, run, [pair.slug])
            size = listed.size_in_words
            return scoring.judged(run, listed.name, size, [pair.slug], rewards)
    assert prompts is not None
    place = f"{run}/{f'items/{items[0]}' if items else 'scores'}"
    what = scoring.outcome(rewards, "rewards")
    text = f"{place}: {pair.slug} × {counted(len(prompts), 'prompt')}, {what}"
    return scoring.result(text, run, [pair.slug], prompts.values())
