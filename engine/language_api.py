"""The public API of language models, and of two of them as one reward model."""

import itertools
import os
import sys
import traceback
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from jax.sharding import Mesh

from engine import programs
from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import restore
from engine.display import progress
from engine.errors import AssayError, prefixed
from engine.lists.rows import RowReader
from engine.mesh import checked_mesh
from engine.planning import admit
from engine.runs import implicit
from engine.scoring.language_passes import LanguageScorer
from engine.scoring.reward_passes import check_finite, default_dtype, dtype_named
from engine.scoring.rows import Rows
from engine.settings import ImplicitSettings
from engine.sweep.logprob_jobs import Pair, conversation_replies, language_rows
from engine.sweep.loop import Scorer
from engine.sweep.setup import unread_note
from engine.text.chat_template import check_prompt, checked_message, checked_text
from engine.text.unread import unread_keys
from engine.types import Prompt, PromptIds

_JUDGED = ("reward_chosen", "reward_rejected", "margin", "right")  # columns of `score_pairs`
_SHOWN_AFTER_S = 2.0  # seconds of a pass, after which its progress bar appears


def reward_of(
    policy: str | os.PathLike[str] | Checkpoint,
    reference: str | os.PathLike[str] | Checkpoint,
    *,
    form: str = "chat",
    beta: float = 1.0,
    dtype: str | None = None,
    mesh: Mesh | None = None,
) -> "ImplicitReward":
    """Loads two language models as one reward model: β (log π - log π_ref), the reward of DPO.

    Args:
      policy: the checkpoint whose probability counts for a reply.
      reference: the one whose probability counts against it; both are in memory.
      form: how both are given a prompt: `chat`, in the chat template, or `pretrained`, as text.
      beta: the factor β; 1 leaves rewards in nats.
      dtype: as in `load`.
      mesh: as in `load`.

    Raises:
      AssayError: as `load`; language models that read other token ids.
    """
    programs.enable_cache()
    mesh = checked_mesh(mesh)
    first, second = Checkpoint.open(policy), Checkpoint.open(reference)
    pair = Pair(first, second, ImplicitSettings(form=form, beta=beta))
    pair.check({})
    chosen = dtype_named(dtype or default_dtype(mesh.devices.flat[0].platform, pair.checkpoints))
    scorers = []
    for model in pair.checkpoints:
        step = admit(model, mesh, str(chosen), None, check=True)
        scorers.append(LanguageScorer.build(*restore([model], mesh, chosen), mesh, step_size=step))
    return ImplicitReward(pair, scorers)


class ImplicitReward:
    """Two language models on devices, ready to score as one reward model."""

    def __init__(self, pair: Pair, scorers: Sequence[LanguageScorer]):
        self._pair, self._scorers = pair, scorers

    def __repr__(self) -> str:
        return f"ImplicitReward({self.slug!r}, {self._pair.settings})"

    @property
    def slug(self) -> str:
        """The model's name."""
        return self._pair.slug

    def sweep(self, prompt: Prompt) -> pl.DataFrame:
        """Rewards of every token as the next one, as `RewardModel.sweep` returns them.

        `prompt` is the user's turn, or messages as in `RewardModel.sweep`.
        """
        return ranked(self._pair.policy.tokens, {"reward": self._score(prompt)})

    def score(self, prompt: Prompt, responses: str | Sequence[str]) -> np.ndarray:
        """Rewards of replies of any length: float32 [responses], in their order."""
        replies = listed(responses)
        return self._score(prompt, replies) if replies else np.empty(0, np.float32)

    def score_pairs(self, frame: Any) -> pl.DataFrame:
        """Rewards of pairs of replies: what `RewardModel.score_pairs` returns, and takes."""
        pairs = Pairs.of(frame)
        self._pair.check({}, pairs.table)
        form = self._pair.settings.form
        rows = conversation_replies(self._pair.policy, pairs.table, form)
        return pairs.judged(self._rewards(rows))

    def _score(self, prompt: Prompt, replies: Sequence[str] = ()) -> np.ndarray:
        """Rewards of replies, or of every token: float32 [rows]."""
        pair, prompt = self._pair, checked(prompt)
        pair.check({str(prompt): prompt}, replies)
        form = pair.settings.form
        return self._rewards(language_rows(pair.policy, prompt, form, replies or None))

    def _rewards(self, rows: Rows) -> np.ndarray:
        """Rewards of rows, which are the same ids in both models: float32 [rows]."""
        pair = self._pair
        warn_unread(pair.policy, rows.prompt, rows.unread)
        [[policy], [reference]] = (
            scored(checkpoint, scorer, rows)
            for checkpoint, scorer in zip(pair.checkpoints, self._scorers, strict=True)
        )
        rewards = implicit.difference(policy, reference, pair.settings.beta)
        check_finite(self.slug, next(iter(rows.part_columns)), 0, ["reward"], rewards[None])
        return rewards


class LanguageModel:
    """A language model on devices: what it would say."""

    def __init__(self, checkpoint: Checkpoint, scorer: LanguageScorer):
        self._checkpoint, self._scorer = checkpoint, scorer

    def __repr__(self) -> str:
        card = self._checkpoint.card
        return f"LanguageModel({card.slug!r}, {card.decoder.num_layers} layers)"

    @property
    def slug(self) -> str:
        """The model's name."""
        return str(self._checkpoint.card.slug)

    def sweep(self, prompt: Prompt, *, form: str = "chat") -> pl.DataFrame:
        """Log-probabilities (nats) of every token as the next one.

        Args:
          prompt: the user's turn, or messages as in `RewardModel.sweep`.
          form: `chat`, in the chat template, or `pretrained`, as text.

        Returns:
          token_id u32, token str, logprob f32; best first, equal ones by id.
        """
        return ranked(self._checkpoint.tokens, {"logprob": self._score(prompt, (), form)})

    def logprobs(
        self, prompt: Prompt, responses: str | Sequence[str], *, form: str = "chat"
    ) -> np.ndarray:
        """Log-probabilities (nats) of replies: float32 [responses], the sum over their tokens.

        `prompt` and `form`: see `sweep`.
        """
        replies = listed(responses)
        return self._score(prompt, replies, form) if replies else np.empty(0, np.float32)

    def _score(self, prompt: Prompt, replies: Sequence[str], form: str) -> np.ndarray:
        rows = language_rows(self._checkpoint, checked(prompt), form, replies or None)
        warn_unread(self._checkpoint, rows.prompt)
        numbers = scored(self._checkpoint, self._scorer, rows)
        check_finite(self.slug, next(iter(rows.part_columns)), 0, ["logprob"], numbers)
        return numbers[0]


class Pairs(NamedTuple):
    """Pairs of replies that a caller gives."""

    given: pl.DataFrame  # the columns as given
    table: pl.DataFrame  # the conversations: `schema.LIST_COLUMNS`

    @classmethod
    def of(cls, frame: Any) -> "Pairs":  # Any: also of pandas, which is not imported
        """Reads a polars or pandas frame, or a list of rows; raises AssayError for other data."""
        try:
            is_polars = isinstance(frame, pl.DataFrame)
            if is_polars:
                rows, given = frame.to_dicts(), frame
            else:
                rows = frame if isinstance(frame, list) else frame.to_dict("records")
                rows = [
                    {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in row.items()}
                    for row in rows
                ]
                given = pl.DataFrame(rows, infer_schema_length=None, strict=False)
        except (AttributeError, TypeError, pl.exceptions.PolarsError) as error:
            raise AssayError(
                f"frame: {type(frame).__name__}; allowed: a polars or pandas frame, or a list of "
                f"dicts whose columns each have one type ({str(error).splitlines()[0]})"
            ) from error
        with prefixed("frame"):
            if taken := sorted({*given.columns} & {*_JUDGED}):
                raise AssayError(f"it has a column {taken[0]!r} already; rename it")
            table = RowReader(given.columns, has_nulls=is_polars).table(rows)
            if "chosen" not in table["side"]:
                raise AssayError("no pairs; allowed: columns prompt, chosen and rejected")
            if table.select("row", "side").is_duplicated().any():
                raise AssayError("a list of replies; write a row for each pair, or `assay score`")
        return cls(given, table)

    def judged(self, rewards: np.ndarray) -> pl.DataFrame:
        """What `RewardModel.score_pairs` returns; `rewards` are of the table's conversations."""
        chosen, rejected = map(pl.Series, rewards.reshape(-1, 2).T)  # of each row in turn
        margin = chosen - rejected
        columns = dict(zip(_JUDGED, (chosen, rejected, margin, margin > 0), strict=True))
        return self.given.with_columns(**columns)


def scored(checkpoint: Checkpoint, scorer: Scorer, rows: Rows) -> np.ndarray:
    """Columns of a scorer of one model for some rows: float32 [columns, rows]."""
    rows.check(checkpoint.card.decoder)
    opened = scorer.prefill(rows.prompt) if rows.prompt.prefix else None  # each has its own
    what = checkpoint.card.slug
    with progress(len(rows), rows.unit, what=what, delay_s=_SHOWN_AFTER_S) as bar:
        [numbers] = scorer.score(opened, rows, 0, len(rows), bar.update)
    return numbers


def checked(prompt: Prompt | Sequence[str]) -> Prompt:
    """A prompt; raises AssayError for one that is empty, or messages that a reply cannot follow."""
    if isinstance(prompt, str):
        check_prompt(prompt)
        return prompt
    given = prompt if isinstance(prompt, Sequence) else ()
    messages = [turn for turn in given if isinstance(turn, Mapping)]
    if not messages or len(messages) < len(given):
        raise AssayError(f"prompt={prompt!r}; allowed: a text, or at least one message")
    turns = [checked_message(number, turn) for number, turn in enumerate(messages, 1)]
    if turns[-1]["role"] == "assistant":
        raise AssayError("prompt: its last message is the assistant's; allowed: turns before it")
    return turns


def warn_unread(checkpoint: Checkpoint, around: PromptIds, keys: Sequence[str] = ()) -> None:
    """Warns of keys that the model's template does not write: of a prompt's messages, or `keys`.

    The warning names the line that called the engine. Raises AssayError for what a template may not
    leave out, such as a turn.
    """
    if not isinstance(around.prompt, str):
        whole = [*around.prompt, {"role": "assistant", "content": "?"}]
        keys = unread_keys(checkpoint.template, [whole], [{}], ["prompt"])
    if keys:
        stack = (frame.f_globals["__name__"] for frame, _ in traceback.walk_stack(sys._getframe()))
        inside = itertools.takewhile(lambda name: name.startswith("engine."), stack)
        warnings.warn(unread_note(checkpoint.card.slug, keys), stacklevel=len([*inside]) + 1)


def ranked(tokens: Mapping[int, str], numbers: Mapping[str, np.ndarray]) -> pl.DataFrame:
    """token_id, token and columns of numbers; best by the first of them first, equal ones by id."""
    columns = {"token_id": list(tokens), "token": list(tokens.values()), **numbers}
    types = {"token_id": pl.UInt32, "token": pl.String, **dict.fromkeys(numbers, pl.Float32)}
    return pl.DataFrame(columns, types).sort(
        next(iter(numbers)), "token_id", descending=[True, False]
    )


def listed(responses: str | Sequence[str]) -> list[str]:
    """One text, or several, as a list; raises AssayError for one that no tokenizer reads."""
    several = [responses] if isinstance(responses, str) else responses
    if not isinstance(several, Iterable):
        raise AssayError(f"responses={responses!r}; allowed: a text, or several")
    return [*map(checked_text, several)]
