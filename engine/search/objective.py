"""What one search is about: a model, prompts, and the sequences that are admitted."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import polars as pl

from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.models.config import DecoderConfig
from engine.scoring.reward_passes import check_length
from engine.search.filters import Ids, RoundTrip, allowed_tokens
from engine.search.settings import DIRECTIONS, SearchSettings
from engine.text.chat_template import ChatTemplate
from engine.types import PromptIds

_DRAWS = 200  # random beginnings that are tried where most do not round-trip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """One search: everything but the weights and where it stands."""

    config: DecoderConfig
    checkpoint_hash: str
    template: ChatTemplate
    prompts: tuple[PromptIds, ...]
    allowed: np.ndarray  # bool [V]
    settings: SearchSettings
    round_trip: RoundTrip

    @classmethod
    def build(
        cls,
        checkpoint: Checkpoint,
        prompts: Sequence[PromptIds],
        vocabulary: pl.DataFrame,
        settings: SearchSettings,
    ) -> "Problem":
        """Raises AssayError where reply, prompts and filters do not fit each other or the model."""
        config = checkpoint.card.decoder
        check_prompts(prompts, settings.length, config)
        problem = cls(
            config=config,
            checkpoint_hash=checkpoint.card.checkpoint_hash,
            template=checkpoint.template,
            prompts=tuple(prompts),
            allowed=allowed_tokens(vocabulary, config.vocab_size, settings),
            settings=settings,
            round_trip=RoundTrip(checkpoint.template, prompts),
        )
        most = problem.allowed.sum() * len(settings.free)
        if settings.method == "paper" and settings.candidates > most:
            raise AssayError(
                f"candidates={settings.candidates}; allowed: at most tokens × free positions = "
                f"{most}"
            )
        problem.initial()
        return problem

    @property
    def signs(self) -> np.ndarray:
        """float32 [A]: the sign of each attempt."""
        signs = [DIRECTIONS[d] for d in self.settings.directions]
        return np.repeat(np.array(signs, np.float32), self.settings.attempts)

    @property
    def suffix(self) -> tuple[int, ...]:
        """What follows the reply."""
        return self.prompts[0].suffix

    def streams(self) -> list[tuple[int, int, int]]:
        """Seeds of each attempt: the same whichever directions are sought beside it."""
        names = list(DIRECTIONS)
        return [
            (self.settings.seed, names.index(direction), attempt)
            for direction in self.settings.directions
            for attempt in range(self.settings.attempts)
        ]

    def rejects(self, rejected: np.ndarray) -> dict[str, int]:
        """Of a count an attempt [A], what each direction's come to."""
        own = rejected.reshape(-1, self.settings.attempts).sum(axis=1)
        return dict(zip(self.settings.directions, own.tolist(), strict=True))

    def passes(self, ids: Ids) -> bool:
        """Whether a sequence may be found."""
        return not self.settings.round_trip or self.round_trip.passes(ids)

    def initial(self) -> np.ndarray:
        """Where each attempt begins: int32 [A, T].

        Raises:
          AssayError: the initial string has another length, uses tokens that are not allowed, or
            does not round-trip; no random sequence does.
        """
        if self.settings.initial:
            return np.tile(self._given(), (len(self.signs), 1))
        return np.stack([self.draw(np.random.default_rng(s)) for s in self.streams()])

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """A random sequence of allowed tokens that may be found: int32 [T]."""
        settings, tokens = self.settings, np.flatnonzero(self.allowed)
        given = self._given() if settings.initial else np.zeros(settings.length, np.int32)
        free = np.array(settings.free)
        for _ in range(_DRAWS):
            drawn = rng.choice(tokens, 2 * settings.length)
            # Random tokens seldom are what their text tokenises to; their text's tokens often are.
            again = self.template.reply_ids(self.round_trip.text(drawn))
            for ids in (drawn, np.array(again)):
                if len(ids) >= settings.length:
                    given[free] = ids[free]
                    if self.allowed[given[free]].all() and self.passes(given):
                        return given.astype(np.int32)
        for token in rng.permutation(tokens)[:_DRAWS]:
            given[free] = token
            if self.passes(given):
                return given.astype(np.int32)
        raise AssayError(
            f"length={settings.length}: none of {2 * _DRAWS} random sequences of the allowed tokens"
            " is what its text tokenises to; give an initial string, or round_trip=False"
        )

    def _given(self) -> np.ndarray:
        settings = self.settings
        ids = np.array(self.template.reply_ids(settings.initial), np.int32)
        if len(ids) != settings.length:
            raise AssayError(
                f"initial={settings.initial!r}: {len(ids)} tokens; allowed: {settings.length}, the "
                "length"
            )
        for position in settings.free:
            if not self.allowed[ids[position]]:
                token = self.round_trip.text(ids[position : position + 1])
                raise AssayError(
                    f"initial={settings.initial!r}: the filters leave out its token {token!r}"
                )
        if not self.passes(ids):
            raise AssayError(
                f"initial={settings.initial!r}: not what its text tokenises to in the conversation"
            )
        return ids


def not_finite(ids: Ids) -> AssayError:
    """What is raised for a sequence whose reward is none."""
    listed = list(map(int, ids))
    return AssayError(f"the reward is not finite for the sequence of token ids {listed}")


def check_prompts(prompts: Sequence[PromptIds], length: int, config: DecoderConfig) -> None:
    """Raises AssayError for a reply beyond the context, or prompts that cannot be judged as one."""
    for prompt in prompts:
        check_length(len(prompt.prefix) + length + len(prompt.suffix), config.max_positions)
        if prompt.suffix != prompts[0].suffix:
            raise AssayError(
                f"prompts {prompts[0].prompt!r} and {prompt.prompt!r}: the template closes their "
                "replies differently; allowed: one search each"
            )
