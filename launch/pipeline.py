"""Pipelines: lists of steps, each of which keeps finished work and resumes by itself.

`assay report`, `assay demo` and `assay reproduce` are the lists `STEPS` of their modules: a new
step is a function and one line there. The steps here are those of more than one list.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from etils import epath
from jax.sharding import Mesh

from engine.checkpoint.card import Checkpoint
from engine.display import counted
from engine.lists.files import ConversationList
from engine.settings import LogprobSettings, SweepSettings
from engine.sweep.logprob_jobs import sweep_logprobs
from engine.sweep.reward_jobs import sweep_rewards
from launch.common import inputs, scoring, text

Work = TypeVar("Work")
Say = Callable[[str], None]  # prints a line of progress
Step = Callable[[Work, Say], None]


@dataclasses.dataclass(kw_only=True)
class Scored:
    """What the steps below take, and what they have made so far."""

    root: epath.Path  # folder of everything that is written
    prompts: Mapping[str, str]  # prompt id -> text, of the sweeps
    # Name of the list of replies, and the replies; None for none.
    items: tuple[str, Sequence[str]] | None
    word_prompts: Mapping[str, str]  # prompt id -> text, of the list
    settings: SweepSettings  # of the reward models' sweeps
    word_settings: SweepSettings  # of the reward models' lists
    logprobs: LogprobSettings  # of the language models
    mesh: Mesh
    # A list whose rows have prompts of their own, or None.
    conversations_list: ConversationList | None = None
    models: Sequence[Checkpoint] = ()  # checkpoints of the reward models
    language: Sequence[Checkpoint] = ()  # those of the language models
    new: int = 0  # rewards and log-probabilities that this call has computed

    @property
    def run(self) -> str:
        """Folder of the run."""
        return str(self.root / "run")


def sweep(work: Scored, say: Say) -> None:
    """Scores every token; the ends of each model's ranking are printed as soon as it is there."""
    say(f"scoring every token under {counted(len(work.prompts), 'prompt')} into {work.run}")
    if work.prompts:
        where = (work.prompts, work.run, work.settings, work.mesh)
        work.new += sweep_rewards(work.models, *where, on_rewards=scoring.show_extremes)


def score(work: Scored, say: Say) -> None:
    """Scores the list."""
    if work.items is None:
        return
    name, replies = work.items
    under = counted(len(work.word_prompts), "prompt")
    say(f"scoring {counted(len(replies), 'reply')} of {name} under {under}")
    where = (work.word_prompts, work.run, work.word_settings, work.mesh)
    show = scoring.show_models
    work.new += sweep_rewards(work.models, *where, on_outcomes=show, items=work.items)


def judge(work: Scored, say: Say) -> None:
    """Scores the list of conversations under their own prompts, and says what people chose."""
    listed = work.conversations_list
    if listed is None:
        return
    say(f"scoring {listed.size_in_words} of {listed.name} under their own prompts")
    where = (work.run, work.word_settings, work.mesh)
    work.new += inputs.score(work.models, listed, *where, scoring.show_models)


def logprobs(work: Scored, say: Say) -> None:
    """Log-probabilities of every token and of the list, in the language models."""
    if not work.language:
        return
    models = counted(len(work.language), "language model")
    say(f"log-probabilities of {models} under the same prompts")
    where = (work.run, work.logprobs, work.mesh)
    if work.prompts:
        work.new += sweep_logprobs(work.language, work.prompts, *where)
    if work.items is not None:
        where = (work.word_prompts, *where)
        show = scoring.show_first_rows
        work.new += sweep_logprobs(work.language, *where, items=work.items, on_outcomes=show)


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


def run_each(
    steps: Sequence[Step[Work]], works: Mapping[str, Callable[[], Work]]
) -> dict[str, str]:
    """Runs the steps for each model by name; one that fails does not stop the next.

    What the steps take is made when they begin. Returns why each failed, "" where it did not.
    """
    failures = dict.fromkeys(works, "")
    for number, (name, make) in enumerate(works.items(), 1):
        text.say(f"[{number}/{len(works)}] {name}")
        try:
            work = make()
            for step in steps:
                step(work, functools.partial(_say_after, f"{name}: "))
        except Exception as error:  # whatever it is, the other models need not wait for it
            failures[name] = text.one_line(error)
            text.say(f"{name}: {failures[name]}; going on with the other models")
    return failures


def _say_after(prefix: str, line: str) -> None:
    text.say(f"{prefix}{line}")
