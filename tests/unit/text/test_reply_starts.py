"""A prompt with a reply start: where the conversation is cut, and what a template does to it."""

import pytest

from engine.errors import AssayError
from engine.text.chat_template import TRL, turns, with_reply_start, with_system
from tests.support import tiny
from tests.unit.text.test_chat_template import PLAIN_NEWLINE, PROMPT, template

CUTS = tiny.CHATML.replace("message['content']", "message['content'].split('</think>')[-1]")


@pytest.mark.parametrize("start", ["the truth", "Sure, ", "no\n\n", " love"])
@pytest.mark.parametrize("name", ["chatml", "trl"])
def test_the_prefix_ends_with_the_reply_start_and_the_suffix_stays(name, start):
    chat = template({"chatml": tiny.CHATML, "trl": TRL}[name])
    plain, split = chat.split(PROMPT), chat.split(with_reply_start(PROMPT, start))
    assert chat.tokenizer.decode(split.prefix) == chat.tokenizer.decode(plain.prefix) + start
    assert split.suffix == plain.suffix
    assert [*split.prefix, *split.suffix] == chat.sequences(PROMPT, [start])[0]


def test_each_reply_continues_the_reply_start_and_the_turns_before_it_stay():
    asked = with_system("Be brief.", PROMPT)
    behind, chat = with_reply_start(asked, "Sure, "), template()
    assert chat.render(behind, ["love"]) == chat.render(asked, ["Sure, love"])
    assert turns(behind) == turns(asked)


@pytest.mark.parametrize("start", ["Sure, ", "no\n", "\nyes"])
def test_a_reply_start_that_the_template_trims_is_scored_as_a_text_alone(start):
    chat, behind = template(tiny.TRIMMED), with_reply_start(PROMPT, start)
    assert not chat.cuttable(behind)
    assert chat.cuttable(with_reply_start(PROMPT, start.strip()))
    with pytest.raises(AssayError, match="mode=text"):
        chat.split(behind)
    [whole] = chat.sequences(behind, ["love"])
    assert chat.tokenizer.decode(whole) == chat.render(PROMPT, [start + "love"])[0]
    prefix = list(chat.around(behind).prefix)
    assert whole[: len(prefix)] == prefix


def test_a_reply_start_that_merges_with_the_template_has_the_ids_of_the_rendering():
    chat = template(PLAIN_NEWLINE)
    split = chat.split(with_reply_start(PROMPT, "\nlove"))
    assert [*split.prefix, *split.suffix] == chat.sequences(PROMPT, ["\nlove"])[0]


def test_a_template_that_cuts_a_reply_start_is_refused_by_name():
    with pytest.raises(AssayError, match="changes the reply start '<think>why</think>yes'"):
        template(CUTS).around(with_reply_start(PROMPT, "<think>why</think>yes"))


def test_a_reply_start_that_ends_with_the_eos_that_trl_adds_is_scored_as_a_text_alone():
    assert not template(TRL).cuttable(with_reply_start(PROMPT, "love<|im_end|>"))


@pytest.mark.parametrize(("prompt", "start"), [("a␟b", "love"), ("a", "lo␟ve"), ("a", "\ud800")])
def test_texts_that_cannot_be_parted_again_are_refused(prompt, start):
    with pytest.raises(AssayError, match=r"'␟'|surrogate"):
        with_reply_start(prompt, start)
