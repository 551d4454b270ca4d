"""Templates traced instead of run, openings tokenised once: always the same ids, or not taken."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.prompts import ChatTemplate, TemplatePolicy
from engine.rendering import Frame, trace
from tests import tiny
from tests.engine.test_prompts import PROMPT, TEMPLATES, template

MESSAGES = [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "love"}]
REPLY = "messages[1].content"


def wholly(chat, replies):
    """The definition, which a few replies get: rendered by the template, tokenised as one text."""
    few = [replies[i : i + 32] for i in range(0, len(replies), 32)]
    return [row for chunk in few for row in chat.sequences(PROMPT, chunk)]


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ("<{{ messages[1].content }}>", Frame("<", ">", False)),
        ("<{{ messages[1]['content'] | trim }}>", Frame("<", ">", True)),
        ("<{{ messages[1].content.strip() + '>' }}", Frame("<", ">", True)),
        ("{% set x %}<{{ messages[1].content }}{% endset %}{{ x }}>", Frame("<", ">", False)),
        ("{% macro m(t) %}<{{ t }}>{% endmacro %}{{ m(messages[1].content) }}",
         Frame("<", ">", False)),
        ("{% if messages[1].content is string %}{{ messages[1].content }}{% endif %}",
         Frame("", "", False)),
    ],
)  # fmt: skip
def test_a_template_that_only_places_the_reply_has_a_frame(text, frame):
    assert trace(text, MESSAGES) == frame


@pytest.mark.parametrize(
    "looks",
    [
        f"{{% if 'x' in {REPLY} %}}y{{% endif %}}",
        f"{{% if {REPLY} %}}y{{% endif %}}",
        f"{{% if {REPLY} == '' %}}y{{% endif %}}",
        f"{{% if {REPLY} in ['x'] %}}y{{% endif %}}",
        f"{{% if {REPLY} is eq('x') %}}y{{% endif %}}",
        f"{{% if {REPLY}.startswith('x') %}}y{{% endif %}}",
        f"{{% for c in {REPLY} %}}y{{% endfor %}}",
        f"{{{{ {REPLY} | length }}}}",
        f"{{{{ {REPLY} | upper }}}}",
        f"{{{{ {REPLY} | default('y', true) }}}}",
        f"{{{{ {REPLY} ~ 'y' }}}}",
        f"{{{{ '%s' % {REPLY} }}}}",
        f"{{{{ {REPLY}[0] }}}}",
        f"{{{{ {REPLY}.split('x')[-1] }}}}",
        f"{{{{ {REPLY} | int }}}}",
        f"{{{{ ({REPLY} + 'y') | trim }}}}",
        f"{{{{ {REPLY} | trim('x') }}}}",
        f"{{{{ {REPLY} }}}}",  # a second time
        "{{ messages | tojson }}",
        "{{ messages | map(attribute='content') | join }}",
        "{{ raise_exception('no') }}",
    ],
)
def test_a_template_that_looks_into_the_reply_has_none(looks):
    assert trace(f"{{{{ {REPLY} }}}}", MESSAGES) is not None
    assert trace(f"{looks}{{{{ {REPLY} }}}}", MESSAGES) is None


def test_a_template_without_the_reply_has_no_frame():
    assert trace("{{ messages[0].content }}", MESSAGES) is None


# Replies that trim away, merge with the template, hold its tokens, or hold no whole character.
AWKWARD = [
    "", " ", "\n", "\n\n", " love\n", "love", "<|im_end|>", "<|endoftext|>", "<|endoftext|>x",
    "<script>", "�", "user\n", "qj", "\nlove", "the war" * 5,
]  # fmt: skip
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
    tokens = CHATS[name].tokens
    assert CHATS[name].sequences(PROMPT, tokens) == wholly(CHATS[name], tokens)


def test_a_template_that_looks_into_replies_is_run_for_each():
    looks = tiny.CHATML.replace(
        "{{ message['content'] }}",
        "{% if 'love' in message['content'] %}!{% endif %}{{ message['content'] }}",
    )
    chat = template(looks)
    rows = chat.sequences(PROMPT, chat.tokens)
    assert rows == wholly(chat, chat.tokens)
    assert "!love" in chat.tokenizer.decode(rows[chat.tokens.index("love")])


def test_an_added_token_that_lies_across_the_cut_is_no_place_to_cut():
    tokenizer = tiny.tokenizer(
        "{% for m in messages %}{{ m['role'] }}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"
    )
    tokenizer.add_tokens(["t<|im_start|>qj"], special_tokens=True)
    chat = ChatTemplate(tokenizer, TemplatePolicy(bos="template", date=None))
    replies = [*AWKWARD, "qjq", "jqj", *chat.tokens]
    rows = chat.sequences(PROMPT, replies)
    assert rows == wholly(chat, replies)
    assert tokenizer.convert_tokens_to_ids("t<|im_start|>qj") in rows[replies.index("qjq")]


def test_only_the_rest_of_a_conversation_is_tokenised(monkeypatch):
    chat = template()
    replies = [f"love{i}" for i in range(100)]
    seen = []
    original = type(chat.tokenizer)._encode_plus

    def watched(self, text, *args, **named):
        seen.append(text)
        return original(self, text, *args, **named)

    monkeypatch.setattr(type(chat.tokenizer), "_encode_plus", watched)
    chat.sequences(PROMPT, replies)
    assert not any("love99" in str(text) for text in seen)


def test_progress_hears_of_every_reply():
    heard = []
    template().sequences(PROMPT, ["love"] * 5000, heard.append)
    assert sum(heard) == 5000
    assert len(heard) > 1


@pytest.mark.parametrize("wrong", [{"trims": False}, {"before": "<"}, {"after": ">"}])
def test_a_frame_that_is_not_the_templates_is_not_taken(monkeypatch, wrong):
    chat = template(tiny.TRIMMED)
    planted = lambda *args, **named: dataclasses.replace(trace(*args, **named), **wrong)  # noqa: E731
    monkeypatch.setattr("engine.prompts.trace", planted)
    replies = [*AWKWARD] * 3
    assert chat.sequences(PROMPT, replies) == wholly(chat, replies)
