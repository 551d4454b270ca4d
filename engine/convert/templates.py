"""A model's chat template: the folder's or the user's, up to where its class reads the reward."""

import dataclasses
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from engine.errors import AssayError
from engine.models.encoder_config import EncoderConfig
from engine.text.chat_template import TRL, ChatTemplate, TemplatePolicy, encode

_POLICY = TemplatePolicy(bos="template", date="26 Jul 2024")  # to see what a template writes
_REPLY = "Hm."  # likewise
# A prompt and its reply, with nothing between them; `trl` also with eos behind them.
BUILT_IN = {
    "raw": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
    "trl": TRL,
}

# Class -> the token at which it reads its reward, put behind the whole conversation.
BEHIND = {"AtheneForSequenceClassification": "<|reserved_special_token_1|>"}  # id 128003
# Class -> the token at which it reads its reward, put behind the reply: the last one that is read.
INSIDE = {"Qwen2ForProcessRewardModel": "<extra_0>"}
_INSIDE = (
    "{%- set messages = messages[:-1] + [{'role': messages[-1]['role'], "
    "'content': messages[-1]['content'] + ADDED}] %}"
    "{%- set text %}{{ '' }}TEMPLATE{{ '' }}{% endset %}{{ text.rsplit(MARK, 1)[0] + MARK }}"
)


def choose(tokenizer: PreTrainedTokenizerBase, given: str, default: str = "") -> None:
    """Sets the chat template that a user gives: a file of Jinja, one of `BUILT_IN`, or of many.

    "" keeps the folder's, but for a `default`. Raises AssayError for anything else.
    """
    if not given and default:
        tokenizer.chat_template = default
        return
    templates = tokenizer.chat_template
    by_name = templates if isinstance(templates, dict) else {}
    if given in by_name:
        tokenizer.chat_template = by_name[given]
    elif given in BUILT_IN:
        if given == "trl" and not tokenizer.eos_token:
            raise AssayError("template='trl': the tokenizer has no eos token; name it there")
        tokenizer.chat_template = BUILT_IN[given]
    elif given:
        try:
            tokenizer.chat_template = Path(given).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            names = "".join(f", {name!r}" for name in (*BUILT_IN, *by_name))
            raise AssayError(
                f"template={given!r}; allowed: a file of Jinja in UTF-8{names}"
            ) from error


def mark(tokenizer: PreTrainedTokenizerBase, architecture: str) -> int | None:
    """Puts the token at which a class reads its reward into the template; returns its id.

    A template that writes it there itself keeps it once. None: the class reads at the end. Raises
    AssayError where the tokenizer lacks the token, or the template does not render.
    """
    token = BEHIND.get(architecture) or INSIDE.get(architecture)
    template = tokenizer.chat_template
    if isinstance(template, dict):  # of several, the default one is read
        template = template.get("default")
    if token is None or not isinstance(template, str):
        return None
    [ids] = encode(tokenizer, [token])
    if len(ids) != 1:
        raise AssayError(
            f"{architecture} reads its reward at {token!r}, no token of this tokenizer"
        )
    template = template.removesuffix("\n")  # as Jinja does
    chat = ChatTemplate(tokenizer, _POLICY)
    [text] = chat.render(chat.probe(), [_REPLY])
    if architecture in BEHIND:
        if not text.endswith(token):
            tokenizer.chat_template = f"{template}{{{{ {token!r} }}}}"
    else:
        added = "" if token in text.rpartition(_REPLY)[2] else token
        marked = _INSIDE.replace("MARK", repr(token)).replace("ADDED", repr(added))
        tokenizer.chat_template = marked.replace("TEMPLATE", template)
    return ids[0]


def with_separator(config: EncoderConfig, template: ChatTemplate) -> EncoderConfig:
    """The encoder with the id behind which its tokenizer gives ids the token type 1, if it does.

    Raises AssayError for other token types than those: they could not be told from the ids.
    """
    if config.token_types < 2 or not template.is_pair:
        return config
    pair = template.tokenizer.backend_tokenizer.encode(template.probe(), _REPLY)
    if 1 not in pair.type_ids:
        return config
    second = pair.type_ids.index(1)
    separator = pair.ids[second - 1]
    first = pair.ids.index(separator)
    if second != first + 1 or pair.type_ids != [int(i > first) for i in range(len(pair.ids))]:
        raise AssayError(
            f"tokenizer {template.tokenizer.name_or_path}: token types {pair.type_ids} of a pair "
            "of texts; allowed: 0 up to the first separator, and 1 behind it"
        )
    return dataclasses.replace(config, separator=separator)
