"""What a language model continues: a prompt as plain text or in the chat template."""

import dataclasses
from collections.abc import Callable, Sequence

from transformers import PreTrainedTokenizerBase

from engine.errors import AssayError
from engine.text.chat_template import ChatTemplate, check_prompt
from engine.types import PromptIds

FORMS = ("pretrained", "chat")


@dataclasses.dataclass(frozen=True)
class Cue:
    """A prompt that a language model continues, and replies as its continuations.

    A reply follows `lead`, is tokenised in its place, and ends where its text ends: no end-of-turn
    token is added, so that a reply of one token is as probable as that token is to come next.
    """

    tokenizer: PreTrainedTokenizerBase
    prompt: PromptIds  # no suffix
    text: str
    lead: str
    tokenise: Callable[[list[str]], list[list[int]]]

    @classmethod
    def pretrained(cls, tokenizer: PreTrainedTokenizerBase, prompt: str) -> "Cue":
        r"""`User: <prompt>\nAssistant:` as plain text (PAPER.md, Tables A1-A5).

        Special tokens are those that the tokenizer puts around any text; a reply follows a space.
        """

        def tokenise(texts: list[str]) -> list[list[int]]:
            return tokenizer(texts)["input_ids"]

        return cls._make(tokenizer, prompt, f"User: {prompt}\nAssistant:", " ", tokenise)

    @classmethod
    def chat(cls, template: ChatTemplate, prompt: str) -> "Cue":
        """The chat template with its generation prompt; a reply follows at once."""
        text = template.cue(prompt)
        return cls._make(template.tokenizer, prompt, text, "", template.tokenise)

    @classmethod
    def _make(
        cls,
        tokenizer: PreTrainedTokenizerBase,
        prompt: str,
        text: str,
        lead: str,
        tokenise: Callable[[list[str]], list[list[int]]],
    ) -> "Cue":
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
        """Token ids of each reply.

        A reply whose text would merge with the cue's is tokenised on its own, for the cue is what
        the model is given.

        Raises:
          AssayError: a reply without tokens.
        """
        texts = [self.lead + reply for reply in replies]
        start, found = list(self.prompt.prefix), []
        wholes = self.tokenise([self.text + text for text in texts])
        for reply, text, whole in zip(replies, texts, wholes, strict=True):
            together = whole[: len(start)] == start
            ids = whole[len(start) :] if together else self._alone(text)
            if not ids:
                raise AssayError(f"reply {reply!r}: no tokens; allowed: text that is not empty")
            found.append(ids)
        return found

    def _alone(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]
