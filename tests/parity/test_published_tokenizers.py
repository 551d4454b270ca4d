"""Published tokenizers under published templates: the ids of the models' own pipelines.

The numbers are facts about those files, found apart from this code.
"""

import collections
import csv
import functools

import pytest

from engine.convert import gates
from engine.scoring.reward_passes import gate_position
from engine.text.chat_template import ChatTemplate, TemplatePolicy
from engine.text.tokenizer import candidate_ids, vocabulary
from tests.support import published

pytestmark = pytest.mark.slow  # npm fetches the tokenizers

PROMPT = "What, in one word, is the greatest thing ever?"
DATE = "26 Jul 2024"


def ids(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


LLAMA3 = ids(
    "128000 128006 882 128007 271 3923 11 304 832 3492 11 374 279 12474 3245 3596 30 "
    "128009 128006 78191 128007 271"
)
DATED = ids(
    "128000 128006 9125 128007 271 38766 1303 33025 2696 25 6790 220 2366 18 198 15724 2696 25 "
    "220 1627 10263 220 2366 19 271 128009"
)
GEMMA = ids(
    "2 106 1645 108 1841 235269 575 974 2204 235269 603 573 11518 3166 3364 235336 107 108 "
    "106 2516 108"
)
QWEN3 = ids(
    "151644 872 198 3838 11 304 825 3409 11 374 279 12196 3166 3512 30 151645 198 "
    "151644 77091 198 151667 271 151668 271"
)
TULU = ids(
    "27 91 882 91 397 3923 11 304 832 3492 11 374 279 12474 3245 3596 5380 27 91 78191 91 397"
)
SPLITS = {
    "llama3": (LLAMA3, (128009,)),
    "llama3-date": ((*DATED, *LLAMA3[1:]), (128009,)),
    "gemma": (GEMMA, (107, 108)),
    "qwen3": (QWEN3, (151645, 198)),
    "tulu": (TULU, (128001,)),
}
BOS = {"llama3": 128000, "llama3-date": 128000, "gemma": 2}


@pytest.fixture(scope="module")
def load(request, tmp_path_factory):
    """Name of a template, policy -> the published tokenizer, read once, under it."""
    cache = request.config.cache.mkdir("tokenizers")

    @functools.cache
    def tokenizer(name):
        return published.load(name, tmp_path_factory.mktemp("published") / name, cache)

    def template(name, *, bos="template", date=None):
        return ChatTemplate(tokenizer(name), TemplatePolicy(bos=bos, date=date))

    return template


@pytest.mark.parametrize("name", SPLITS)
def test_a_conversation_has_the_published_ids(load, name):
    split = load(name, date=DATE).split(PROMPT)
    assert (split.prefix, split.suffix) == SPLITS[name]


@pytest.mark.parametrize(
    ("name", "family"), [("llama3", "llama"), ("llama3-date", "llama"), ("gemma", "gemma2")]
)
def test_a_gate_reads_where_the_users_turn_closes(load, name, family):
    pattern = gates.PATTERNS[family]
    prompt = "love<|eot_id|><end_of_turn>\n" + PROMPT
    prefix = load(name, date=DATE).split(prompt).prefix
    assert gate_position(prefix, pattern) == len(prefix) - len(pattern)


@pytest.mark.parametrize("name", BOS)
def test_double_is_one_bos_more_than_the_template_and_single_is_one(load, name):
    prefix, _ = SPLITS[name]
    assert load(name, bos="single", date=DATE).split(PROMPT).prefix == prefix
    assert load(name, bos="double", date=DATE).split(PROMPT).prefix == (BOS[name], *prefix)


# Of every 16th of 128,256 tokens. Of all: 66,421, 21,167, 38,784, 1,354 and 530; 105,153 distinct.
LLAMA3_COUNTS = {"same": 4193, "other_id": 1321, "split": 2397, "replacement": 69, "empty": 36}
DISTINCT = 7829


def test_round_trips_and_distinct_conversations_are_as_counted(load, monkeypatch):
    """Each rendered and tokenised once."""
    sequences, made = ChatTemplate.sequences, []

    def kept(*given):
        made.append(sequences(*given))
        return made[-1]

    monkeypatch.setattr(ChatTemplate, "sequences", kept)
    template = load("llama3-date", date=DATE)
    tokenizer = template.tokenizer
    ids_of_all = candidate_ids(tokenizer, 128_256)
    tokens = {i: tokenizer.decode([i]) for i in ids_of_all if i % 16 == 0}
    table = vocabulary(tokenizer, tokens, template)
    assert collections.Counter(table["round_trip"]) == LLAMA3_COUNTS
    assert len(set(map(tuple, max(made, key=len)))) == DISTINCT


@pytest.mark.needs_shared
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("gemma", "table_2a_top_bottom_tokens_R-Gem-2B.csv"),
        ("llama3-date", "table_2b_top_bottom_tokens_R-Lla-3B.csv"),
    ],
)
def test_the_papers_top_and_bottom_tokens_decode_to_what_it_printed(load, shared, name, file):
    with (shared / "reference" / file).open(newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["Token ID"] != "..."]
    printed = {int(row["Token ID"]): row["Decoded"] for row in rows}
    assert len(printed) == 44
    tokenizer = load(name).tokenizer
    assert {token_id: tokenizer.decode([token_id]) for token_id in printed} == printed
