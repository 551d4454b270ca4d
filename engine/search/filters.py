"""Which replies a search may find: allowed tokens, and texts that tokenise back to their ids."""

import dataclasses
import math
from collections.abc import Container, Sequence

import numpy as np
import polars as pl

from engine.errors import AssayError
from engine.settings import SearchSettings
from engine.text.chat_template import ChatTemplate
from engine.types import PromptIds

Ids = Sequence[int] | np.ndarray

_DRAWS = 200  # random sequences that are tried until one round-trips


@dataclasses.dataclass(frozen=True, kw_only=True)
class Filters:
    """The replies that a search with these settings admits, in a whole conversation."""

    settings: SearchSettings
    template: ChatTemplate
    conversation: PromptIds
    allowed: np.ndarray  # bool [V], tokens that may be used
    known: dict[tuple[int, ...], bool] = dataclasses.field(default_factory=dict)  # round trips

    def text(self, ids: Ids) -> str:
        """The decoded text of a sequence."""
        text: str = self.template.tokenizer.decode(list(map(int, ids)))
        return text

    def round_trips(self, ids: Ids) -> bool:
        """Whether the text of `ids`, as the reply, is tokenised as exactly `ids`."""
        key = tuple(map(int, ids))
        if key not in self.known:
            around = self.conversation
            [whole] = self.template.sequences(around.prompt, [self.text(key)])
            self.known[key] = whole == [*around.prefix, *key, *around.suffix]
        return self.known[key]

    def passes(self, ids: Ids) -> bool:
        """Whether a sequence is admitted as a result."""
        return not self.settings.round_trip or self.round_trips(ids)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """A random sequence of allowed tokens that is admitted: int32 [T]."""
        length, tokens = self.settings.length, np.flatnonzero(self.allowed)
        for _ in range(_DRAWS):
            drawn = rng.choice(tokens, 2 * length)
            # Random tokens seldom round-trip. The tokens of their text often do.
            for ids in (drawn, np.array(self.template.reply_ids(self.text(drawn)))):
                ids = ids[:length].astype(np.int32)
                if len(ids) == length and self.allowed[ids].all() and self.passes(ids):
                    return ids
        for token in rng.permutation(tokens)[:_DRAWS]:
            ids = np.full(length, token, np.int32)
            if self.passes(ids):
                return ids
        raise AssayError(
            f"length={length}: none of {2 * _DRAWS} random sequences of the allowed tokens"
            " tokenises back from its text; allow other tokens, or round_trip=False"
        )


def allowed_tokens(
    frame: pl.DataFrame,
    rows: int,
    settings: SearchSettings,
    never: Container[int | None] = frozenset(),
) -> np.ndarray:
    """Mask of the tokens that the settings allow, except those in `never`: bool [rows].

    `frame` has `schema.VOCAB_COLUMNS`. Raises AssayError for an `allow` that is no token, or if no
    token is left.
    """
    tokens = frame["token"].to_list()
    allow = set(settings.allow)
    if unknown := sorted(allow - {*tokens}):
        raise AssayError(f"allow: no token is {unknown[0]!r}; allowed: texts of single tokens")
    left = np.ones(len(tokens), bool)
    if not settings.specials:
        left &= ~frame["is_special"].to_numpy()
    if settings.ascii_only:
        left &= np.array([t.isascii() and t.isprintable() and t != "" for t in tokens])
    if allow:
        left &= np.array([t in allow for t in tokens])
    left &= np.array([i not in never for i in frame["token_id"]])
    if not left.any():
        raise AssayError("the filters leave no token; relax ascii_only, specials or allow")
    allowed = np.zeros(rows, bool)
    allowed[frame["token_id"].to_numpy()] = left
    return allowed


def with_topk(settings: SearchSettings, allowed: np.ndarray) -> SearchSettings:
    """Settings whose `topk` is at most the number of tokens in the mask `allowed`.

    It stays large enough for all candidates: those beyond the allowed tokens change nothing.
    """
    enough = max(int(allowed.sum()), math.ceil(settings.candidates / settings.length))
    return dataclasses.replace(settings, topk=min(settings.topk, enough, len(allowed)))
