"""Chat templates: from a prompt and replies to token ids; BOS and date policy."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import jinja2
from transformers import PreTrainedTokenizerBase

from engine.errors import AssayError
from engine.text.template_trace import Frame, trace
from engine.types import PromptIds

BOS_POLICIES = ("template", "single", "double")

# Replies that share neither a first nor a last token: what their renderings have in common is the
# template's.
_PROBES = ("love", "Zebra", "7", "Hate", "?")
_FEW = 32  # replies for which looking for a short way is no short way
_CHUNK = 4096  # replies between two reports of progress


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

    @functools.cached_property
    def tokens(self) -> list[str]:
        """Text of every id of the tokenizer."""
        return [self.tokenizer.decode([i]) for i in range(len(self.tokenizer))]

    def render(self, prompt: str, replies: Sequence[str]) -> list[str]:
        """The conversation [user: prompt, assistant: reply] as text, for each reply."""
        return self._apply([_conversation(prompt, reply) for reply in replies])

    def cue(self, prompt: str) -> str:
        """The conversation up to where the assistant begins to speak, as text."""
        return self._apply([_conversation(prompt, "")[:1]], add_generation_prompt=True)[0]

    def tokenise(self, texts: list[str]) -> list[list[int]]:
        """Ids of rendered conversations under the BOS policy."""
        encoded = self.tokenizer(texts, add_special_tokens=self.policy.bos == "double")["input_ids"]
        if self.policy.bos != "single":
            return encoded
        bos = self.tokenizer.bos_token_id
        return [[bos, *itertools.dropwhile(lambda i: i == bos, ids)] for ids in encoded]

    def _apply(self, conversations: list[list[dict[str, str]]], **options: Any) -> list[str]:
        options |= self._date
        try:
            return self.tokenizer.apply_chat_template(conversations, tokenize=False, **options)
        except jinja2.TemplateError as error:
            reason = " ".join(str(error).split())
            raise AssayError(
                f"chat template of {self.tokenizer.name_or_path}: it does not render a prompt and "
                f"a reply ({reason})"
            ) from error

    def sequences(
        self,
        prompt: str,
        replies: Sequence[str],
        advance: Callable[[int], object] = lambda replies: None,
    ) -> list[list[int]]:
        """Token ids of the rendered conversation, tokenised as one text, for each reply.

        Many replies take two short ways, each only where it provably leads to the same ids: the
        template is traced instead of run (`rendering.trace`), and what all conversations begin
        with is tokenised once (`_Opening`). `advance` is told how many replies are done.
        """
        few = len(replies) <= _FEW
        frame, opening = (None, None) if few else (self._frame(prompt), self._opening(prompt))
        rows: list[list[int]] = []
        for start in range(0, len(replies), _CHUNK):
            chunk = replies[start : start + _CHUNK]
            texts = [frame.render(r) for r in chunk] if frame else self.render(prompt, chunk)
            rows += self._tokenise_behind(opening, texts) if opening else self.tokenise(texts)
            advance(len(chunk))
        return rows

    def split(self, prompt: str) -> PromptIds:
        """Cuts the conversation where the reply goes.

        Raises:
          AssayError: the prompt is empty, or the template's text merges with the reply's, so that
            no cut exists.
        """
        check_prompt(prompt)
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

    @property
    def _date(self) -> dict[str, str]:
        return {} if self.policy.date is None else {"date_string": self.policy.date}

    def _tokenise_behind(self, opening: "_Opening", texts: list[str]) -> list[list[int]]:
        if not all(text.startswith(opening.text + opening.mark) for text in texts):
            return self.tokenise(texts)
        rests = [text[len(opening.text) :] for text in texts]
        distinct = list(dict.fromkeys(rests))
        # The tokenizer itself: what transformers wraps around it costs more than the tokenising.
        encoded = self.tokenizer.backend_tokenizer.encode_batch_fast(
            distinct, add_special_tokens=False
        )
        by_rest = {rest: encoding.ids for rest, encoding in zip(distinct, encoded, strict=True)}
        return [[*opening.ids, *by_rest[rest]] for rest in rests]

    def _frame(self, prompt: str) -> Frame | None:
        """The template's frame around a reply, held against the template itself."""
        variables = {**self.tokenizer.special_tokens_map, **self._date}
        frame = trace(
            self.tokenizer.get_chat_template(),
            _conversation(prompt, ""),
            tools=None,
            documents=None,
            add_generation_prompt=False,
            **variables,
        )
        probes = [*_PROBES, " love\n"]
        if frame and [frame.render(p) for p in probes] == self.render(prompt, probes):
            return frame
        return None

    def _opening(self, prompt: str) -> "_Opening | None":
        """The longest opening that all conversations share, held against the tokenizer itself."""
        texts = self.render(prompt, _PROBES)
        shared = "".join(_common_prefix(texts))
        at, mark = max(((shared.rfind(mark), mark) for mark in self._marks), default=(-1, ""))
        if at < 0:
            return None
        rest = self.tokenizer(texts[0][at:], add_special_tokens=False)["input_ids"]
        ids = self.tokenise(texts[:1])[0]
        opening = _Opening(shared[:at], mark, tuple(ids[: len(ids) - len(rest)]))
        # A lone BOS in front may be what the policy put there, or the text's own.
        if self.policy.bos == "single" and len(opening.ids) < 2:
            return None
        whole = self.tokenise(texts)
        return opening if self._tokenise_behind(opening, texts) == whole else None

    @functools.cached_property
    def _marks(self) -> list[str]:
        """Added tokens at which every text is cut before anything else is done to it."""
        added = self.tokenizer.added_tokens_decoder.values()
        return [
            token.content
            for token in added
            if not (token.normalized or token.lstrip or token.single_word)
            and not any(token.content in other.content[1:] for other in added)
        ]


@dataclasses.dataclass(frozen=True)
class _Opening:
    """How every conversation under a prompt begins, and the added token that follows.

    A tokenizer looks for its added tokens first, from the left, and handles what lies between them
    apart. So the text before such a token, and the text from it on, tokenise each on its own,
    unless another added token could lie across the cut (`_marks`).
    """

    text: str
    mark: str
    ids: tuple[int, ...]


def check_prompt(prompt: str) -> None:
    """Raises AssayError for a prompt that says nothing."""
    if not prompt.strip():
        raise AssayError(f"prompt={prompt!r}; allowed: text that is not empty")


def _conversation(prompt: str, reply: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": reply}]


def _common_prefix(rows: Sequence[Sequence[Any]]) -> list[Any]:
    columns = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*rows, strict=False))
    return [column[0] for column in columns]
