"""Edits of replies: what each does, and that it leaves what it must."""

import time

import pytest

from analysis.words.edits import EDITS, SHAMS

CODE = "```py\nx = 1. y. z\n```"
DID = {
    "markdown stripped": ("# A\n- **b** `c`\n> [d](e) *f*", "A\nb c\nd f"),
    "markdown added to lists": ("Do this:\n• one: a\n2) two", "## Do this\n- **one:** a\n2) two"),
    "first phrase bold": ("As a rule, it is so.", "**As a rule**, it is so."),
    "sentences as bullets": ("So it is. e.g. this! Fine?", "- So it is.\n- e.g. this!\n- Fine?"),
    "emoji behind": ("So.\n", "So. 😊"),
    "! for .": ("It is 2. So be it.", "It is 2. So be it!"),
    "doubled spaces": ("a b\n c", "a  b\n c"),
    "blank lines between sentences": ("Aa. Bb! Cc", "Aa.\n\nBb!\n\nCc"),
    "closing offer of help": ("So.", "So.\n\nLet me know if you need any further help."),
    "opening compliment": ("So.", "That is a great question. So."),
    "hedge in front": ("- so", "I may be wrong about this.\n\n- so"),
    "last sentence repeated": ("Aa. Be it. \n", "Aa. Be it. Be it."),
}
# Texts that only the edits of `EVERYWHERE` change, or none of them.
ADDING = {"emoji behind", "closing offer of help", "opening compliment", "hedge in front"}
WORD = {*ADDING, "first phrase bold", "last sentence repeated"}
HOSTILE = {"": set(), " \n\t": set(), CODE: ADDING, "Yes": WORD, "\u202e\u200b": ADDING}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_does_what_its_name_says(name):
    text, edited = DID[name]
    assert EDITS[name](text) == edited


@pytest.mark.parametrize("text", HOSTILE, ids=repr)
def test_a_reply_without_anything_to_edit_is_left_alone(text):
    changed = {name for name, edit in EDITS.items() if edit(text) is not None}
    assert changed - {"last sentence repeated"} == HOSTILE[text] - {"last sentence repeated"}
    assert all(CODE in EDITS[name](text) for name in changed if text == CODE)


@pytest.mark.parametrize("name", EDITS)
def test_code_and_what_is_no_ascii_stay_as_they_are(name):
    text = f"Été 🏳️‍🌈 is ok. 你好。世界\n{CODE}\nAnd so. On it goes."
    edited = EDITS[name](text)
    assert edited is None or (CODE in edited and "🏳️‍🌈" in edited and "世界" in edited)
    assert edited is None or edited.isprintable() == text.isprintable()


def test_shams_change_nothing_that_is_seen():
    decomposed = "e\u0301te\u0301"
    changed = [sham(decomposed) for sham in SHAMS.values()]
    assert changed == [decomposed, "été", f"{decomposed} "]
    assert SHAMS["composed characters (NFC)"]("été") == "été"


@pytest.mark.parametrize("text", ["**a ", "[a", "*a", "`a", "a. ", "```\n", "- ", "a:\n"])
def test_a_long_text_of_one_mark_takes_no_time(text):
    began = time.process_time()
    for edit in EDITS.values():
        edit(text * (40_000 // len(text)))
    assert time.process_time() - began < 10
