"""What the page asks for, computed: rankings, rewards of replies, searches; and what it keeps.

A ranking is a sweep of one prompt: the same rows in the same parts and steps by the same programs,
so that what is kept has the bytes that `assay sweep` writes. Only its first words are scored twice,
since they are there sooner in a small step.
"""

import base64
import dataclasses
import functools
import itertools
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from flax import nnx
from jax.sharding import Mesh

from analysis.words import lexicons
from analysis.words.matching import match
from engine import display
from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import abstract
from engine.errors import AssayError
from engine.runs.identity import Json
from engine.runs.result import ranges
from engine.scoring.reward_passes import RewardScorer, Shared, check_finite
from engine.scoring.rows import RewardRows, ending_rows, reply_rows, token_rows
from engine.search.gcg import Trace, run_search
from engine.search.objective import SearchObjective
from engine.settings import DIRECTIONS, SearchSettings, SweepSettings
from engine.sweep.outcomes import memory_errors
from engine.sweep.reward_jobs import check_vocabulary, load_scorer, sweep_rewards
from engine.sweep.setup import vocabulary_of
from engine.types import PromptIds
from launch.common.command import run_lock
from launch.common.scoring import prompt_id
from launch.serving.desk import Desk, Job
from launch.serving.requests import Question

FIRST = 512  # words that are ranked before the rest, in steps of:
_FIRST_STEP = 256
# Positions that prefixes of first words and of replies are padded to a multiple of: few programs.
_ROOM = 128
_PLAIN = r"^ ?[a-z]{3,}$"  # words of a vocabulary without a list of frequencies
_ANSWERS = 16  # rankings that can still be kept
_EXAMPLE = "What, in one word, is the greatest thing ever?"
_REPLIES = ("love", "a few words of a reply", "a longer reply, of two or three lines of text or so")


@dataclasses.dataclass(frozen=True)
class Model:
    """A model on devices, ready to answer."""

    checkpoint: Checkpoint
    scorer: RewardScorer  # as in a sweep

    @functools.cached_property
    def detailed(self) -> RewardScorer:
        """The scorer whose columns are the reward and the objectives, if the head has any."""
        scorer, card = self.scorer, self.checkpoint.card
        if not card.reward_head.objectives:
            return scorer
        dtype = nnx.merge(scorer.graph, scorer.params).decoder.embedding[...].dtype
        heads = [card.reward_head]
        graph, _ = abstract(card.decoder, heads, scorer.mesh, dtype, objectives="values")
        return RewardScorer.build(graph, scorer.params, scorer.mesh, step_size=scorer.step_size)

    @functools.cached_property
    def vocabulary(self) -> pl.DataFrame:
        """What a search needs to know of the tokens."""
        return vocabulary_of(self.checkpoint)

    @functools.cached_property
    def first_words(self) -> Sequence[int]:
        """Ids of the words that a ranking begins with."""
        return common_words(self.checkpoint.tokens, FIRST)

    def prefill(self, prompt: PromptIds) -> Shared:
        """The prefix in one of few lengths; a sweep's is shorter, which may change last bits."""
        length = -(-len(prompt.prefix) // _ROOM) * _ROOM
        return self.detailed.prefill(prompt, room=length - len(prompt.prefix))


@dataclasses.dataclass(frozen=True)
class Held(RewardScorer):
    """The scorer of a sweep whose numbers are already known; the self-check computes its own."""

    numbers: np.ndarray  # float32 [1, V]

    def score(
        self,
        prefix: Shared | None,
        rows: RewardRows,
        start: int,
        stop: int,
        advance: Callable[[int], object] = lambda candidates: None,
        on_step: object = None,
    ) -> list[np.ndarray]:
        """Numbers of rows [start, stop)."""
        advance(stop - start)
        return [self.numbers[:, start:stop]]


def load_models(
    checkpoints: Sequence[Checkpoint], settings: SweepSettings, mesh: Mesh, run: str | None
) -> list[Model]:
    """Puts models on the devices, one after the other, with the steps that a sweep would take.

    Raises:
      AssayError: models that do not fit, or that the run cannot take.
    """
    models = []
    with tempfile.TemporaryDirectory() as nowhere:
        folder = run or os.path.join(nowhere, "run")
        for checkpoint in checkpoints:
            probe = {"probe-of-serve": _EXAMPLE}
            [job] = check_vocabulary([checkpoint], probe, folder, settings, mesh).values()
            step = job.step_size
            with memory_errors([checkpoint.card.slug], mesh, "step_size", step):
                models.append(Model(checkpoint, load_scorer(settings, mesh, [checkpoint], step)))
    return models


class Explorer:
    """Models, the desk at which they work, and what they have answered.

    Args:
      models: one or two.
      settings: of the sweep that a ranking is; each model has its own step.
      run: the folder that questions are kept in; None: they cannot be kept.
    """

    def __init__(self, models: Sequence[Model], settings: SweepSettings, run: str | None = None):
        slugs = [model.checkpoint.card.slug for model in models]
        if len(set(slugs)) < len(slugs):
            raise AssayError(f"model {slugs[0]!r} was given twice; names must differ")
        self.models, self.settings, self.run, self.desk = models, settings, run, Desk()
        # Of the desk's thread alone.
        self._answers: dict[int, tuple[Question, np.ndarray]] = {}
        self._numbers = itertools.count(1)

    @functools.cached_property
    def about(self) -> Json:
        """What the page shows before the first question."""
        of_replies = {" ", "\t"}  # need no token of their own
        texts = of_replies.union(*(model.checkpoint.tokens.values() for model in self.models))
        return {
            "models": [
                {
                    "slug": model.checkpoint.card.slug,
                    "source": model.checkpoint.card.source,
                    "tokens": len(model.checkpoint.tokens),
                    "tokenizer": model.checkpoint.card.tokenizer_hash,
                }
                for model in self.models
            ],
            "run": self.run,
            "first": FIRST,
            "example": _EXAMPLE,
            "display": display.signs(texts),
        }

    def tokens(self, model: int) -> list[str]:
        """The tokens of a model, in the order of the rows of its rankings."""
        return list(self.models[model].checkpoint.tokens.values())

    def warm_up(self) -> None:
        """Compiles what the first question and its first replies need."""
        for model in self.models:
            rows = self._rows(model, _EXAMPLE)
            prefix = model.scorer.prefill(rows.prompt)
            step = min(model.scorer.mesh.shape["data"] * model.scorer.step_size, len(rows))
            model.scorer.score(prefix, self._rows(model, _EXAMPLE), 0, step)
            self._first(model, _EXAMPLE, lambda rows, numbers: None)
            for reply in _REPLIES:
                self._reply_numbers(model, _EXAMPLE, [reply])

    def first_words(self, job: Job, question: Question) -> None:
        """Tells `rows` with the rewards of common words, in a few small steps."""
        model = self.models[question.model]
        with self._memory(model):
            self._first(model, question.prompt, functools.partial(self._tell, job, model))

    def rank(self, job: Job, question: Question) -> None:
        """Tells `rows` with their rewards as they are computed, then `done`, with a number to keep.

        The first words' rewards are told again, perhaps with other last bits.
        """
        model = self.models[question.model]
        scorer = model.scorer
        with self._memory(model):
            rows = self._rows(model, question.prompt)
            rows.check(model.checkpoint.card.decoder)
            prefix = scorer.prefill(rows.prompt)
            numbers = np.empty((1, len(rows)), np.float32)
            for start, stop in ranges(len(rows), self.settings.part_size):

                def on_step(places: np.ndarray, values: np.ndarray, start: int = start) -> None:
                    self._tell(job, model, start + places, values)
                    self.desk.between(job)

                [numbers[:, start:stop]] = scorer.score(prefix, rows, start, stop, on_step=on_step)
                places, sources = rows.duplicates(start, stop)
                numbers[:, start + places] = numbers[:, sources]
                if len(places):
                    self._tell(job, model, start + places, numbers[:, sources])
        answer = next(self._numbers)
        self._answers[answer] = question, numbers
        self._answers.pop(answer - _ANSWERS, None)
        job.tell("done", answer=answer)

    def reply(self, job: Job, question: Question, replies: Sequence[str]) -> None:
        """Tells `replies`: for each one the reward, and the objectives that it is made of."""
        model = self.models[question.model]
        with self._memory(model):
            numbers = self._reply_numbers(model, question.prompt, replies)
        names = model.detailed.columns[0]
        check_finite(model.checkpoint.card.slug, "reply", 0, names, numbers)
        job.tell("replies", columns=list(names), numbers=numbers.T.tolist())

    def running(self, job: Job, question: Question, reply: str) -> None:
        """Tells `running`: the tokens of a reply, and the reward if it ended at each of them."""
        model = self.models[question.model]
        with self._memory(model):
            how = reply, self.settings.pooling
            rows = ending_rows(model.checkpoint, question.prompt, *how)
            rows.check(model.checkpoint.card.decoder)
            [numbers] = model.detailed.score(model.prefill(rows.prompt), rows, 0, len(rows))
        check_finite(model.checkpoint.card.slug, "token", 0, ["reward"], numbers[:1])
        job.tell("running", tokens=rows.columns["token"], rewards=numbers[0].tolist())

    def search(self, job: Job, question: Question, given: dict[str, Any]) -> None:
        """Tells `step` with the best reply after each step of a search, then `done`."""
        model, dtype = self.models[question.model], self.settings.dtype
        settings = SearchSettings.of(**given, dtype=dtype, every=1)
        split = model.checkpoint.template.split(question.prompt)
        objective = SearchObjective.build(model.checkpoint, split, model.vocabulary, settings)
        sign = DIRECTIONS[settings.direction]

        def progress(steps: int, trace: Trace) -> None:
            rewards, ids = trace.best(0, settings)
            if np.isfinite(rewards[-1]):
                text = objective.text(ids[-1])
                job.tell("step", step=steps, reward=sign * float(rewards[-1]), text=text)
            self.desk.between(job)

        job.tell("began")
        with self._memory(model):
            run_search(objective, model.scorer, progress=progress)
        job.tell("done")

    def keep(self, job: Job, answer: int) -> None:
        """Writes a ranking into the run, as a sweep would; tells `kept`, with a line."""
        held = self._answers.get(answer)
        if self.run is None or held is None:
            raise AssayError("keep: no such ranking, or no --run; rank the question again")
        question, numbers = held
        model, prompt = self.models[question.model], prompt_id(question.prompt)
        step = model.scorer.step_size
        settings = dataclasses.replace(self.settings, step_size=step, check_memory=False)
        arguments = {prompt: question.prompt}, self.run, settings, model.scorer.mesh
        with run_lock("serve", self.run), self._memory(model):
            scorer = Held(**vars(model.scorer), numbers=numbers)
            count = sweep_rewards([model.checkpoint], *arguments, load=lambda *_: scorer)
        what = f"{count:,} rewards" if count else "there already"
        job.tell("kept", line=f"{model.checkpoint.card.slug} under {prompt}: {what}")

    def _rows(self, model: Model, prompt: str, chosen: Sequence[int] | None = None) -> RewardRows:
        how = self.settings.mode, self.settings.pooling
        return token_rows(model.checkpoint, prompt, *how, chosen)

    def _first(
        self, model: Model, prompt: str, on_numbers: Callable[[np.ndarray, np.ndarray], object]
    ) -> None:
        """Scores the first words; `found` takes rows of the whole ranking, and their numbers."""
        ids, known = model.first_words, np.array(model.checkpoint.token_ids)
        for start in range(0, len(ids), _FIRST_STEP):
            chosen = sorted(ids[start : start + _FIRST_STEP])
            rows = self._rows(model, prompt, chosen)
            rows.check(model.checkpoint.card.decoder)
            if start == 0:
                prefix = model.prefill(rows.prompt)
            [numbers] = model.detailed.score(prefix, rows, 0, len(rows))
            on_numbers(np.searchsorted(known, chosen), numbers[:1])

    def _reply_numbers(self, model: Model, prompt: str, replies: Sequence[str]) -> np.ndarray:
        """Rewards and objectives of replies: float32 [columns, replies]."""
        how = self.settings.mode, self.settings.pooling
        rows = reply_rows(model.checkpoint, prompt, replies, *how)
        rows.check(model.checkpoint.card.decoder)
        [numbers] = model.detailed.score(model.prefill(rows.prompt), rows, 0, len(rows))
        return numbers

    @staticmethod
    def _tell(job: Job, model: Model, places: np.ndarray, numbers: np.ndarray) -> None:
        """Tells rows and their rewards; raises AssayError for those that are not finite."""
        ids = [model.checkpoint.token_ids[place] for place in places]
        check_finite(model.checkpoint.card.slug, "token_id", 0, ["reward"], numbers, ids)
        job.tell("rows", rows=_packed(places, "<u4"), rewards=_packed(numbers[0], "<f4"))

    @staticmethod
    def _memory(model: Model) -> Any:
        scorer = model.scorer
        slug = model.checkpoint.card.slug
        return memory_errors([slug], scorer.mesh, "step_size", scorer.step_size)


def _packed(values: np.ndarray, dtype: str) -> str:
    """Little-endian values as base64."""
    return base64.b64encode(values.astype(dtype).tobytes()).decode("ascii")


def common_words(tokens: Mapping[int, str], count: int) -> list[int]:
    """Ids of the tokens that are the most frequent words: up to `count`, the most frequent first.

    Frequencies are those of the package `wordfreq`; without it the first plain words of the
    vocabulary are taken. Of the tokens of one word, the one without a space counts.
    """
    columns = {"token_id": list(tokens), "token": list(tokens.values())}
    frame = pl.DataFrame(columns, schema={"token_id": pl.UInt32, "token": pl.String})
    try:
        matched = match(frame, lexicons.frequency(), trim=True)
    except lexicons.LexiconError:
        matched = frame.filter(pl.col("token").str.contains(_PLAIN)).with_columns(
            word=pl.col("token").str.strip_chars(), per_million=pl.lit(1.0)
        )
    length = pl.col("token").str.len_chars()
    ranked = matched.sort("per_million", length, "token_id", descending=[True, False, False])
    first = ranked.unique("word", keep="first", maintain_order=True).head(count)
    ids: list[int] = first["token_id"].to_list()
    return ids
