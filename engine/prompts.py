"""Chat templates: from a prompt and replies to token ids; BOS and date policy."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Self

import jinja2
from transformers import PreTrainedTokenizerBase

from engine.errors import AssayError
from engine.types import PromptIds

BOS_POLICIES = ("template", "single", "double")

# Replies that share neither a first nor a last token: what their renderings have in common is the
# template's.
_PROBES = ("love", "Zebra", "7", "Hate", "?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TemplatePolicy:
    """How a conversation becomes ids; part of a model's specification.

    bos: `template` keeps what the template emits; `single` makes it exactly one; `double` lets the
      tokenizer add its own in front of the rendered text (the paper's pipeline).
    date: what templates that print a date print; None leaves it to the template.
    """

    bos: str
    date: str | None

    def __post_init__(self):
        if self.bos not in BOS_POLICIES:
            allowed = ", ".join(map(repr, BOS_POLICIES))
            raise AssayError(f"template.bos={self.bos!r}; allowed: {allowed}")

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """The inverse of `dataclasses.asdict`, for `model.json`."""
        return cls(**fields)


@dataclasses.dataclass(frozen=True)
class ChatTemplate:
    """A tokenizer's chat template under a policy."""

    tokenizer: PreTrainedTokenizerBase
    policy: TemplatePolicy

    def __post_init__(self):
        if not self.tokenizer.chat_template:
            raise AssayError(
                f"tokenizer {self.tokenizer.name_or_path}: no chat template; a reward model judges "
                "conversations, so tokenizer_config.json or chat_template.jinja must hold one"
            )
        if self.policy.bos == "single" and self.tokenizer.bos_token_id is None:
            raise AssayError("template.bos='single'; this tokenizer defines no BOS token")

    def render(self, prompt: str, replies: Sequence[str]) -> list[str]:
        """The conversation [user: prompt, assistant: reply] as text, for each reply."""
        conversations = [
            [{"role": "user", "content": prompt}, {"role": "assistant", "content": reply}]
            for reply in replies
        ]
        date = {} if self.policy.date is None else {"date_string": self.policy.date}
        try:
            return self.tokenizer.apply_chat_template(conversations, tokenize=False, **date)
        except jinja2.TemplateError as error:
            reason = " ".join(str(error).split())
            raise AssayError(
                f"chat template of {self.tokenizer.name_or_path}: it does not render a prompt and "
                f"a reply ({reason})"
            ) from error

    def sequences(self, prompt: str, replies: Sequence[str]) -> list[list[int]]:
        """Token ids of the rendered conversation, tokenised as one text, for each reply."""
        if not replies:
            return []
        encoded = self.tokenizer(
            self.render(prompt, replies), add_special_tokens=self.policy.bos == "double"
        )["input_ids"]
        if self.policy.bos != "single":
            return encoded
        bos = self.tokenizer.bos_token_id
        return [[bos, *itertools.dropwhile(lambda i: i == bos, ids)] for ids in encoded]

    def split(self, prompt: str) -> PromptIds:
        """Cuts the conversation where the reply goes.

        Raises:
          AssayError: the prompt is empty, or the template's text merges with the reply's, so that
            no cut exists.
        """
        if not prompt.strip():
            raise AssayError(f"prompt={prompt!r}; allowed: text that is not empty")
        rows = self.sequences(prompt, _PROBES)
        prefix = _common_prefix(rows)
        suffix = _common_prefix([row[len(prefix) :][::-1] for row in rows])[::-1]
        for probe, row in zip(_PROBES, rows, strict=True):
            middle = row[len(prefix) : len(row) - len(suffix)]
            if middle != self.reply_ids(probe):
                raise AssayError(
                    f"chat template of {self.tokenizer.name_or_path}: the reply {probe!r} does not "
                    "stand as its own tokens in the rendered conversation"
                )
        return PromptIds(prompt=prompt, prefix=tuple(prefix), suffix=tuple(suffix))

    def reply_ids(self, reply: str) -> list[int]:
        """Token ids of a reply on its own."""
        return self.tokenizer(reply, add_special_tokens=False)["input_ids"]


def _common_prefix(rows: Sequence[Sequence[int]]) -> list[int]:
    columns = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*rows, strict=False))
    return [column[0] for column in columns]
