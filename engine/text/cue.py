"""The text that a language model continues: a prompt as plain text or in the chat template."""

import dataclasses
from collections.abc import Callable, Sequence
from types import MappingProxyType

from transformers import PreTrainedTokenizerBase

from engine.errors import AssayError
from engine.text.chat_template import SYSTEM_END, ChatTemplate, check_prompt, encode
from engine.text.template_sandbox import Variables
from engine.types import Prompt, PromptIds


@dataclasses.dataclass(frozen=True)
class Cue:
    """A prompt in a language model's input format, and how replies continue it.

    No end-of-turn token follows a reply. So the probability of a reply of one token is that of the
    token being the next one.
    """

    tokenizer: PreTrainedTokenizerBase
    prompt: PromptIds  # ids of the cue as the prefix; the suffix is empty
    text: str  # the cue as text
    lead: str  # text between cue and reply
    tokenise: Callable[[list[str]], list[list[int]]]  # ids of texts that begin with the cue

    @classmethod
    def pretrained(cls, tokenizer: PreTrainedTokenizerBase, prompt: Prompt) -> "Cue":
        r"""`User: <prompt>\nAssistant:` as plain text (Christian et al. 2025, Tables A1-A5).

        The tokenizer adds the special tokens that it adds to any text. A space precedes a reply.
        Raises AssayError for messages, or a prompt with a system turn, which plain text has not.
        """
        if not isinstance(prompt, str) or SYSTEM_END in prompt:
            what = "has a system turn" if isinstance(prompt, str) else "is a list of messages"
            raise AssayError(f"prompt={prompt!r}: {what}; allowed with form='pretrained': none")

        def tokenise(texts: list[str]) -> list[list[int]]:
            return encode(tokenizer, texts, special=True)

        return cls._make(tokenizer, prompt, f"User: {prompt}\nAssistant:", " ", tokenise)

    @classmethod
    def chat(
        cls, template: ChatTemplate, prompt: Prompt, variables: Variables = MappingProxyType({})
    ) -> "Cue":
        """The chat template with its generation prompt, directly followed by a reply."""
        text = template.cue(prompt, variables)
        return cls._make(template.tokenizer, prompt, text, "", template.tokenise)

    @classmethod
    def _make(
        cls,
        tokenizer: PreTrainedTokenizerBase,
        prompt: Prompt,
        text: str,
        lead: str,
        tokenise: Callable[[list[str]], list[list[int]]],
    ) -> "Cue":
        if isinstance(prompt, str):
            check_prompt(prompt)
        (ids,) = tokenise([text])
        if ids[-1] == tokenizer.eos_token_id:
            raise AssayError(
                f"tokenizer {tokenizer.name_or_path}: it closes a text with "
                f"{tokenizer.eos_token!r}, after which no reply stands"
            )
        split = PromptIds(prompt=prompt, prefix=tuple(ids), suffix=())
        return cls(tokenizer, split, text, lead, tokenise)

    def replies(self, replies: Sequence[str]) -> list[list[int]]:
        """Token ids of each reply behind the cue.

        If a reply's text would merge with the cue's text in tokens, the reply is tokenised alone,
        since the model is given the cue's ids in any case.
        """
        texts = [self.lead + reply for reply in replies]
        start, rows = list(self.prompt.prefix), []
        wholes = self.tokenise([self.text + text for text in texts])
        for reply, text, whole in zip(replies, texts, wholes, strict=True):
            merged = whole[: len(start)] != start
            ids = self._alone(text) if merged else whole[len(start) :]
            if not ids:
                raise AssayError(f"reply {reply!r}: no tokens; allowed: text that is not empty")
            rows.append(ids)
        return rows

    def _alone(self, text: str) -> list[int]:
        [ids] = encode(self.tokenizer, [text])
        return ids
