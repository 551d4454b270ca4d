"""Chat templates: from a prompt and replies to token ids, under a policy for BOS and date."""

import contextlib
import dataclasses
import functools
import itertools
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from transformers import PreTrainedTokenizerBase

from engine.errors import AssayError, prefixed
from engine.runs.schema import REPLY_START, parted
from engine.settings import check_choice
from engine.text import template_sandbox
from engine.text.template_sandbox import Conversation, Variables, parsed_date, spelled
from engine.types import Prompt, PromptIds

BOS_POLICIES = ("template", "none", "single", "double")
ROLES = ("system", "developer", "user", "assistant", "tool")
# Names in templates that are not the row's to give.
RESERVED = {"messages", "add_generation_prompt", "strftime_now", "raise_exception", "namespace"}
# Nor a conversion's: the tokenizer gives them, another setting does, or they are no texts.
_TAKEN = {*RESERVED, *PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES, "date_string"}
_TAKEN |= {"tools", "documents", "enable_thinking"}
_SHAREGPT = {"human": "user", "gpt": "assistant"}  # roles by other names
# How TRL's reward trainer renders rows of texts, without a chat template: the reply ends with eos.
TRL = (
    "{% if messages | map(attribute='role') | list != ['user', 'assistant'] %}{{ raise_exception("
    "'template=trl is a prompt, its reply and eos; other turns need a chat template') }}{% endif %}"
    "{{ messages[0]['content'] + messages[1]['content'] }}"
    "{% if not messages[1]['content'].endswith(eos_token) %}{{ eos_token }}{% endif %}"
)
PAIR_END = "␝"  # the sign of a group separator: ends the first of a tokenizer's pair of texts
# How encoders read a prompt and a reply: each tokenised by itself, with the tokenizer's separators.
PAIR = (
    "{% if messages | map(attribute='role') | list != ['user', 'assistant'] %}{{ raise_exception("
    "'an encoder reads a prompt and its reply; other turns need --config.template') }}{% endif %}"
    "{% for sign in [sep_token, 'PAIR_END'] %}{% if sign and sign in messages[0]['content'] %}"
    "{{ raise_exception(sign ~ ' ends the prompt; allowed: a prompt without it') }}{% endif %}"
    "{% endfor %}{{ messages[0]['content'] + 'PAIR_END' + messages[1]['content'] }}"
).replace("PAIR_END", PAIR_END)
SYSTEM_END = "␞"  # the sign of a record separator: ends the system turn of a prompt, if it has one

# Replies without a common first or last token: what their conversations have in common is text of
# the template.
_PROMPT, _SYSTEM = "What?", "Be brief."
_PROBES = ("love", "Zebra", "7", "Hate", "?")
_SHOWN = 60  # characters of a text that an error shows
_AT_ONCE = 4096  # replies that are rendered and tokenised in one call

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TemplatePolicy:
    """How a conversation becomes token ids; part of a model's specification."""

    # `template` keeps the BOS tokens that the template writes; `none` removes those in front, as
    # pipelines do that add their own; `single` makes it exactly one; `double` lets the tokenizer
    # add its own in front of the rendered text, as the pipeline of Christian et al. 2025 did.
    bos: str
    # The date for templates that print one, `26 Jul 2024`: dates in other forms become that, other
    # texts stay. None: the template prints none, or one of its own.
    date: str | None
    # What else the template reads, name -> text, such as the principle that a judge rates by.
    template_vars: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("template.bos", self.bos, BOS_POLICIES)
        if taken := _TAKEN & {*self.template_vars}:
            raise AssayError(f"template_vars: {', '.join(sorted(taken))}; allowed: other variables")
        if self.date and (day := parsed_date(self.date)):
            object.__setattr__(self, "date", spelled(day))

    # Any: what JSON holds.
    def to_json(self) -> dict[str, Any]:
        """The fields, for `model.json`, `run.json` and hashes; template_vars only where given."""
        fields = dataclasses.asdict(self)
        return {k: v for k, v in fields.items() if k != "template_vars" or v}


@dataclasses.dataclass(frozen=True)
class ChatTemplate:
    """A tokenizer's chat template under a policy."""

    tokenizer: PreTrainedTokenizerBase
    policy: TemplatePolicy

    def __post_init__(self) -> None:
        name = self.tokenizer.name_or_path
        if not self.tokenizer.chat_template:
            raise AssayError(
                f"tokenizer {name}: no chat template; a reward model judges conversations, so "
                "tokenizer_config.json or chat_template.jinja must hold one, or "
                "convert --config.template=<file of Jinja, trl or raw> gives it"
            )
        if not isinstance(self._source, str):
            raise AssayError(f"tokenizer {name}: its chat template is no text; allowed: Jinja")
        bos = self.policy.bos
        if bos in ("none", "single") and self.tokenizer.bos_token_id is None:
            raise AssayError(f"template.bos={bos!r}; this tokenizer defines no BOS token")

    def render(self, prompt: Prompt, replies: Sequence[str]) -> list[str]:
        """The conversation of a prompt and the assistant's reply as text, for each reply.

        A prompt may have a system turn (`with_system`), and a reply start (`with_reply_start`),
        which each reply then continues.

        Raises:
          AssayError: the template raised an exception or exceeded a limit of `template_sandbox`.
        """
        conversations = [_conversation(prompt, reply) for reply in replies]
        return self._render(conversations, add_generation_prompt=False)

    def conversations(
        self, conversations: Sequence[Conversation], variables: Sequence[Variables] | None = None
    ) -> list[list[int]]:
        """Token ids of whole conversations, each rendered and tokenised as one text.

        `variables` are those of each conversation beside its messages, such as `tools`. It is what
        `apply_chat_template` of transformers gives; raises as `render`.
        """
        return self.tokenise(self.texts(conversations, variables))

    def texts(
        self, conversations: Sequence[Conversation], variables: Sequence[Variables] | None = None
    ) -> list[str]:
        """The rendered text of whole conversations; arguments and errors as `conversations`."""
        texts: list[str] = []
        rows = zip(conversations, variables or itertools.repeat({}), strict=False)
        for own, same in itertools.groupby(rows, key=lambda row: json.dumps(dict(row[1]))):
            messages = [conversation for conversation, _ in same]
            texts += self._render(messages, json.loads(own), add_generation_prompt=False)
        return texts

    def cue(self, prompt: Prompt, variables: Variables = MappingProxyType({})) -> str:
        """The conversation up to the point where the assistant begins to speak, as text."""
        [text] = self._render([turns(prompt)], variables, add_generation_prompt=True)
        return text

    def tokenise(self, texts: list[str]) -> list[list[int]]:
        """Token ids of rendered conversations under the BOS policy."""
        special = self.policy.bos == "double"
        if self.is_pair:
            parts = [text.partition(PAIR_END) for text in texts]
            return encode(self.tokenizer, [(a, b) for a, _, b in parts], special=special)
        encoded = encode(self.tokenizer, texts, special=special)
        if self.policy.bos not in ("none", "single"):
            return encoded
        bos = self.tokenizer.bos_token_id
        first = [bos] if self.policy.bos == "single" else []
        return [[*first, *itertools.dropwhile(lambda i: i == bos, ids)] for ids in encoded]

    def sequences(self, prompt: Prompt, replies: Sequence[str]) -> list[list[int]]:
        """Token ids of the rendered conversation, tokenised as one text, for each reply."""
        rows: list[list[int]] = []
        for start in range(0, len(replies), _AT_ONCE):
            rows += self.tokenise(self.render(prompt, replies[start : start + _AT_ONCE]))
        return rows

    def around(self, prompt: Prompt) -> PromptIds:
        """The ids before and after the reply that conversations of any reply have in common."""
        return self._around(prompt)[0]

    def split(self, prompt: Prompt, variables: Variables = MappingProxyType({})) -> PromptIds:
        """Cuts the conversation into the ids before the reply and the ids after it.

        A reply start belongs to the former, in the ids that it has where nothing follows it.
        `variables` are what the template reads beside the messages. Raises AssayError if the
        template's text merges with the reply's in tokens, or if it changes a reply start: no cut
        exists.
        """
        around, merged = self._around(prompt, variables)
        if merged is not None:
            raise AssayError(
                f"chat template of {self.tokenizer.name_or_path}: the reply {merged!r} does not "
                "stand as its own tokens in the rendered conversation, so no token can be put "
                "there by its id; allowed: --config.mode=text of a sweep or a score"
            )
        return around

    def cuttable(self, prompt: Prompt) -> bool:
        """Whether `split` can cut the conversation: whether mode `ids` exists."""
        return self._around(prompt)[1] is None

    @property
    def is_trl(self) -> bool:
        """Whether it is `TRL`, also with a token put behind it (`convert.templates.mark`)."""
        return TRL in self._source

    @property
    def is_pair(self) -> bool:
        """Whether it is `PAIR`."""
        return self._source == PAIR

    def asks_date(self) -> bool:
        """Whether the template mentions the function that gives today's date."""
        return "strftime_now" in self._source

    def check_variables(self) -> None:
        """Raises AssayError for a variable of the policy that the template does not read."""
        with prefixed("chat template"):
            read = template_sandbox.read_names(self._source)
        if unread := sorted({*self.policy.template_vars} - read):
            allowed = ", ".join(sorted(read - _TAKEN)) or "none, for this template"
            raise AssayError(
                f"template_vars: the chat template does not read {unread[0]!r}; allowed: {allowed}"
            )

    @functools.cached_property
    def demands_system(self) -> bool:
        """Whether the template refuses conversations without a system turn, and no others."""
        for prompt, demanded in ((_PROMPT, False), (with_system(_SYSTEM, _PROMPT), True)):
            with contextlib.suppress(AssayError):
                self.render(prompt, _PROBES[:1])
                return demanded
        return False

    def probe(self, text: str = _PROMPT) -> str:
        """A prompt of that text that the template renders: to see what stands around replies."""
        return with_system(_SYSTEM, text) if self.demands_system else text

    def reply_ids(self, reply: str) -> list[int]:
        """Token ids of a reply on its own, without a space that the tokenizer puts before texts."""
        lead, count = ("", 0) if self.is_pair else self._lead
        return self._ids(lead + reply)[count:]

    @functools.cached_property
    def _lead(self) -> tuple[str, int]:
        """Text to tokenise before a reply, and the number of its ids; none for most tokenizers.

        Some put a space before every text, which a reply behind the template's text does not get.
        """
        texts = self.render(self.probe(), _PROBES)
        lead = "".join(_common_prefix(texts))
        behind, count = [self._ids(lead + probe) for probe in _PROBES], len(self._ids(lead))
        apart = all(ids[:count] == self._ids(lead) for ids in behind)
        spaced = [ids[count:] for ids in behind] != [self._ids(probe) for probe in _PROBES]
        return (lead, count) if apart and spaced else ("", 0)

    def _ids(self, text: str) -> list[int]:
        [ids] = encode(self.tokenizer, [text])
        return ids

    @functools.cached_property
    def _source(self) -> str:
        """The Jinja source; of several named templates the default one."""
        try:
            source: str = self.tokenizer.get_chat_template()
        except ValueError as error:
            names = ", ".join(map(repr, self.tokenizer.chat_template))
            raise AssayError(
                f"tokenizer {self.tokenizer.name_or_path}: several chat templates, none of them "
                f"named 'default'; allowed: convert --config.template=<one of {names}>"
            ) from error
        return source

    def _variables(self, *, add_generation_prompt: bool) -> dict[str, object]:
        """The variables that transformers passes to a template beside the messages."""
        date = {} if self.policy.date is None else {"date_string": self.policy.date}
        return {
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            **self.tokenizer.special_tokens_map,
            **date,
            **self.policy.template_vars,
        }

    def _around(
        self, prompt: Prompt, variables: Variables = MappingProxyType({})
    ) -> tuple[PromptIds, str | None]:
        """What `around` returns, and a reply that does not stand there as its own tokens."""
        without, reply_start = _parted(prompt)
        around, merged = self._around_whole(without, variables)
        if not reply_start:
            return around, merged
        probes = [_conversation(without, probe) for probe in _PROBES]
        plain = self.texts(probes, [variables] * len(probes))
        before = "".join(_common_prefix(plain))
        after = "".join(_common_prefix([text[len(before) :][::-1] for text in plain]))[::-1]
        with_start = [_conversation(prompt, reply) for reply in ("", *_PROBES)]
        whole, *continued = self.texts(with_start, [variables] * len(with_start))
        ids, suffix = self.tokenise([whole])[0], around.suffix
        prefix = ids[: len(ids) - len(suffix)]
        closed = tuple(ids[len(prefix) :]) == suffix
        closed &= self.is_pair or self.tokenizer.decode(suffix) == after
        if closed and whole == before + reply_start + after:
            return PromptIds(prompt=prompt, prefix=tuple(prefix), suffix=suffix), None
        if (reply_start + _PROBES[0]).strip() not in continued[0]:
            raise AssayError(
                f"chat template of {self.tokenizer.name_or_path}: it changes the reply start "
                f"{reply_start[-_SHOWN:]!r}; allowed: a text that it writes as it is"
            )
        shared = _common_prefix(self.tokenise(continued))
        return PromptIds(prompt=prompt, prefix=tuple(shared), suffix=suffix), reply_start

    def _around_whole(self, prompt: Prompt, variables: Variables) -> tuple[PromptIds, str | None]:
        """`_around` of a prompt without a reply start."""
        if isinstance(prompt, str):
            check_prompt(prompt)
            if SYSTEM_END in prompt:
                self._check_system(prompt)
        probes = [_conversation(prompt, probe) for probe in _PROBES]
        rows = self.conversations(probes, [variables] * len(probes))
        prefix = _common_prefix(rows)
        if not prefix:
            raise AssayError(
                f"chat template of {self.tokenizer.name_or_path}: it writes nothing before the "
                "reply; allowed: a template that writes the prompt, or a BOS token, before it"
            )
        suffix = _common_prefix([row[len(prefix) :][::-1] for row in rows])[::-1]
        if self.is_trl:  # cut where an empty reply stands: some replies merge with the prompt
            [whole] = self.sequences(prompt, [""])
            prefix = whole[: len(whole) - len(suffix)]
            return PromptIds(prompt=prompt, prefix=tuple(prefix), suffix=tuple(suffix)), None
        middles = [row[len(prefix) : len(row) - len(suffix)] for row in rows]
        pairs = zip(_PROBES, middles, strict=True)
        merged = next((probe for probe, ids in pairs if not self._stands(prefix, ids, probe)), None)
        return PromptIds(prompt=prompt, prefix=tuple(prefix), suffix=tuple(suffix)), merged

    def _check_system(self, prompt: str) -> None:
        """Raises AssayError for a template that leaves out a turn, as some would."""
        [text] = self.render(prompt, _PROBES[:1])
        for turn in _conversation(prompt, _PROBES[0]):
            if turn["content"].strip() not in text:
                raise AssayError(
                    f"chat template of {self.tokenizer.name_or_path}: it leaves out the "
                    f"{turn['role']}'s turn of a conversation with a system turn; allowed: none"
                )

    def _stands(self, prefix: list[int], ids: list[int], reply: str) -> bool:
        """Whether ids behind the prefix hold a reply and nothing of the template's text.

        They need not be the reply's ids on its own, before which some tokenizers put a space.
        """
        before, whole = self.tokenizer.decode(prefix), self.tokenizer.decode([*prefix, *ids])
        return bool(ids == self.reply_ids(reply) or whole == before + reply)

    def _render(
        self,
        conversations: Sequence[Conversation],
        own: Variables = MappingProxyType({}),
        *,
        add_generation_prompt: bool,
    ) -> list[str]:
        variables = {**self._variables(add_generation_prompt=add_generation_prompt), **own}
        try:
            return template_sandbox.render(self._source, conversations, variables, self.policy.date)
        except AssayError as error:
            raise AssayError(
                f"chat template of {self.tokenizer.name_or_path}: it does not render a prompt and "
                f"a reply ({error})"
            ) from error


def encode(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str] | Sequence[tuple[str, str]],
    *,
    special: bool = False,
) -> list[list[int]]:
    """Token ids of texts, or of pairs, with the `special` tokens that the tokenizer adds or not.

    Raises AssayError where a regular expression of the tokenizer gives up on a text.
    """
    try:
        # The tokenizer itself: transformers' wrapper around it costs more than the tokenising.
        batch = tokenizer.backend_tokenizer.encode_batch_fast(texts, add_special_tokens=special)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust, which Python cannot name
            raise
        if len(texts) > 1:  # find the one
            alone = (texts[at : at + 1] for at in range(len(texts)))
            return [encode(tokenizer, single, special=special)[0] for single in alone]
        raise AssayError(
            f"tokenizer {tokenizer.name_or_path}: gives up on the text that ends with "
            f"{texts[0][-1][-_SHOWN:]!r} ({error}); leave it out"
        ) from None
    return [encoding.ids for encoding in batch]


def with_system(system: str, prompt: str) -> str:
    """A prompt as one text that begins with a system turn, if that is not empty.

    Raises AssayError for texts that hold `SYSTEM_END` themselves.
    """
    for name, text in (("system", system), ("prompt", prompt)):
        if SYSTEM_END in text:
            raise AssayError(f"{name}: holds the character {SYSTEM_END!r}; allowed: text without")
    return f"{system}{SYSTEM_END}{prompt}" if system else prompt


def with_reply_start(prompt: str, reply_start: str) -> str:
    """A prompt as one text that ends with a reply start, if that is not empty.

    Raises AssayError for texts that hold `REPLY_START` themselves, or that no tokenizer reads.
    """
    for name, text in (("prompt", prompt), ("after", reply_start)):
        with prefixed(name):
            if REPLY_START in checked_text(text):
                raise AssayError(f"holds the character {REPLY_START!r}; allowed: text without")
    return f"{prompt}{REPLY_START}{reply_start}" if reply_start else prompt


def check_prompt(prompt: str) -> None:
    """Raises AssayError for a prompt that is no text, or whose user's turn is white space."""
    with prefixed(f"prompt={prompt!r}"):
        checked_text(prompt)
    if not parted(prompt)[0].rpartition(SYSTEM_END)[2].strip():
        raise AssayError(f"prompt={prompt!r}; allowed: text that is not empty")


# Any: messages of files and callers.
def checked_message(number: int, message: Mapping[str, Any]) -> dict[str, Any]:
    """A conversation's message as its template reads it: role, content, and every other key.

    `from` and `value` are ShareGPT's names of role and content. Parts of a content that are all
    texts become one text. Keys without a value are left out. Raises AssayError with the number.
    """
    if "from" in message and message.get("role") is None:
        names = {"from": "role", "value": "content"}
        message = {names.get(key, key): message[key] for key in message if key != "role"}
        message["role"] = _SHAREGPT.get(str(message["role"]), message["role"])
    role, content = message.get("role"), message.get("content")
    others = {k: v for k, v in message.items() if k not in ("role", "content") and v is not None}
    with prefixed(f"message {number}"):
        if role not in ROLES:
            raise AssayError(f"role={role!r}; allowed: {', '.join(ROLES)}")
        if isinstance(content, list) and content:
            if not all(isinstance(p, Mapping) and p.get("type") == "text" for p in content):
                raise AssayError("its content has parts that are no text; only text is judged")
            parts = [part.get("text") for part in content]
            content = "".join(parts) if all(isinstance(p, str) for p in parts) else None
        if not isinstance(content, str) and not (content is None and others.get("tool_calls")):
            raise AssayError("its content is no text; only text is judged")
        return dict(checked_json({"role": role, "content": content, **others}))


def checked_text(text: str) -> str:
    """A text; raises AssayError for another type, or one that no tokenizer reads."""
    if not isinstance(text, str):
        raise AssayError(f"{text!r}; allowed: text")
    return str(checked_json(text))


# Any: JSON values.
def checked_json(value: Any) -> Any:
    """A JSON value; raises AssayError for lone surrogates, and for what JSON does not have."""
    if isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise AssayError("a lone surrogate; allowed: Unicode text")
    elif isinstance(value, Mapping):
        for key in value:
            checked_json(key)
            checked_json(value[key])
    elif isinstance(value, list):
        for entry in value:
            checked_json(entry)
    elif not isinstance(value, bool | int | float | None):
        raise AssayError(f"a value of type {type(value).__name__}; allowed: what JSON has")
    return value


# Any: JSON values.
def without_nulls(value: Any) -> Any:
    """A JSON value without keys that have no value, which columns of one type for all rows add."""
    if isinstance(value, Mapping):
        return {key: without_nulls(entry) for key, entry in value.items() if entry is not None}
    return [without_nulls(entry) for entry in value] if isinstance(value, list) else value


def turns(prompt: Prompt) -> Conversation:
    """The turns of a prompt before the reply; one as text may begin with a system turn."""
    if not isinstance(prompt, str):
        return prompt
    system, mark, text = parted(prompt)[0].rpartition(SYSTEM_END)
    first = [{"role": "system", "content": system}] if mark else []
    return [*first, {"role": "user", "content": text}]


def _conversation(prompt: Prompt, reply: str) -> Conversation:
    return [*turns(prompt), {"role": "assistant", "content": _parted(prompt)[1] + reply}]


def _parted(prompt: Prompt) -> tuple[Prompt, str]:
    """A prompt without its reply start, and the reply start; messages have none."""
    return parted(prompt) if isinstance(prompt, str) else (prompt, "")


def _common_prefix(rows: Sequence[Sequence[_T]]) -> list[_T]:
    columns = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*rows, strict=False))
    return [column[0] for column in columns]
