import polars as pl
import pytest

from analysis.words import lexicons
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
    "words",
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
def test_other_words_and_irregular_forms_do_not(words):
    assert len({stem(word) for word in words.split()}) == len(words.split())


def test_tokens_of_one_stem_share_a_number_whatever_their_case_and_spaces():
    found = stem_numbers(pl.Series(["love", " Loved", "LOVES ", "hate", "", " "])).tolist()
    assert len({*found[:3]}) == 1
    assert len({found[0], found[3], found[4]}) == 3
    assert found[4] == found[5]
    assert sorted(set(found)) == [0, 1, 2]


def test_a_lexicon_has_few_stems_of_many_words():
    words = lexicons.afinn()["word"]
    sizes = pl.DataFrame({"stem": stems(words)})["stem"].value_counts()["count"]
    assert 0.5 * len(words) < len(sizes) < 0.7 * len(words)
    assert sizes.max() <= 16
