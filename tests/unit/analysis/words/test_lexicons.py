import gzip
import importlib.util

import msgpack
import polars as pl
import pytest

from analysis.words import lexicons, matching
from analysis.words.lexicons import LexiconError
from analysis.words.stems import stem, stem_numbers


def tokens(*texts):
    return pl.DataFrame({"token_id": range(len(texts)), "token": texts})


def test_afinn_comes_from_its_package_or_a_file(write):
    table = lexicons.afinn()
    assert table.height == 2477
    assert table.filter(word="love")["value"].item() == 3.0
    assert table.filter(word="hate")["value"].item() == -3.0
    table = lexicons.afinn(write("a.txt", "Good\t3\nbad thing\t-2\n"))
    assert table.rows() == [("bad thing", -2.0), ("good", 3.0)]


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (lexicons.afinn, "word 3\n", ""),
        (lexicons.afinn, "word\tnan\n", ""),
        (lexicons.afinn, "\n", ""),
        (lexicons.identity, 'word,group,axis\na,"",d\n', ""),
    ],
)
def test_another_file_is_refused_in_a_line(write, read, text, message):
    with pytest.raises(LexiconError, match=rf"own\.csv: .*{message}"):
        read(write("own.csv", text))
    with pytest.raises(LexiconError, match="nowhere"):
        read("nowhere.csv")


def test_a_package_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LexiconError, match="package afinn"):
        lexicons.afinn()
    with pytest.raises(LexiconError, match="package wordfreq"):
        lexicons.frequency()
    with pytest.raises(LexiconError, match="nowhere"):
        lexicons.frequency("nowhere.csv")


@pytest.fixture
def wordfreq(monkeypatch, tmp_path):
    """The file of a package wordfreq whose code must not run."""
    package = tmp_path / "wordfreq"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return package / "data" / "large_en.msgpack.gz"


def test_wordfreq_is_read_without_its_code(wordfreq):
    buckets = [{"format": "cB", "version": 1}] + [[] for _ in range(100)]
    buckets[1] = ["the"]
    buckets[100] = ["love", "x" * 40]
    wordfreq.write_bytes(gzip.compress(msgpack.packb(buckets)))
    found = dict(lexicons.frequency().iter_rows())
    assert found["the"] == pytest.approx(1e6)
    assert found["love"] == pytest.approx(1e6 * 10**-0.99)
    assert len(found) == 3


def test_common_words_are_whole_and_not_rare(write):
    """A piece of longer words, which are more than five times as frequent together, is none."""
    often = {"star": 21, "start": 60, "starts": 40, "sta": 23, "cra": 1, "craft": 3, "crazy": 2.1}
    rare = {"rare": 0.2}
    rows = "".join(f"\t{w}\tNoC\t:\t{n}\t9\t.9\n" for w, n in (often | rare).items())
    common = lexicons.common_words(write("bnc.txt", rows))
    assert common == {"star", "start", "starts", "craft", "crazy"}


def test_common_words_are_spelt_in_one_of_both_ways(write, monkeypatch):
    spelt = pl.DataFrame({"word": ["favorite", "theater", "star"], "per_million": [1.0] * 3})
    monkeypatch.setattr(lexicons, "_spelling", lambda: spelt)
    words = ("favourite", "theatre", "star", "cra")
    rows = "".join(f"\t{w}\tNoC\t:\t9\t9\t.9\n" for w in words)
    common = lexicons.common_words(write("spelt.txt", rows))
    assert common == {"favourite", "theatre", "star"}


def test_the_bnc_list_gives_word_forms_over_parts_of_speech(write):
    text = (
        "\tWord\tPoS\t\tFreq\tRa\tDisp\n"
        "\tabandon\tVerb\t%\t44\t99\t0.96\n"
        "\t@\t@\tabandon\t12\t96\t0.94\n"
        "\t@\t@\tabandoned\t26\t99\t0.95\n"
        "\tlove\tNoC\t:\t150\t100\t0.9\n"
        "\tLove\tVerb\t:\t50\t100\t0.9\n"
        "\tnever\tAdv\t:\t0\t100\t0.9\n"
    )
    found = dict(lexicons.frequency(write("bnc.txt", text)).iter_rows())
    assert found == {"abandon": 12.0, "abandoned": 26.0, "love": 200.0}
    heads = lexicons.frequency(write("bnc.txt", text), "paper")
    assert heads.rows() == [("abandon", 44.0), ("love", 150.0), ("Love", 50.0)]


def test_the_papers_matching_ignores_case_but_not_spaces():
    lexicon = pl.DataFrame({"word": ["love"], "value": [3.0]})
    vocabulary = tokens("love", " love", "LOVE", "lovely")
    assert matching.match(vocabulary, lexicon, trim=False)["token"].to_list() == ["love", "LOVE"]
    trimmed = matching.match(vocabulary, lexicon, trim=True)
    assert trimmed["token"].to_list() == ["love", " love", "LOVE"]


def test_our_identity_terms_and_their_stems_are_each_of_one_group():
    table = lexicons.identity()
    assert not table["word"].str.to_lowercase().is_duplicated().any()
    assert table["axis"].n_unique() == 9
    assert table.group_by("stem").agg(pl.col("group").n_unique())["group"].max() == 1
    stems = dict(table.select("word", "stem").iter_rows())
    assert stems["mothers"] == stems["mother"] and stems["judaism"] == stems["jews"]
    assert stems["woman"] != stems["man"]


def test_placebo_kinds_are_enough_of_several_axes_and_no_words_for_people():
    table = lexicons.placebo()
    kinds = table.group_by("axis", "group").agg(pl.col("stem").n_unique())
    assert kinds.height == table["group"].n_unique() >= 40
    assert kinds["stem"].min() >= 7  # The days of the week.
    assert (kinds["stem"] >= 10).sum() >= 90
    assert kinds.group_by("axis").len()["len"].min() >= 3
    assert not table["word"].str.to_lowercase().is_duplicated().any()
    assert table.group_by("stem").agg(pl.col("group").n_unique())["group"].max() == 1
    people = lexicons.identity()
    folded = {word.lower() for word in (*people["word"], *people["stem"])}
    assert not folded & {word.lower() for word in (*table["word"], *table["stem"])}


def test_a_users_terms_are_added_and_win(write):
    extra = "word,group,axis\nwomen,my group,my axis\nElbonians,Elbonians,nationality\n"
    table = lexicons.identity(write("own.csv", extra))
    assert table.filter(word="women")["group"].item() == "my group"
    assert table.filter(word="Elbonians").row(0)[3:] == ("elbonians",)
    assert table.height == lexicons.identity().height + 1
    text = "word,group,axis,stem\nElbonians,Elbonians,nationality,elbonia\n"
    table = lexicons.identity(write("own.csv", text))
    assert table.filter(word="Elbonians").row(0)[3:] == ("elbonia",)


def test_a_term_with_a_capital_needs_it_and_others_do_not():
    terms = pl.DataFrame({"word": ["Black", "women"], "group": ["B", "w"], "axis": ["r", "g"]})
    vocabulary = tokens("black", " Black", "BLACK", "Women", " women", "womenfolk", "  ")
    found = matching.match_cased(vocabulary, terms)
    assert found.select("token", "group").rows() == [
        (" Black", "B"),
        ("BLACK", "B"),
        ("Women", "w"),
        (" women", "w"),
    ]


FORMS = [
    "abandon abandoned abandons",
    "happy happier happiest happily happiness",
    "win wins winner winning",
    "danger dangers dangerous dangerously",
    "cry cries cried crying",
    "innovate innovates innovation innovative",
]
OTHERS = ["love hate", "hope hopeless", "bad bed", "sing king ring", "w1 w10", "die dying"]


def test_forms_of_a_word_share_a_stem_and_other_words_do_not():
    for forms in FORMS:
        assert len({stem(word) for word in forms.split()}) == 1
    for others in OTHERS:
        assert len({stem(word) for word in others.split()}) == len(others.split())


def test_tokens_of_one_stem_share_a_number_whatever_their_case_and_spaces():
    texts = ["love", " Loved", "LOVES ", "hate", "", " "]
    assert stem_numbers(pl.Series(texts)).tolist() == [2, 2, 2, 1, 0, 0]
