"""Which tokens the explorer holds when there are too many rewards, and what it holds of them."""

import itertools

import numpy as np
import polars as pl
import pytest

import analysis
from analysis.report import chosen_tokens, explorer, page
from analysis.report.token_sets import TokenSets, scripts, sets_of
from analysis.statistics import ranks
from tests.support import runs
from tests.unit.analysis.report.test_explorer import numbers, rows_and_ids, standings, tokens

ROWS = 200


@pytest.fixture(scope="module")
def rewards():
    """(model, prompt) -> rewards: token 3 divides the models, token 5 moves with the prompt."""
    rng = np.random.default_rng(0)
    value = rng.normal(size=ROWS)
    value[[3, 5]] = 0
    made = {}
    for at, which in itertools.product(range(3), range(4)):
        own = value + 0.1 * rng.normal(size=ROWS)
        own[3] = 9.0 if at == 0 else -9.0
        own[5] = 9.0 if which == 0 else -9.0
        made[f"m{at}", f"p{which}"] = np.round(own, 2).astype(np.float32)
    return made


@pytest.fixture(scope="module")
def run(rewards, tmp_path_factory):
    vocabulary = {"v": [f"t{i}" for i in range(ROWS)]}
    path = tmp_path_factory.mktemp("many") / "run"
    runs.write_run(path, vocabulary, {model: "v" for model, _ in rewards}, rewards, ROWS)
    texts = {f"p{which}": f"{which}?" for which in range(4)}
    runs.edit_run(path, lambda content: content.update(prompts=texts))
    return analysis.load(path)


@pytest.fixture(scope="module")
def standing(run):
    by_model = dict.fromkeys(sorted(run.models), np.arange(ROWS, dtype=np.uint32))
    columns = chosen_tokens.columns_of(run, by_model)
    return chosen_tokens.standing(columns, ROWS, 3, 4)


def words(texts):
    """The filter of one word, and of the script, which is no word list."""
    rows = np.arange(len(texts), dtype=np.uint32)
    word = np.array([100], dtype=np.uint32)
    return [
        TokenSets(label="script", values=["Latin"], rows=rows, of=0 * rows),
        TokenSets(label="words", values=["good", "bad"], rows=word, of=0 * word + 1),
    ]


def pack(run, limit):
    models = sorted(run.models)
    names = dict(zip(models, models, strict=True))
    return explorer.pack(run, models, names, dict.fromkeys(models, "#000"), words, limit)


def test_ends_disputed_tokens_and_at_most_half_of_words_are_chosen(standing, rewards):
    percentiles = {pair: ranks.percentiles(x) for pair, x in rewards.items()}
    cube = np.array([[percentiles[f"m{i}", f"p{j}"] for j in range(4)] for i in range(3)])
    np.testing.assert_allclose(standing.mean, cube.mean(axis=(0, 1)), atol=1e-6)
    np.testing.assert_allclose(standing.models, cube.mean(axis=1).std(axis=0), atol=1e-6)
    np.testing.assert_allclose(standing.prompts, cube.mean(axis=0).std(axis=0), atol=1e-6)
    kept = chosen_tokens.chosen(standing, np.array([100, 101], dtype=np.uint32), 8)
    ends = {int(standing.mean.argmax()), int(standing.mean.argmin())}
    assert {3, 5, 100, 101} | ends <= set(kept.tolist())
    assert len(kept) == 8
    assert kept.tolist() == sorted(set(kept.tolist()))
    many = chosen_tokens.chosen(standing, np.arange(100, 150, dtype=np.uint32), 10)
    assert {3, 5} <= set(many.tolist()) and len(many) == 10


def test_tokens_that_no_model_scored_are_not_chosen():
    own, values = np.array([0, 2], dtype=np.uint32), np.array([0.25, 0.75])
    standing = chosen_tokens.standing(iter([(0, 0, own, values)]), 4, 1, 1)
    assert chosen_tokens.chosen(standing, np.array([1], dtype=np.uint32), 3).tolist() == [0, 2]


def test_above_the_limit_the_page_has_the_places_of_chosen_tokens(run, rewards):
    whole = pack(run, limit=ROWS * 12).meta
    assert whole["whole"]
    assert whole["held"] == {"tokens": ROWS, "of": ROWS, "scores": ROWS * 12}
    packed = pack(run, limit=30 * 12)
    meta = packed.meta
    assert not meta["whole"]
    assert meta["held"] == {"tokens": 20, "of": ROWS, "scores": ROWS * 12}
    rows, ids = rows_and_ids(packed, 0)
    assert rows == list(range(20))
    assert tokens(packed) == [f"t{token}" for token in ids]
    assert {3, 5, 100} <= set(ids)
    for model in meta["models"]:
        assert model["of"] == ROWS
        for prompt, about in zip(meta["prompts"], model["columns"], strict=True):
            own = rewards[model["slug"], prompt["id"]]
            of, found, equal = standings(packed, about)
            assert set(about) == {"scored", "values", "places"}
            assert about["scored"] == ROWS
            below = [2 * (own < own[i]).sum() + (own == own[i]).sum() for i in ids]
            assert found[of - 1].tolist() == below
            assert equal[of - 1].tolist() == [(own == own[i]).sum() for i in ids]
    script, word = meta["filters"]
    assert np.cumsum(numbers(packed, script["rows"], np.uint32)).tolist() == rows
    assert np.cumsum(numbers(packed, word["rows"], np.uint32)).tolist() == [ids.index(100)]
    assert numbers(packed, word["of"], np.uint32).tolist() == [1]
    assert pack(run, limit=30 * 12).blobs == packed.blobs


def test_the_page_says_what_it_leaves_out(run, study_of):
    text = " ".join(page.render(study_of(run), [], {}, pack(run, limit=360)).split())
    for number in ("20 of 200 tokens", "2,400", "6,000,000"):
        assert number in text
    assert f'analysis.load(["{run.folders[0]}"]).scores(prompts=["p0"])' in text


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
