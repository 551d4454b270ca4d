import base64
import gzip
import hashlib
import json
import re

import hypothesis
import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
from hypothesis import given

import analysis
from analysis.report import drawing, explorer, write_report
from analysis.report import page as page_module
from engine import display
from tests.support import charts, runs
from tests.support.html_page import Page

COLOURS = {"m-one": "#332288", "m-two": "#cc6677"}
NAMES = {"m-one": "One", "m-two": "</script><b>Two"}


def no_filters(_):
    return ()


def pack(run):
    return explorer.pack(analysis.load(run), ["m-one", "m-two"], NAMES, COLOURS, no_filters)


def test_the_plot_names_whole_words_alone(make_run):
    texts = [" love", "love", " lov", "▁Hope", " "]
    scores = {("m-one", "best"): np.arange(5.0), ("m-two", "best"): np.arange(5.0)}
    path = make_run({"v": texts}, {"m-one": "v", "m-two": "v"}, scores)
    packed = explorer.pack(
        analysis.load(path), ["m-one"], NAMES, COLOURS, no_filters, common={"love", "hope"}
    )
    rows = np.cumsum(numbers(packed, packed.meta["words"], np.uint32))
    page_texts = json.loads(gzip.decompress(base64.b64decode(packed.blobs[packed.meta["tokens"]])))
    assert [page_texts[row] for row in rows] == [" love", "▁Hope"]


def unpacked(blob, dtype):
    """Values of a blob, as the page reads them."""
    planes = np.frombuffer(gzip.decompress(base64.b64decode(blob)), dtype=np.uint8)
    values = np.ascontiguousarray(planes.reshape(np.dtype(dtype).itemsize, -1).T)
    return values.view(np.dtype(dtype).newbyteorder("<")).ravel().astype(dtype)


def numbers(packed, at, dtype):
    return unpacked(packed.blobs[at], dtype)


def rows_and_ids(packed, at):
    """Row of each token of a vocabulary, and its ids, as the page sums them."""
    about = packed.meta["vocabularies"][at]
    steps = (numbers(packed, about[key], np.uint32) for key in ("rows", "ids"))
    return [np.cumsum(step, dtype=np.uint32).tolist() for step in steps]


def column(packed, about):
    """Place and reward of each token of a column, as the page makes them; NaN where not scored."""
    of, places, _ = standings(packed, about)
    steps = about["least"] + np.cumsum(numbers(packed, about["rewards"], np.uint32).astype(int))
    rewards = steps / 10.0 ** about["decimals"]
    return np.append(0, places)[of], np.append(np.nan, rewards)[of]


def standings(packed, about):
    """Number of each token's value, and of each value its place and how many tokens have it."""
    places, equal = np.split(numbers(packed, about["places"], np.uint32), 2)
    return numbers(packed, about["values"], np.uint32), np.cumsum(places).astype(int), equal


def tokens(packed):
    return json.loads(gzip.decompress(base64.b64decode(packed.blobs[packed.meta["tokens"]])))


def vocabulary(texts):
    return pl.DataFrame({"token_id": range(len(texts)), "token": texts}, strict=False)


@pytest.fixture(scope="module")
def packed_of(tmp_path_factory):
    """Rewards of one model -> what the page holds of them."""

    def pack_one(rewards):
        path = tmp_path_factory.mktemp("one") / "run"
        vocabulary = {"v": [f"t{i}" for i in range(len(rewards))]}
        runs.write_run(path, vocabulary, {"m": "v"}, {("m", "greatest"): rewards}, len(rewards))
        packed = explorer.pack(analysis.load(path), ["m"], {"m": "M"}, {"m": "#000"}, no_filters)
        return column(packed, packed.meta["models"][0]["columns"][0])

    return pack_one


@hypothesis.settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=1, max_size=30))
def test_places_are_exact_and_rewards_are_rounded(packed_of, values):
    rewards = np.array(values, dtype=np.float32)
    places, shown = packed_of(rewards)
    below = (rewards[:, None] > rewards).sum(1)
    equal = (rewards[:, None] == rewards).sum(1)
    assert places.tolist() == (2 * below + equal).tolist()
    exact = rewards.astype(np.float64)
    middle = np.subtract(*np.quantile(exact, [0.95, 0.05]))
    spread = middle or np.ptp(exact) or max(abs(exact[0]), 1.0)
    step = max(spread / 10_000, np.ptp(exact) / 2**28)
    np.testing.assert_allclose(shown, exact, rtol=1e-12, atol=step / 2)


def test_every_score_of_the_run_is_in_the_page(small_run):
    run, packed = analysis.load(small_run), pack(small_run)
    texts = tokens(packed)
    for model in packed.meta["models"]:
        rows, ids = rows_and_ids(packed, model["vocabulary"])
        for prompt, about in zip(packed.meta["prompts"], model["columns"], strict=True):
            if about is None:
                assert (model["slug"], prompt["id"]) not in run.results
                continue
            own = run.scores(models=[model["slug"]], prompts=[prompt["id"]]).collect()
            places, rewards = column(packed, about)
            assert ids == own["token_id"].to_list()
            assert [texts[row] for row in rows] == own["token"].to_list()
            assert about["scored"] == own.height
            np.testing.assert_allclose(rewards, own["reward"], rtol=1e-3)
            assert np.argsort(places).tolist() == np.argsort(own["reward"]).tolist()


def test_the_page_has_the_sign_of_every_invisible_character_of_its_tokens(small_run):
    packed = pack(small_run)
    signs = packed.meta["display"]
    for char in set("".join(tokens(packed))):
        assert signs["anywhere"].get(char) == display.sign(char)
        assert signs["start"].get(char) == display.sign_at_start(char)
    assert signs["anywhere"] == {" ": "␣"}
    assert (signs["run"], signs["limit"]) == (display.RUN, display.LIMIT)


def test_a_string_of_one_token_each_is_one_row_and_others_stay_apart():
    texts, rows = explorer.union([vocabulary(["a", "x", "x"]), vocabulary(["x", "b", "a"])])
    assert texts == ["a", "x", "x", "x", "b"]
    assert [row.tolist() for row in rows] == [[0, 1, 2], [3, 4, 0]]


def test_what_was_not_scored_is_not_a_number(make_run):
    scores = {("m", "greatest"): {0: 1.0, 2: 3.0}}
    run = analysis.load(make_run({"v": ["a", "b", "c"]}, {"m": "v"}, scores), allow_incomplete=True)
    packed = explorer.pack(run, ["m"], {"m": "M"}, {"m": "#000"}, no_filters)
    places, rewards = column(packed, packed.meta["models"][0]["columns"][0])
    assert places.tolist() == [1, 0, 3]
    assert rewards.tolist()[::2] == [1.0, 3.0]
    assert np.isnan(rewards[1])


def test_flags_say_special_and_round_trip(make_run):
    vocab = {"v": ["<|end|>", "a", "\ufffd"]}
    scores = {("m-one", "greatest"): [1.0, 2.0, 3.0]}
    packed = pack(make_run(vocab, {"m-one": "v", "m-two": "v"}, scores))
    flags = numbers(packed, packed.meta["vocabularies"][0]["flags"], np.uint8)
    assert flags.tolist() == [explorer.SPECIAL, 0, explorer.FLAGS.index("replacement")]


def test_of_too_many_scores_the_page_holds_the_first_prompts_that_fit(make_run):
    scores = {("m", p): [1.0, 2.0, 3.0] for p in runs.PROMPTS}
    run = analysis.load(make_run({"v": list("abc")}, {"m": "v"}, scores))

    def held(limit, first=()):
        about = {"m": "M"}, {"m": "#000"}, no_filters
        packed = explorer.pack(run, ["m"], *about, first, limit)
        assert len(packed.meta["models"][0]["columns"]) == len(packed.meta["prompts"])
        return [prompt["id"] for prompt in packed.meta["prompts"]]

    assert held(9) == list(runs.PROMPTS)
    assert held(8, ["worst", "best", "greatest"]) == ["worst", "best"]
    assert held(2) == ["greatest"]


@pytest.fixture(scope="module")
def page(tmp_path_factory, settings):
    info = analysis.ModelInfo(
        nickname=NAMES["m-two"], developer=None, base=None, size_b=None, rewardbench_rank=None
    )
    folder = tmp_path_factory.mktemp("page")
    run = analysis.load(runs.small_run(folder / "run"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "draw", lambda *_: charts.Undrawn())
        index = write_report(run, folder / "r", {"m-two": info}, settings)
    return index.read_text(encoding="utf-8")


def test_the_policy_names_the_hash_of_every_script_that_runs_and_no_other(page):
    scripts = Page(page)
    code = [text for attrs, text in scripts.code if "type" not in attrs]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in code]
    assert len(code) == len(page_module.SCRIPTS) + 1  # the library of charts
    assert re.findall(r"'sha256-([^']+)'", scripts.policy) == digests
    assert "default-src 'none'" in scripts.policy
    assert "unsafe-eval" not in scripts.policy
    assert "'unsafe-inline'" not in scripts.policy.split("script-src")[1]


def test_names_and_tokens_that_are_markup_end_no_script(page):
    scripts = Page(page)
    kinds = [attrs.get("type", "code") for attrs, _ in scripts.code]
    assert set(kinds) == {"application/json", "text/plain", "code"}
    meta = json.loads(
        next(text for attrs, text in scripts.code if attrs.get("id") == "explorer-meta")
    )
    assert [model["name"] for model in meta["models"]] == ["m-one", NAMES["m-two"]]
    blobs = [text for attrs, text in scripts.code if attrs.get("type") == "text/plain"]
    assert all(re.fullmatch(r"[A-Za-z0-9+/=]+", blob) for blob in blobs)
    assert "<script>alert(1)" not in page


def test_the_explorer_writes_text_only_and_the_library_asks_for_nothing(page):
    scripts = [page_module.TEMPLATES / name for name in page_module.SCRIPTS]
    ours = "".join(path.read_text(encoding="utf-8") for path in scripts)
    for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert sink not in ours
    assert "University of Washington Interactive Data Lab" in page
    assert "connect-src" not in Page(page).policy  # so that default-src, none, holds for it
    for call in ("importScripts", "sendBeacon"):
        assert call not in page
