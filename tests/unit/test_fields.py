"""docs/pairs.md says what is done with every column that trainers and published sets write."""

import re
from pathlib import Path

import pytest

from engine.errors import AssayError
from launch.common import fields
from launch.common.row_reader import RowReader

PAGE = Path(__file__).parents[2] / "docs" / "pairs.md"
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
    "chosen_messages": {"chosen_messages": WHOLE, "rejected_messages": [*TURNS, WHOLE[1]]},
    "response1": {"prompt": "Why?", "response1": TEXT, "response2": "no", "overall_preference": 1},
    "response_1": {
        "prompt": "Why?",
        "response_1": TEXT,
        "response_2": "no",
        "preference_strength": -1,
    },
    **{
        name: {**PAIR, name: [TEXT]}
        for name in ("responses", "completions", "images", "rejected_responses")
    },
    **{
        name: {**PAIR, name: {"style": TEXT}}
        for name in ("individual_preference", "reward_model", "extra_info")
    },
}


def read(row):
    """The table of one row, and what was said of its file."""
    reader = RowReader(list(row), None, None, "", json_cells=False)
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
    assert (TEXT in table.to_dicts()[0].get("given", "")) == (done == "handed")
    assert (name in [label["name"] for label in labels]) == (done == "label")
    assert any(name in note for note in notes) == (done == "left")
    assert done != "kept" or table["id"].to_list() == [TEXT] * 2


def roles_and_texts(row):
    """What the conversations of a row say, by side."""
    table = read(row)[0]
    said = [[(m["role"], m["content"]) for m in turns] for turns in table["messages"].to_list()]
    return dict(zip(table["side"], said, strict=True))


HELPSTEER = {"context": TURNS, "response1": "a", "response2": "b", "overall_preference": 2}
ASKED = ("user", "said so")
SAID = {
    "HelpSteer3, the second is preferred": (
        HELPSTEER,
        {"chosen": [ASKED, ("assistant", "b")], "rejected": [ASKED, ("assistant", "a")]},
    ),
    "HelpSteer3, the first is preferred": (
        {**HELPSTEER, "overall_preference": "-1"},
        {"chosen": [ASKED, ("assistant", "a")], "rejected": [ASKED, ("assistant", "b")]},
    ),
    "HelpSteer3, neither": ({**HELPSTEER, "overall_preference": 0}, {}),
    "orca_dpo_pairs": (
        {"system": "Be kind.", "question": "Hi", "chosen": "a", "rejected": "b"},
        {
            side: [("system", "Be kind."), ("user", "Hi"), ("assistant", reply)]
            for side, reply in (("chosen", "a"), ("rejected", "b"))
        },
    ),
    "an empty system turn is none": (
        {"system": "", "input": "Hi", "output": "a"},
        {"reply": [("user", "Hi"), ("assistant", "a")]},
    ),
    "LLaMA-Factory": (
        {"instruction": "Add", "input": "1, 2", "history": [["Hi", "Ho"]], "output": "3"},
        {
            "reply": [
                *(("user", "Hi"), ("assistant", "Ho")),
                *(("user", "Add\n1, 2"), ("assistant", "3")),
            ]
        },
    ),
    "parts of a content": (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}, WHOLE[1]]},
        {"reply": [("user", "a"), ("assistant", "yes")]},
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_rows_of_trainers_and_published_sets_say(name):
    row, said = SAID[name]
    assert roles_and_texts(row) == said


REFUSED = {
    "another system turn": (
        {"system": "Be kind.", "messages": [{"role": "system", "content": "Be."}, *WHOLE]},
        "system: another system turn than that of the messages",
    ),
    "messages that are not the pair's": (
        {**PAIR, "messages": WHOLE},
        "column 'messages' holds a text that the conversation has not",
    ),
    "messages of a name that nobody knows": (
        {**PAIR, "dialogue": WHOLE},
        "column 'dialogue' is not read",
    ),
    "an image": (
        {"messages": [{"role": "user", "content": [{"type": "image"}]}, WHOLE[1]]},
        "messages: message 1: its content has parts that are no text",
    ),
    "half of a pair": (
        {"prompt": "a", "rejected_response": "b"},
        "no column 'chosen'; allowed: 'chosen' and 'rejected' together",
    ),
    "two pairs": (
        {**PAIR, "rejected_response": "b"},
        "columns chosen, rejected, rejected_response: which are the pair?",
    ),
    "replies of RewardBench 2": (
        {"prompt": "a", "chosen": ["b"], "rejected": ["c", "d"]},
        "chosen: a list of replies; write a row for each, or each pair",
    ),
    "the messages themselves as a variable": (
        {**PAIR, "chat_template_kwargs": {"messages": []}},
        "chat_template_kwargs: messages; allowed: other variables of the template",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_not_be_scored_is_refused(name):
    row, why = REFUSED[name]
    with pytest.raises(AssayError, match=re.escape(why)):
        read(row)
