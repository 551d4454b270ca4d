"""Sets of tokens by which the explorer filters."""

import polars as pl

from analysis.report.token_sets import scripts, sets_of

SCRIPTS = {
    "Latin": ["love", " élan", "x2!"],
    "Cyrillic": [" мир"],
    "Greek": ["λ"],
    "Arabic": ["سلام"],
    "Hebrew": ["שלום"],
    "Chinese, Japanese, Korean": ["中国", "ひらカタ", "한국"],
    "Indic": ["नमस्ते"],
    "other letters": ["ไทย"],
    "several scripts": ["東京tower"],
    "digits": [" 1990", "½", "1."],
    "broken characters": ["\ufffd"],
    "punctuation and symbols": ["=)", "😀", "\u0301"],
    "spaces and controls": [" \n", ""],
}


def test_the_script_of_a_token_is_that_of_its_letters():
    rows = [(token, script) for script, tokens in SCRIPTS.items() for token in tokens]
    frame = pl.DataFrame(rows, schema=["token", "script"], orient="row").with_row_index("token_id")
    expected = list(enumerate(frame["script"]))
    assert sorted(scripts(frame.select("token_id", "token")).rows()) == expected


def filters(texts, options):
    """Label -> value -> rows."""
    return {
        own.label: {value: own.rows[own.of == at].tolist() for at, value in enumerate(own.values)}
        for own in sets_of(texts, options)
    }


def test_tokens_are_words_of_the_lists_whatever_their_outer_spaces(options, write):
    afinn = write("afinn.txt", "love\t3\nhate\t-3\nso\t0\n")
    texts = [" Love", "hate", "so", "zzz", " women", "мир"]
    found = filters(texts, options(afinn=afinn))
    assert found["sentiment (AFINN)"] == {"negative": [1], "positive": [0]}
    assert found["group of people"] == {"gender: women": [4]}
    assert found["script"] == {"Latin": [0, 1, 2, 3, 4], "Cyrillic": [5]}
    path = write("mine.csv", "word,category,scale\ncare,c,x\ncare,d,y\nbold,c,x\n")
    found = filters(["care", " bold", "zzz"], options(categories=path))
    assert found["word category"] == {"c": [0, 1], "d": [0]}
