"""Templates traced instead of run, openings tokenised once: always the same ids, or not taken."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.text.chat_template import ChatTemplate, TemplatePolicy
from engine.text.template_trace import Frame, trace
from tests.support import tiny
from tests.unit.text.test_chat_template import PROMPT, TEMPLATES, template

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
        (
            "{% macro m(t) %}<{{ t }}>{% endmacro %}{{ m(messages[1].content) }}",
            Frame("<", ">", False),
        ),
        ("{% generation %}<{{ messages[1].content }}{% endgeneration %}>", Frame("<", ">", False)),
        (
            "{% if messages[1].content is string %}{{ messages[1].content }}{% endif %}",
            Frame("", "", False),
        ),
    ],
)
def test_a_template_that_only_places_the_reply_has_a_frame(text, frame):
    assert trace(text, MESSAGES) == frame


@pytest.mark.parametrize(
    "question",
    [
        f"'x' in {REPLY}",
        f"{REPLY} == ''",
        f"{REPLY} or 'y'",
        f"{REPLY}.startswith('x')",
        f"{REPLY} | length",
        f"{REPLY} | int",
        f"{REPLY} | trim('x')",
        f"({REPLY} + 'y') | trim",
        f"{REPLY} ~ 'y'",
        f"'%s' % {REPLY}",
        f"'{{}}'.format({REPLY})",
        f"{REPLY}[0]",
        f"{{{REPLY}: 1}}",
        f"(7)[{REPLY}]",  # `real`, say: text names an attribute where there are no items
        f"namespace(x={REPLY}).x | length",
        "messages | tojson",
        "messages | string",
        "messages | map(attribute='content') | join",
        "messages | selectattr('content') | list",
        "messages | sort(attribute='content')",
        "raise_exception('no')",
        "strftime_now('%d')",
    ],
)
def test_a_template_that_looks_into_the_reply_has_no_frame(question):
    assert trace(f"{{% set x = 1 %}}{{{{ {REPLY} }}}}", MESSAGES) is not None
    assert trace(f"{{% set x = {question} %}}{{{{ {REPLY} }}}}", MESSAGES) is None


ESCAPED = "{{% autoescape true %}}{{{{ {} }}}}{{% endautoescape %}}"
PLACES = {
    "twice": f"{{{{ {REPLY} }}}}{{{{ {REPLY} }}}}",
    "in a loop": f"{{% for c in {REPLY} %}}{{{{ c }}}}{{% endfor %}}",
    "in a condition": f"{{% if {REPLY} %}}{{{{ {REPLY} }}}}{{% endif %}}",
    "where it changes": "{% for m in messages %}{% if loop.changed(m.content) %}"
    "{{ m.content }}{% endif %}{% endfor %}",
    "in a filter": f"{{% filter upper %}}{{{{ {REPLY} }}}}{{% endfilter %}}",
    "in a list": f"{{{{ [{REPLY}] }}}}",
    "escaped": ESCAPED.format(REPLY),
    "escaped in a macro": f"{{% macro m(t) %}}{ESCAPED.format('t')}{{% endmacro %}}"
    f"{{{{ m({REPLY}) }}}}",
    "escaped by what follows": f"{{{{ {REPLY} + ('<b>' | safe) }}}}",
    "escaped by what precedes": f"{{{{ ('<b>' | safe) + {REPLY} }}}}",
}


@pytest.mark.parametrize("way", PLACES)
def test_a_template_that_changes_what_it_places_has_no_frame(way):
    assert trace(PLACES[way], MESSAGES) is None


@pytest.mark.parametrize("name", ["raise_exception", "strftime_now"])
def test_a_template_that_looks_where_transformers_has_a_function_has_no_frame(name):
    looks = f"{{% if {name} is defined and 'x' in {REPLY} %}}y{{% endif %}}{{{{ {REPLY} }}}}"
    assert trace(looks, MESSAGES) is None


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


@pytest.mark.parametrize(
    ("looks", "shown"),
    [
        ("{{ '!' if 'love>' in message['content'] }}{{ message['content'] }}", "!<love>"),
        ("{% autoescape true %}{{ message['content'] }}{% endautoescape %}", "&lt;love&gt;"),
        ("{{ (7)[message['content']] }}{{ message['content'] }}", "<love>"),
    ],
)
def test_a_template_that_looks_into_replies_is_run_for_each(looks, shown):
    chat = template(tiny.CHATML.replace("{{ message['content'] }}", looks))
    replies = [*every_token(chat), "<love>", "real"]
    rows = chat.sequences(PROMPT, replies)
    assert rows == wholly(chat, replies)
    assert shown in chat.tokenizer.decode(rows[replies.index("<love>")])


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


@pytest.mark.parametrize("wrong", [{"trims": False}, {"before": "<"}, {"after": ">"}])
def test_a_frame_that_is_not_the_templates_is_not_taken(monkeypatch, wrong):
    chat = template(tiny.TRIMMED)

    def planted(template, messages, variables, date):
        return dataclasses.replace(trace(template, messages, **variables), **wrong)

    monkeypatch.setattr("engine.text.template_sandbox.find_frame", planted)
    replies = [*AWKWARD] * 3
    assert chat.sequences(PROMPT, replies) == wholly(chat, replies)
