"""Many replies at once, whose common opening is tokenised once: each has the ids it has alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.text.chat_template import ChatTemplate, TemplatePolicy
from tests.support import tiny
from tests.unit.text.test_chat_template import PROMPT, TEMPLATES, template


def wholly(chat, replies):
    """The definition, which a few replies get: rendered by the template, tokenised as one text."""
    few = [replies[i : i + 32] for i in range(0, len(replies), 32)]
    return [row for chunk in few for row in chat.sequences(PROMPT, chunk)]


# Replies that trim away, merge with the template, hold its tokens, or hold no whole character.
AWKWARD = [
    "",
    " ",
    "\n",
    "\n\n",
    " love\n",
    "love",
    "<|im_end|>",
    "<|endoftext|>",
    "<|endoftext|>x",
    "<script>",
    "�",
    "user\n",
    "qj",
    "\nlove",
    "the war" * 5,
]
REPLIES = st.lists(st.sampled_from(AWKWARD) | st.text(max_size=4), min_size=33, max_size=40)
CHATS = {
    f"{name}, {bos}": template(text, bos=bos, adds_bos=True)
    for name, text in TEMPLATES.items()
    for bos in ("template", "single", "double")
}


@pytest.mark.parametrize("name", CHATS)
@settings(max_examples=8)
@given(replies=REPLIES)
def test_many_replies_have_the_ids_that_each_has_alone(name, replies):
    assert CHATS[name].sequences(PROMPT, replies) == wholly(CHATS[name], replies)


@pytest.mark.parametrize("name", CHATS)
def test_every_token_has_the_ids_of_its_conversation_alone(name):
    tokens = every_token(CHATS[name])
    assert CHATS[name].sequences(PROMPT, tokens) == wholly(CHATS[name], tokens)


def test_a_template_may_look_into_replies():
    looks = "{{ '!' if 'love>' in message['content'] }}{{ message['content'] }}"
    chat = template(tiny.CHATML.replace("{{ message['content'] }}", looks))
    replies = [*every_token(chat), "<love>", "real"]
    rows = chat.sequences(PROMPT, replies)
    assert rows == wholly(chat, replies)
    assert "!<love>" in chat.tokenizer.decode(rows[replies.index("<love>")])


def every_token(chat) -> list[str]:
    return [chat.tokenizer.decode([i]) for i in range(len(chat.tokenizer))]


def test_an_added_token_that_lies_across_the_cut_is_no_place_to_cut():
    tokenizer = tiny.tokenizer(
        "{% for m in messages %}{{ m['role'] }}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"
    )
    tokenizer.add_tokens(["t<|im_start|>qj"], special_tokens=True)
    chat = ChatTemplate(tokenizer, TemplatePolicy(bos="template", date=None))
    replies = [*AWKWARD, "qjq", "jqj", *every_token(chat)]
    rows = chat.sequences(PROMPT, replies)
    assert rows == wholly(chat, replies)
    assert tokenizer.convert_tokens_to_ids("t<|im_start|>qj") in rows[replies.index("qjq")]
