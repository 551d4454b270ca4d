"""Which tokens a search may use, and whether a sequence survives being written as text."""

from collections.abc import Container, Sequence

import numpy as np
import polars as pl

from engine.errors import AssayError
from engine.settings import SearchSettings
from engine.text.chat_template import ChatTemplate
from engine.types import PromptIds

Ids = Sequence[int] | np.ndarray


def allowed_tokens(
    frame: pl.DataFrame,
    rows: int,
    settings: SearchSettings,
    never: Container[int | None] = frozenset(),
) -> np.ndarray:
    """Mask of the tokens that the filters allow: bool [rows].

    Args:
      frame: the vocabulary, `schema.VOCAB_COLUMNS`.
      rows: rows of the embedding; those without a token of the tokenizer are never allowed.
      settings: ascii_only, specials, allow, deny and topk are read.
      never: ids that are left out whatever the settings say.

    Raises:
      AssayError: `allow` or `deny` holds the text of no token; fewer than `topk` tokens are left.
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
    if left.sum() < settings.topk:
        raise AssayError(
            f"topk={settings.topk}; the filters leave {left.sum()} tokens: allowed at most that"
        )
    allowed = np.zeros(rows, bool)
    allowed[frame["token_id"].to_numpy()] = left
    return allowed


class RoundTrip:
    """Whether the text of a sequence tokenises back to it in the whole conversation; cached."""

    def __init__(self, template: ChatTemplate, prompts: Sequence[PromptIds]):
        self.template, self.prompts = template, prompts
        self._known: dict[tuple[int, ...], bool] = {}

    def text(self, ids: Ids) -> str:
        """The decoded text of a sequence."""
        text: str = self.template.tokenizer.decode(list(map(int, ids)))
        return text

    def passes(self, ids: Ids) -> bool:
        """Whether the text of `ids`, as the reply to each prompt, is tokenised as exactly `ids`."""
        key = tuple(map(int, ids))
        if key not in self._known:
            reply = [self.text(key)]
            self._known[key] = all(
                self.template.sequences(p.prompt, reply)[0] == [*p.prefix, *key, *p.suffix]
                for p in self.prompts
            )
        return self._known[key]
