"""What a template leaves out of conversations is found by rendering them without it."""

import re

import pytest

from engine.errors import AssayError
from engine.text.unread import unread_keys
from tests.support import tiny
from tests.unit.text.test_chat_template import template

ASK, REPLY = {"role": "user", "content": "a?"}, {"role": "assistant", "content": "b"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}
# Writes either name of what was thought, calls, and every turn but those of a system.
EITHER = (
    "{% for m in (messages[-1:] if first else messages) if m.role != 'system' %}{{ m.role }}: "
    "{{ m.reasoning_content or m.reasoning }}{{ m.tool_calls or m.function_call or m.content }}\n"
    "{% endfor %}"
)


def unread(conversation, variables=None, text=EITHER):
    return unread_keys(template(text), [conversation], [variables or {}], ["row 1"])


def test_keys_that_stand_in_for_one_another_are_read():
    assert unread([ASK, {**REPLY, "reasoning": "x", "reasoning_content": "x"}]) == []
    assert unread([ASK, {**CALL, "function_call": CALL["tool_calls"]}]) == []
    assert unread([{**ASK, "weight": 0}, {**REPLY, "reasoning": "x"}]) == ["weight"]


@pytest.mark.parametrize(
    ("conversation", "variables", "why"),
    [
        ([{"role": "system", "content": "Be."}, ASK, REPLY], {}, ".*system"),
        ([ASK, REPLY, ASK, REPLY], {"first": True}, ".*user"),
        ([ASK, REPLY], {"tools": [{"name": "f"}]}, ".*tools"),
        ([ASK, REPLY], {"documents": [{"text": "x"}]}, ".*documents"),
    ],
)
def test_what_the_model_is_to_judge_is_never_left_out(conversation, variables, why):
    with pytest.raises(AssayError, match=f"row 1: {why}"):
        unread(conversation, variables)


def test_empty_calls_say_nothing_and_a_conversation_that_is_not_rendered_is_left_to_the_pass():
    assert unread([ASK, {**REPLY, "tool_calls": [], "function_call": {}}], text=tiny.CHATML) == []
    refusing = "{{ raise_exception('no tools') }}"
    assert unread([ASK, {**REPLY, "tool_calls": [1]}], text=refusing) == []


def test_rows_of_equal_variables_in_another_order_are_rendered_as_they_are():
    chat = template("{{ tools | tojson }}")
    rows = [{"tools": [{"a": 1, "b": True}]}, {"tools": [{"b": True, "a": 1}]}]
    rows += [{"tools": [{"a": True, "b": 1}]}]
    texts = chat.texts([[ASK, REPLY]] * 3, rows)
    assert [re.sub(r"\W", "", text) for text in texts] == ["a1btrue", "btruea1", "atrueb1"]
