"""BOS tokens and line ends in front of a conversation; hashes of cards that are older than them."""

import dataclasses
import hashlib
import json

import pytest

from engine.errors import AssayError
from engine.text.chat_template import ChatTemplate, TemplatePolicy
from tests.support import tiny

PROMPT = "What is the truth?"
BEGINS = {
    "": tiny.CHATML,
    "bos": "{{ bos_token }}" + tiny.CHATML,
    "line ends": "\n\n{{ '\n' }}" + tiny.CHATML,
    "bos, line end": "{{ bos_token }}{{ '\n' }}" + tiny.CHATML,
    "two bos": "{{ bos_token }}{{ bos_token }}" + tiny.CHATML,
}


def template(begin, bos="template", newlines="keep", **tokenizer):
    policy = TemplatePolicy(bos=bos, date=None, newlines=newlines)
    return ChatTemplate(tiny.tokenizer(BEGINS[begin], **tokenizer), policy)


def first_ids(chat) -> list[int]:
    """The ids before the user's turn; BOS is 0."""
    ids = chat.sequences(PROMPT, ["love"])[0]
    return ids[: ids.index(chat.tokenizer.convert_tokens_to_ids("<|im_start|>"))]


@pytest.mark.parametrize(
    ("begin", "bos", "count"),
    [
        ("", "none", 0),
        ("bos", "none", 0),
        ("two bos", "none", 0),
        ("two bos", "template", 2),
        ("two bos", "single", 1),
        ("bos", "double", 2),
        ("", "double", 1),
    ],
)
def test_each_policy_leaves_so_many_bos(begin, bos, count):
    assert first_ids(template(begin, bos, adds_bos=True)) == [0] * count


@pytest.mark.parametrize(
    ("begin", "kept", "trimmed"), [("line ends", 3, 0), ("bos, line end", 1, 0), ("bos", 0, 0)]
)
def test_line_ends_in_front_are_kept_or_trimmed(begin, kept, trimmed):
    for newlines, count in (("keep", kept), ("trim", trimmed)):
        chat = template(begin, newlines=newlines)
        text = chat.tokenizer.decode([i for i in first_ids(chat) if i != 0])
        assert text == "\n" * count


def test_a_tokenizer_without_bos_has_no_reading_without_it():
    tokenizer = tiny.tokenizer()
    tokenizer.bos_token = None
    with pytest.raises(AssayError, match=r"template.bos='none'; this tokenizer defines no BOS"):
        ChatTemplate(tokenizer, TemplatePolicy(bos="none", date=None))


def test_an_unknown_value_is_refused():
    with pytest.raises(AssayError, match=r"template.newlines='strip'; allowed: 'keep', 'trim'"):
        TemplatePolicy(bos="none", date=None, newlines="strip")


def test_a_card_that_keeps_line_ends_has_the_hash_that_it_had_before_they_could_be_trimmed(
    checkpoint,
):
    card = checkpoint().card
    fields = json.loads(card.to_json())
    assert fields["policy"] == {"bos": "template", "date": None}
    describing = ("slug", "source", "revision", "files", "tokenizer_files", "sha256")
    kept = {name: value for name, value in fields.items() if name not in describing}
    before = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
    assert card.checkpoint_hash == before
    policy = dataclasses.replace(card.policy, newlines="trim")
    trimmed = dataclasses.replace(card, policy=policy)
    assert trimmed.checkpoint_hash != before
    assert type(card).from_json(trimmed.to_json()) == trimmed
