"""Pipelines: lists of steps, each of which keeps finished work and resumes by itself.

`assay report` and `assay demo` are the lists `STEPS` of their modules: a new step is a function and
one line there. The steps here are those of both lists.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from etils import epath
from ml_collections import ConfigDict

from engine.checkpoint.card import Checkpoint
from engine.display import counted
from engine.lists.files import ConversationList
from engine.settings import AUTO, LogprobSettings, SweepSettings
from engine.sweep.logprob_jobs import sweep_logprobs
from engine.sweep.reward_jobs import sweep_rewards
from launch.common import inputs, scoring, text, worst_pairs

Work = TypeVar("Work")
Say = Callable[[str], None]  # prints a line of progress
Step = Callable[[Work, Say], None]


@dataclasses.dataclass(kw_only=True)
class Scored:
    """What the steps below take, and what they have made so far."""

    config: ConfigDict  # of the command
    root: epath.Path  # folder of everything that is written
    prompts: Mapping[str, str]  # prompt id -> text, of the sweeps
    # Name of the list of replies, and the replies; None for none.
    items: tuple[str, Sequence[str]] | None
    word_prompts: Mapping[str, str]  # prompt id -> text, of the list
    # A list whose rows have prompts of their own, or None.
    conversations_list: ConversationList | None = None
    probes: ConversationList | None = None  # its edited replies, or None
    # Prompt id -> text, of prompts with a reply start.
    behind_prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    models: Sequence[Checkpoint] = ()  # checkpoints of the reward models
    language: Sequence[Checkpoint] = ()  # those of the language models
    new: int = 0  # rewards and log-probabilities that this call has computed

    def __post_init__(self) -> None:
        self.settle()

    def settle(self) -> None:
        """Reads the settings for the models known so far, on which the dtype of `auto` depends.

        Raises AssayError for a value that is not allowed, whatever the models.
        """
        self.settings, self.mesh = scoring.settings(SweepSettings, self.config, self.models)
        mode = "text" if self.settings.mode == AUTO else self.settings.mode  # as `assay score`
        self.word_settings = dataclasses.replace(self.settings, mode=mode, lens=False)
        self.logprobs, _ = scoring.settings(LogprobSettings, self.config, self.language)

    @property
    def run(self) -> str:
        """Folder of the run."""
        return str(self.root / "run")


def sweep(work: Scored, say: Say) -> None:
    """Scores every token; the ends of each model's ranking are printed as soon as it is known."""
    say(f"scoring every token under {counted(len(work.prompts), 'prompt')} into {work.run}")
    if work.prompts:
        arguments = (work.prompts, work.run, work.settings, work.mesh)
        work.new += sweep_rewards(work.models, *arguments, on_rewards=scoring.show_extremes)


def behind(work: Scored, say: Say) -> None:
    """Scores every token behind replies, and repeats those that move rewards most."""
    from launch.common import behind_replies  # of which most reports have none

    plain = dataclasses.replace(work.settings, lens=False)
    prompts = behind_replies.fitting(work.models, work.behind_prompts, plain.mode, plain.pooling)
    say(f"scoring every token behind {counted(len(prompts), 'reply')} into {work.run}")
    arguments = (prompts, work.run, plain, work.mesh)
    work.new += sweep_rewards(work.models, *arguments, on_rewards=scoring.show_extremes)
    work.new += behind_replies.repeat(work.models, *arguments)


def score(work: Scored, say: Say) -> None:
    """Scores the list."""
    assert work.items is not None
    name, replies = work.items
    under = counted(len(work.word_prompts), "prompt")
    say(f"scoring {counted(len(replies), 'reply')} of {name} under {under}")
    arguments = (work.word_prompts, work.run, work.word_settings, work.mesh)
    show = scoring.show_models
    work.new += sweep_rewards(work.models, *arguments, on_outcomes=show, items=work.items)


def judge(work: Scored, say: Say) -> None:
    """Scores the list of conversations under their own prompts, and says what people chose."""
    listed = work.conversations_list
    assert listed is not None
    say(f"scoring {listed.size_in_words} of {listed.name} under their own prompts")
    arguments, show = (None, work.run, work.word_settings, work.mesh), scoring.show_models
    work.new += sweep_rewards(work.models, *arguments, on_outcomes=show, items=listed[:3])
    slugs = [model.card.slug for model in work.models]
    inputs.record(listed, work.run, slugs)
    for model in work.models:
        cut = worst_pairs.cut_replies(listed, work.run, model.card.slug)
        if cut is not None:
            work.new += sweep_rewards([model], *arguments, items=cut[:3])
    if work.probes is not None:
        work.new += sweep_rewards(work.models, *arguments, items=work.probes[:3])
        inputs.record(work.probes, work.run, slugs)


def logprobs(work: Scored, say: Say) -> None:
    """Log-probabilities of every token and of the list, in the language models."""
    models = counted(len(work.language), "language model")
    say(f"log-probabilities of {models} under the same prompts")
    arguments = (work.run, work.logprobs, work.mesh)
    if work.prompts:
        work.new += sweep_logprobs(work.language, work.prompts, *arguments)
    if work.items is not None:
        arguments = (work.word_prompts, *arguments)
        show = scoring.show_first_rows
        work.new += sweep_logprobs(work.language, *arguments, items=work.items, on_outcomes=show)


def run(
    steps: Sequence[Step[Work]],
    work: Work,
    asked: Mapping[Any, object] = MappingProxyType({}),  # Any: steps of several kinds of work
) -> None:
    """Runs steps in order; each line of progress begins with the step's number.

    A step that stands in `asked` is left out if nothing there asks for it.
    """
    steps = [step for step in steps if asked.get(step, True)]
    for number, step in enumerate(steps, 1):
        step(work, functools.partial(_say_after, f"{number}/{len(steps)} "))


def _say_after(prefix: str, line: str) -> None:
    text.say(f"{prefix}{line}")
