"""What a search maximises, over admitted sequences."""

import dataclasses
import math
from collections.abc import Container, Sequence

import numpy as np
import polars as pl

from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.models.config import DecoderConfig
from engine.scoring.rows import LAST, Pooling, check_fits, pooling_of
from engine.settings import AUTO, DIRECTIONS, SearchSettings
from engine.text.chat_template import ChatTemplate
from engine.types import PromptIds

Ids = Sequence[int] | np.ndarray

_DRAWS = 200  # random sequences that are tried until one round-trips


class RoundTrip:
    """Whether the text of a sequence tokenises back to it in whole conversations; cached."""

    def __init__(self, conversations: Sequence[tuple[ChatTemplate, PromptIds]]):
        self.conversations = conversations
        self._known: dict[tuple[int, ...], bool] = {}

    def text(self, ids: Ids) -> str:
        """The decoded text of a sequence."""
        template, _ = self.conversations[0]
        text: str = template.tokenizer.decode(list(map(int, ids)))
        return text

    def passes(self, ids: Ids) -> bool:
        """Whether the text of `ids`, as the reply to each prompt, is tokenised as exactly `ids`."""
        key = tuple(map(int, ids))
        if key not in self._known:
            reply = [self.text(key)]
            self._known[key] = all(
                template.sequences(p.prompt, reply)[0] == [*p.prefix, *key, *p.suffix]
                for template, p in self.conversations
            )
        return self._known[key]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchObjective:
    """What a search of one model maximises, without the weights and its progress.

    `prompts` end where the reward is read (`Pooling.suffix`); `round_trip` has them whole.
    A attempts run side by side: `settings.restarts` for each direction. The objective of an attempt
    is its sign times the mean reward over the prompts.
    """

    config: DecoderConfig
    checkpoint_hash: str
    template: ChatTemplate
    prompts: tuple[PromptIds, ...]
    allowed: np.ndarray  # bool [V]
    settings: SearchSettings
    round_trip: RoundTrip
    pooling: Pooling = LAST

    @classmethod
    def build(
        cls,
        checkpoint: Checkpoint,
        prompts: Sequence[PromptIds],
        vocabulary: pl.DataFrame,
        settings: SearchSettings,
    ) -> "SearchObjective":
        """The objective of one search: the mean of a model's rewards under the prompts.

        `vocabulary` has `schema.VOCAB_COLUMNS`.

        Raises:
          AssayError: reply, prompts and filters do not fit each other or the model.
        """
        config = checkpoint.card.decoder
        _check_prompts(prompts, settings.length, config)
        pooling = pooling_of(checkpoint, AUTO)
        read = [dataclasses.replace(p, suffix=pooling.suffix(p.suffix)) for p in prompts]
        unread = {pooling.pad} if not read[0].suffix else set()  # a reply cannot end with it
        allowed = _allowed_tokens(vocabulary, config.vocab_size, settings, unread)
        objective = cls(
            config=config,
            checkpoint_hash=checkpoint.card.checkpoint_hash,
            template=checkpoint.template,
            prompts=tuple(read),
            allowed=allowed,
            settings=_with_topk(settings, allowed),
            round_trip=RoundTrip([(checkpoint.template, prompt) for prompt in prompts]),
            pooling=pooling,
        )
        most = objective.allowed.sum() * len(settings.free)
        if settings.method == "paper" and settings.candidates > most:
            raise AssayError(
                f"candidates={settings.candidates}; allowed: at most tokens × free positions = "
                f"{most}"
            )
        objective.initial()
        return objective

    @property
    def signs(self) -> np.ndarray:
        """Sign of each attempt: float32 [A], 1 maximises the reward and -1 minimises it."""
        signs = [DIRECTIONS[d] for d in self.settings.directions]
        return np.repeat(np.array(signs, np.float32), self.settings.restarts)

    @property
    def suffix(self) -> tuple[int, ...]:
        """Token ids behind the reply; the same for all prompts."""
        return self.prompts[0].suffix

    def streams(self) -> list[tuple[int, int, int]]:
        """Seeds of each attempt: (seed, direction, restart), whatever else is searched beside."""
        names = list(DIRECTIONS)
        return [
            (self.settings.seed, names.index(direction), attempt)
            for direction in self.settings.directions
            for attempt in range(self.settings.restarts)
        ]

    def per_direction(self, counts: np.ndarray) -> dict[str, int]:
        """Sums a count per attempt, int64 [A], over the attempts of each direction."""
        sums = counts.reshape(-1, self.settings.restarts).sum(axis=1)
        return dict(zip(self.settings.directions, sums.tolist(), strict=True))

    def narrowed(self, direction: str) -> "SearchObjective":
        """The same objective in one direction, or in `both`."""
        settings = dataclasses.replace(self.settings, direction=direction)
        return dataclasses.replace(self, settings=settings)

    def passes(self, ids: Ids) -> bool:
        """Whether a sequence is admitted as a result."""
        return not self.settings.round_trip or self.round_trip.passes(ids)

    def initial(self) -> np.ndarray:
        """The first sequence of each attempt: int32 [A, T]."""
        if self.settings.initial:
            return np.tile(self._given(), (len(self.signs), 1))
        return np.stack([self.draw(np.random.default_rng(s)) for s in self.streams()])

    def check(self, ids: Ids, name: str) -> None:
        """Raises AssayError, which calls it `name`, for a sequence that cannot be searched from."""
        if not self.suffix and ids[-1] == self.pooling.pad:
            raise AssayError(
                f"{name}: its last token {ids[-1]} is the pad token, before which this model's "
                "reward is read; allowed: a reply that ends in another"
            )
        for position in self.settings.free:
            if not 0 <= ids[position] < len(self.allowed) or not self.allowed[ids[position]]:
                token = self.round_trip.text([ids[position]])
                raise AssayError(
                    f"{name}: the filters leave out its token {token!r} at position {position}"
                )
        if not self.passes(ids):
            raise AssayError(
                f"{name}: does not tokenise back to itself in the conversation; allowed: "
                "round_trip=False"
            )

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """A random sequence of allowed tokens that is admitted: int32 [T]."""
        settings, tokens = self.settings, np.flatnonzero(self.allowed)
        given = self._given() if settings.initial else np.zeros(settings.length, np.int32)
        free = np.array(settings.free)
        for _ in range(_DRAWS):
            drawn = rng.choice(tokens, 2 * settings.length)
            # Random tokens seldom round-trip. The tokens of their text often do.
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
            " tokenises back from its text; give an initial string, or round_trip=False"
        )

    def _given(self) -> np.ndarray:
        initial, length = self.settings.initial, self.settings.length
        ids = np.array(self.template.reply_ids(initial), np.int32)
        if len(ids) != length:
            raise AssayError(
                f"initial={initial!r}: {len(ids)} tokens; allowed: {length}, the length"
            )
        self.check(ids, f"initial={initial!r}")
        return ids


def _allowed_tokens(
    frame: pl.DataFrame,
    rows: int,
    settings: SearchSettings,
    never: Container[int | None] = frozenset(),
) -> np.ndarray:
    """Mask of the tokens that the filters allow, except those in `never`: bool [rows].

    Raises AssayError for an `allow` or `deny` that is no token, or if no token is left.
    """
    tokens = frame["token"].to_list()
    texts, allow, deny = set(tokens), set(settings.allow), set(settings.deny)
    for name in ("allow", "deny"):
        for text in getattr(settings, name):
            if text not in texts:
                raise AssayError(f"{name}: no token is {text!r}; allowed: texts of single tokens")
    left = np.ones(len(tokens), bool)
    if not settings.specials:
        left &= ~frame["is_special"].to_numpy()
    if settings.ascii_only:
        left &= np.array([t.isascii() and t.isprintable() and t != "" for t in tokens])
    if allow:
        left &= np.array([t in allow for t in tokens])
    left &= np.array([t not in deny for t in tokens])
    left &= np.array([i not in never for i in frame["token_id"]])
    allowed = np.zeros(rows, bool)
    allowed[frame["token_id"].to_numpy()] = left
    return allowed


def _with_topk(settings: SearchSettings, allowed: np.ndarray) -> SearchSettings:
    """Settings whose `topk` is at most the number of tokens in the mask `allowed`.

    It stays large enough for all candidates: those beyond the allowed tokens change nothing.
    Raises AssayError for a mask without tokens.
    """
    if not allowed.any():
        raise AssayError("the filters leave no token; relax ascii_only, specials, allow or deny")
    enough = max(int(allowed.sum()), math.ceil(settings.candidates / len(settings.free)))
    return dataclasses.replace(settings, topk=min(settings.topk, enough, len(allowed)))


def not_finite(ids: Ids) -> AssayError:
    """The error for a sequence whose reward is not a finite number."""
    listed = list(map(int, ids))
    return AssayError(f"the reward is not finite for the sequence of token ids {listed}")


def _check_prompts(prompts: Sequence[PromptIds], length: int, config: DecoderConfig) -> None:
    """Raises AssayError for prompts that are too long or whose replies are closed differently."""
    for prompt in prompts:
        positions = len(prompt.prefix) + length + len(prompt.suffix)
        check_fits(positions, max((*prompt.prefix, *prompt.suffix)), config)
        if prompt.suffix != prompts[0].suffix:
            raise AssayError(
                f"prompts {prompts[0].prompt!r} and {prompt.prompt!r}: the template closes their "
                "replies differently; allowed: one search each"
            )
