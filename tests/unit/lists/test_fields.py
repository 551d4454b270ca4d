"""docs/pairs.md says what is done with every column that trainers and published sets write."""

import datetime
import re
from pathlib import Path

import pytest

from engine.errors import AssayError
from engine.lists import fields
from engine.lists.rows import RowReader

PAGE = Path(__file__).parents[3] / "docs" / "pairs.md"
TABLE = PAGE.read_text(encoding="utf-8").split("### Every field")[1]
DONE = dict(re.findall(r"^\| `(\w+)` \| (\w+)", TABLE, re.MULTILINE))  # column -> first word
TEXT, TURNS = "said so", [{"role": "user", "content": "said so"}]
WHOLE = [*TURNS, {"role": "assistant", "content": "yes"}]
PAIR = {"prompt": "Why?", "chosen": "yes", "rejected": "no"}
REPLY = {"prompt": "Why?", "chosen": TEXT, "rejected": "no"}
# A row in which a column says something, where that is not a text beside a pair.
ROWS = {
    "prompt": {**PAIR, "prompt": TEXT},
    "context": {"context": TURNS, "chosen": "yes", "rejected": "no"},
    "messages": {"messages": WHOLE},
    "conversations": {
        "conversations": TURNS,
        "chosen": {"from": "gpt", "value": "yes"},
        "rejected": "no",
    },
    "conversation": {
        "conversation": [{"from": "human", "value": TEXT}, {"from": "gpt", "value": "y"}]
    },
    "history": {**PAIR, "history": [["Hi", TEXT]]},
    "tools": {**PAIR, "tools": '[{"name": "said so"}]'},
    "enable_thinking": {**PAIR, "enable_thinking": "False"},
    "documents": {**PAIR, "documents": [{"text": TEXT}]},
    "chat_template_kwargs": {**PAIR, "chat_template_kwargs": {"style": TEXT}},
    "chosen": REPLY,
    "rejected": {**PAIR, "rejected": TEXT},
    **{
        name: {"prompt": "Why?", name: TEXT}
        for name in ("reply", "response", "completion", "output")
    },
    "rejected_response": {"messages": WHOLE, "rejected_response": "no"},
    "chosen_response": {"prompt": "Why?", "chosen_response": TEXT, "rejected_response": "no"},
    "rejected_messages": {"messages": [*TURNS, WHOLE[1]], "rejected_messages": WHOLE},
    **{
        name: {**PAIR, name: [TEXT]}
        for name in ("responses", "completions", "images", "rejected_responses")
    },
    **{
        name: {**PAIR, name: {"style": TEXT}}
        for name in ("individual_preference", "reward_model", "extra_info", "models")
    },
}


def read(row):
    """The table of one row, and what was said of its file."""
    reader = RowReader(list(row))
    return reader.table([row]), reader.notes


@pytest.mark.parametrize("name", DONE)
def test_every_column_is_treated_as_the_page_says(name):
    beside = {"chosen": "yes", "rejected": "no"} if name in fields.PROMPTS else PAIR
    row, done = ROWS.get(name, {**beside, name: TEXT}), DONE[name]
    if done == "refused":
        with pytest.raises(AssayError, match=f"row 1: column '{name}' is not read"):
            read(row)
        return
    table, notes = read(row)
    conversation, labels = str(table["messages"].to_list()), table["labels"].to_list()[0]
    assert (TEXT in conversation) == (done == "read")
    assert ("given" in table.columns) == (done == "handed")
    assert (name in [label["name"] for label in labels]) == (done == "label")
    assert any(name in note for note in notes if note.startswith("no l")) == (done == "left")
    assert done != "kept" or table["id"].to_list() == [TEXT] * 2


def said(row):
    """What the conversations of a row say, by side; of each role the first letter."""
    table = read(row)[0]
    turns = [[f"{m['role'][0]}: {m['content']}" for m in own] for own in table["messages"]]
    return dict(zip(table["side"], map(" | ".join, turns), strict=True))


SAID = {
    "orca_dpo_pairs": (
        {"system": "Be kind.", "question": "Hi", "chosen": "a", "rejected": "b"},
        {"chosen": "s: Be kind. | u: Hi | a: a", "rejected": "s: Be kind. | u: Hi | a: b"},
    ),
    "the pair of messages, behind the last turn of another": (
        {"messages": [*WHOLE, WHOLE[1]], "rejected_response": "no"},
        {"chosen": "u: said so | a: yes | a: yes", "rejected": "u: said so | a: no"},
    ),
    "history as messages": (
        {"history": WHOLE, "query": "Why?", "response": "so"},
        {"reply": "u: said so | a: yes | u: Why? | a: so"},
    ),
    "UltraFeedback, whose prompt and messages stand in its pair": (
        {
            **{"prompt": "said so", "chosen": WHOLE, "messages": WHOLE},
            "rejected": [*TURNS, {**WHOLE[1], "content": "no"}],
        },
        {"chosen": "u: said so | a: yes", "rejected": "u: said so | a: no"},
    ),
    "an input without an instruction": (
        {"instruction": "", "input": "Hi", "output": "a"},
        {"reply": "u: Hi | a: a"},
    ),
    "an empty system turn is none": (
        {"system": "", "input": "Hi", "output": "a"},
        {"reply": "u: Hi | a: a"},
    ),
    "LLaMA-Factory": (
        {"instruction": "Add", "input": "1, 2", "history": [["Hi", "Ho"]], "output": "3"},
        {"reply": "u: Hi | a: Ho | u: Add\n1, 2 | a: 3"},
    ),
    "parts of a content": (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}, WHOLE[1]]},
        {"reply": "u: a | a: yes"},
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_rows_of_trainers_and_published_sets_say(name):
    row, expected = SAID[name]
    assert said(row) == expected


SYSTEM = {"role": "system", "content": "Be."}
OTHER = [{"from": "human", "value": "other"}]
DATED = {**TURNS[0], "timestamp": datetime.date(2026, 1, 1)}
# A row beside a pair, or a row of its own, and what is said of it.
BESIDE = [
    ({"messages": WHOLE}, "column 'messages' is not read"),  # that are not the pair's
    ({"dialogue": WHOLE}, "column 'dialogue' is not read"),  # of a name that nobody knows
    ({"conversations": OTHER}, "column 'conversations' is not read"),
    ({"context": "es"}, "column 'context' is not read"),  # the reply repeats it
    ({"input": "7"}, "column 'input' is not read"),
    ({"user prompt": "x"}, "column 'user prompt' is"),
    ({"Response 2": "x"}, "column 'Response 2' is not read"),
    ({"image": b"png"}, "column 'image' is not read"),
    ({"System": TEXT}, "column 'System' is not read"),
    ({"system": float("nan")}, "system: no text"),
    ({"history": ["ab", "cd"]}, "history: "),
    ({"rejected_response": "b"}, "chosen, rejected, rejected_response"),
    (
        {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}},
        "chat_template_kwargs: enable_thinking",
    ),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs: messages"),
]
ALONE = [
    ({"system": "Be kind.", "messages": [SYSTEM, *WHOLE]}, "system turn"),
    (
        {"system": "s", "chosen": WHOLE, "rejected": [{**TURNS[0], "content": "z"}, WHOLE[1]]},
        "chosen and rejected",
    ),
    ({"context": TURNS, "response1": "a", "response2": "b"}, "no single column of replies"),
    ({"messages": [DATED, WHOLE[1]]}, "messages: message 1: a value of type date"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image"}]}, WHOLE[1]]},
        "messages: message 1: ",
    ),
    ({"prompt": "a", "rejected_response": "b"}, "no column 'chosen'"),
    ({"prompt": "a", "chosen": ["b"], "rejected": ["c", None]}, "rejected: a list"),
    ({"prompt": "a", "chosen": [], "rejected": ["c"]}, "chosen: neither text"),
    ({"prompt": "a", "reply": ["b", "c"]}, "reply: a list"),
]
REFUSED = [*(({**PAIR, **row}, why) for row, why in BESIDE), *ALONE]


@pytest.mark.parametrize(("row", "why"), REFUSED, ids=[why for _, why in REFUSED])
def test_what_would_not_be_scored_is_refused(row, why):
    with pytest.raises(AssayError, match=re.escape(why)):
        read(row)


def test_a_row_may_have_several_replies_of_a_side():
    """As those of RewardBench 2; each is a conversation with the row's prompt and labels."""
    table, _ = read({"prompt": "a", "chosen": ["b"], "rejected": ["c", "d"], "system": "s"})
    assert table.select("row", "side").rows() == [(1, "chosen"), (1, "rejected"), (1, "rejected")]
    texts = [[message["content"] for message in messages] for messages in table["messages"]]
    assert texts == [["s", "a", "b"], ["s", "a", "c"], ["s", "a", "d"]]


def test_numbers_and_what_the_conversation_says_are_no_reason_to_refuse():
    """Copies of the prompt and of a reply, counts of images, and a column of no known part."""
    beside = {"question": "Why?", "response": "yes", "images": "0", "edits": [{"from": 3, "to": 4}]}
    table, notes = read({**PAIR, **beside, "candidates": 4})
    assert [label["name"] for label in table["labels"][0]] == ["images", "candidates"]
    assert notes[0].endswith(": images, candidates")
    assert len(notes) == 2 and "edits" in notes[1]


def test_a_column_of_replies_named_by_the_user_makes_the_others_labels():
    row = {"prompt": "Why?", "answer": TEXT, "response": "b"}
    table = RowReader([*row], "answer").table([row])
    assert table["messages"].to_list()[0][-1]["content"] == TEXT
    assert table["labels"].to_list() == [[{"name": "response", "value": "b"}]]
    with pytest.raises(AssayError, match="column 'image' is not read"):
        RowReader([*row, "image"], "answer").table([row | {"image": "x"}])


def test_a_prompt_of_the_command_line_stands_behind_history_and_system_of_both_replies():
    row = {"history": [["Hi", "Ho"]], "system": "Be.", "chosen": "yes", "rejected": "no"}
    table = RowReader([*row], None, lambda: "Why?", "--prompt").table([row])
    for messages, reply in zip(table["messages"].to_list(), ("yes", "no"), strict=True):
        assert [m["content"] for m in messages] == ["Be.", "Hi", "Ho", "Why?", reply]
    row = {"messages": TURNS, "chosen": "yes", "rejected": "no"}
    with pytest.raises(AssayError, match=r"messages: .*--prompt"):
        RowReader([*row], None, lambda: "Why?", "--prompt").table([row])
