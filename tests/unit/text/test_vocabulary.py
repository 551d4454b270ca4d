import pytest

from engine.runs import schema
from engine.text.chat_template import ChatTemplate, TemplatePolicy
from engine.text.tokenizer import candidate_ids, vocabulary
from tests.support import tiny


def table(text, rows=320):
    return of(tiny.tokenizer(text), rows)


def of(tokenizer, rows=320):
    policy = TemplatePolicy(bos="template", date=None)
    return vocabulary(tokenizer, texts(tokenizer, rows), ChatTemplate(tokenizer, policy))


def texts(tokenizer, rows=320):
    return {i: tokenizer.decode([i]) for i in candidate_ids(tokenizer, rows)}


@pytest.fixture(scope="module")
def trimmed():
    return table(tiny.TRIMMED)


@pytest.fixture(scope="module")
def chatml():
    return table(tiny.CHATML)


def columns(frame, name, tokens):
    """Values of the tokens whose names in the tokenizer (byte-level) are `tokens`."""
    return frame[name][tiny.tokenizer().convert_tokens_to_ids(tokens.split())].to_list()


def test_the_table_has_every_id_of_the_tokenizer_in_order(chatml):
    assert dict(chatml.schema) == schema.VOCAB_COLUMNS
    assert chatml["token_id"].to_list() == list(range(len(tiny.tokenizer())))
    assert chatml["round_trip"].is_in(["same", "other_id", "split", "replacement", "empty"]).all()
    assert chatml.filter("is_special")["token"].to_list() == list(tiny.SPECIAL)


def test_a_token_is_the_text_that_its_id_decodes_to(chatml):
    tokens = columns(chatml, "token", "love Ġlove <|im_end|> Ã")
    assert tokens == ["love", " love", "<|im_end|>", "�"]


def test_round_trips_follow_the_template(trimmed, chatml):
    """A word, one behind a space, a token that no merge makes, one byte of two, a space."""
    tokens = "love Ġlove qj Ã Ġ"
    expected = ["same", "other_id", "split", "replacement", "empty"]
    assert columns(trimmed, "round_trip", tokens) == expected
    expected = ["same", "same", "split", "replacement", "same"]
    assert columns(chatml, "round_trip", tokens) == expected


def test_a_word_that_was_added_to_the_tokenizer_is_not_special():
    tokenizer = tiny.tokenizer()
    tokenizer.add_tokens(["Zebra!"])
    added = of(tokenizer)
    assert added.row(-1) == (288, "Zebra!", False, "same")


def test_without_a_template_it_is_not_known_which_tokens_round_trip(chatml):
    tokenizer = tiny.tokenizer(None)
    table = vocabulary(tokenizer, texts(tokenizer), None)
    assert dict(table.schema) == schema.VOCAB_COLUMNS
    assert table["round_trip"].null_count() == len(table)
    assert table.drop("round_trip").equals(chatml.drop("round_trip"))
