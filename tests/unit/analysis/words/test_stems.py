import polars as pl
import pytest

from analysis.words import lexicons
from analysis.words.spellings import words
from analysis.words.stems import stem, stem_numbers, stems


@pytest.mark.parametrize(
    "forms",
    [
        "abandon abandoned abandons",
        "happy happier happiest happily happiness",
        "win wins winner winning",
        "danger dangers dangerous dangerously",
        "cry cries cried crying",
        "famous fame",
        "greed greedy",
        "innovate innovates innovation innovative",
    ],
)
def test_forms_of_a_word_share_a_stem(forms):
    assert len({stem(word) for word in forms.split()}) == 1


@pytest.mark.parametrize(
    "different",
    [
        "love hate",
        "hope hopeless",
        "bad bed",
        "sing king ring",
        "great greed",
        "w1 w10",
        "die dying",
    ],
)
def test_other_words_and_irregular_forms_do_not(different):
    assert len({stem(word) for word in different.split()}) == len(different.split())


@pytest.mark.parametrize(
    ("numbers", "tokens"),
    [
        (stem_numbers, ["love", " Loved", "LOVES ", "hate", "", " "]),
        (words, ["love", " Love", "LOVE ", "lov e", "", " "]),
    ],
)
def test_tokens_of_one_stem_or_word_share_a_number_whatever_their_case_and_spaces(numbers, tokens):
    found = numbers(pl.Series(tokens)).tolist()
    assert len({*found[:3]}) == 1
    assert len({found[0], found[3], found[4]}) == 3
    assert found[4] == found[5]
    assert sorted(set(found)) == [0, 1, 2]


def test_a_lexicon_has_few_stems_of_many_words():
    known = lexicons.afinn()["word"]
    sizes = pl.DataFrame({"stem": stems(known)})["stem"].value_counts()["count"]
    assert 0.5 * len(known) < len(sizes) < 0.7 * len(known)
    assert sizes.max() <= 16
