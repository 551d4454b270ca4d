import functools
import hashlib
import math

import numpy as np
import polars as pl
import pytest

import analysis
from analysis import RunError
from engine.runs import schema
from tests.support import runs

NAMES = ["model", "prompt", "token_id", "token", "reward", "is_special", "round_trip"]


def result(content, model="m-one", prompt="greatest"):
    return content["results"][schema.scores_path(model, prompt)]


def test_scores_hold_every_token_of_every_model_and_prompt_in_order(small_run):
    frame = analysis.load(small_run).scores().collect()
    assert frame.columns == NAMES
    assert frame.height == 7 + 7 + 6
    assert frame.equals(frame.sort("model", "prompt", "token_id"))


def test_a_run_says_in_five_lines_what_it_holds(small_run):
    lines = repr(analysis.load(small_run)).splitlines()
    assert lines[0] == f"Run of {small_run}" and len(lines) == 5
    assert lines[1] == "  models: m-one, m-two"
    assert lines[-1].startswith("  results: 3 of vocabularies, 0 of")


def test_each_token_keeps_its_own_reward_whatever_the_order_of_parts_and_rows(small_run):
    scores = analysis.load(small_run).scores(models=["m-two"], prompts=["greatest"]).collect()
    assert scores["token"].to_list()[3] == " love"
    rewards = dict(scores.select("token", "reward").iter_rows())
    assert rewards[" love"] == np.float32(0.9)
    assert rewards["love"] == np.float32(0.8)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_part_size_leaves_the_scores_unchanged(make_run, size):
    rewards = [float(i * 7 % 11) for i in range(11)]
    tokens = {"v": [f"t{i}" for i in range(11)]}
    run = make_run(tokens, {"m": "v"}, {("m", "greatest"): rewards}, size=size)
    ids, found = analysis.load(run).rewards("m", "greatest")
    assert ids.tolist() == list(range(11))
    assert found.tolist() == rewards


def test_tokens_that_decode_alike_stay_separate_rows(small_run):
    scores = analysis.load(small_run).scores(models=["m-one"], prompts=["greatest"]).collect()
    assert scores.filter(token="\ufffd")["reward"].to_list() == [0.0, 0.5]


def test_a_folder_name_with_glob_characters_is_read_as_it_is(make_run):
    run = make_run({"v": ["a"]}, {"m": "v"}, {("m", "greatest"): [1.0]}, name="run [*] a=b")
    assert analysis.load(run).rewards("m", "greatest")[1].tolist() == [1.0]


def test_two_runs_load_as_one(make_run):
    vocab, models = {"v": ["a", "b"]}, {"m": "v"}
    first = make_run(vocab, models, {("m", "greatest"): [1.0, 2.0]}, name="first")
    second = make_run(vocab, models, {("m", "worst"): [3.0, 4.0]}, name="second")
    run = analysis.load([first, second])
    assert list(run.prompts) == ["greatest", "worst"]
    assert run.scores().collect()["reward"].to_list() == [1.0, 2.0, 3.0, 4.0]


def test_the_same_result_in_two_runs_counts_once(make_run):
    args = {"v": ["a", "b"]}, {"m": "v"}, {("m", "greatest"): [1.0, 2.0]}
    runs = [make_run(*args, name="first"), make_run(*args, name="second")]
    assert analysis.load(runs).scores().collect().height == 2


def test_a_name_that_the_run_does_not_hold_is_refused(small_run):
    with pytest.raises(RunError, match=r"model 'm-three' is not in the run; there: \['m-one'"):
        analysis.load(small_run).scores(models=["m-three"])


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(RunError, match="nowhere: not a run folder"):
        analysis.load(tmp_path / "nowhere")


def test_a_folder_without_a_manifest_is_refused(tmp_path):
    with pytest.raises(RunError, match=r"not a run folder \(it holds no manifest.json\)"):
        analysis.load(tmp_path)


def test_a_run_without_scores_is_refused(small_run):
    runs.edit_manifest(small_run, lambda content: content["results"].clear())
    with pytest.raises(RunError, match="nothing was scored"):
        analysis.load(small_run)


def test_a_name_that_leaves_the_folder_is_refused(small_run):
    runs.edit_manifest(small_run, lambda content: content["prompts"].update({"../x": "?"}))
    with pytest.raises(RunError, match=r"name '\.\./x'"):
        analysis.load(small_run)


def test_a_slug_that_is_a_column_of_the_tables_is_refused(small_run):
    runs.edit_manifest(small_run, lambda content: content["models"].update(token={"vocab": "v1"}))
    with pytest.raises(RunError, match="name 'token'; tables have a column"):
        analysis.load(small_run)


def test_an_unfinished_sweep_is_refused_unless_allowed(small_run):
    runs.edit_manifest(small_run, lambda content: result(content).update(complete=False))
    with pytest.raises(RunError, match=r"m-one × greatest .* incomplete: the sweep has not fin"):
        analysis.load(small_run)
    assert analysis.load(small_run, allow_incomplete=True).scores().collect().height == 20


def test_a_result_that_has_no_part_yet_is_left_out_where_unfinished_is_allowed(small_run):
    runs.edit_manifest(small_run, lambda content: result(content).update(complete=False, parts={}))
    loaded = analysis.load(small_run, allow_incomplete=True)
    assert ("m-one", "greatest") not in loaded.results
    assert loaded.results


def test_a_missing_part_is_refused_unless_allowed(small_run):
    (small_run / schema.scores_path("m-one", "greatest") / schema.part_name(3, 6)).unlink()
    with pytest.raises(RunError, match=r"m-one × greatest .* part-0000003-0000006.parquet is mis"):
        analysis.load(small_run)
    ids, _ = analysis.load(small_run, allow_incomplete=True).rewards("m-one", "greatest")
    assert ids.tolist() == [0, 1, 2, 6]


def test_a_token_without_a_score_is_refused_unless_allowed(make_run):
    run = make_run({"v": ["a", "b", "c"]}, {"m": "v"}, {("m", "greatest"): {0: 1.0, 2: 2.0}})
    with pytest.raises(RunError, match=r"incomplete: no score of token ids 1$"):
        analysis.load(run)
    assert analysis.load(run, allow_incomplete=True).rewards("m", "greatest")[0].tolist() == [0, 2]


def test_a_part_whose_bytes_the_manifest_does_not_know_is_refused(small_run):
    path = small_run / schema.scores_path("m-one", "greatest") / schema.part_name(3, 6)
    columns = {"token_id": [3, 4, 5], "reward": [9.0, 9.0, 9.0]}
    pl.DataFrame(columns, schema=schema.SCORE_COLUMNS).write_parquet(path)
    with pytest.raises(RunError, match=r"part-0000003-0000006.parquet: not the bytes"):
        analysis.load(small_run)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_not_finite_is_refused_by_name(make_run, bad):
    scores = {("m", "greatest"): [1.0, bad, 2.0, bad]}
    run = make_run({"v": list("abcd")}, {"m": "v"}, scores)
    with pytest.raises(RunError, match=r"m × greatest .* not finite, token ids 1, 3$"):
        analysis.load(run)


def test_many_bad_rewards_are_counted_not_listed(make_run):
    run = make_run({"v": list("abcdefgh")}, {"m": "v"}, {("m", "greatest"): [math.nan] * 8})
    with pytest.raises(RunError, match=r"token ids 0, 1, 2, 3, 4 and 3 more$"):
        analysis.load(run)


def test_a_token_scored_twice_is_refused(small_run):
    folder = small_run / schema.scores_path("m-one", "greatest")
    name = schema.part_name(6, 8)
    columns = {"token_id": [6, 0], "reward": [1.0, 1.0]}
    pl.DataFrame(columns, schema=schema.SCORE_COLUMNS).write_parquet(folder / name)
    entry = {"rows": 2, "sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest()}
    runs.edit_manifest(small_run, lambda content: result(content)["parts"].update({name: entry}))
    with pytest.raises(RunError, match=r"m-one × greatest .* duplicate token ids 0, 6$"):
        analysis.load(small_run)


def test_a_token_that_the_vocabulary_lacks_is_refused(make_run):
    run = make_run({"v": ["a"]}, {"m": "v"}, {("m", "greatest"): [1.0, 2.0]})
    with pytest.raises(RunError, match=r"token ids that are not in its vocabulary 1$"):
        analysis.load(run)


def test_a_missing_vocabulary_is_refused(small_run):
    (small_run / schema.vocab_path("v2")).unlink()
    with pytest.raises(RunError, match="no such vocabulary, which m-two needs"):
        analysis.load(small_run)


def test_a_column_of_another_type_is_refused(small_run):
    path = small_run / schema.vocab_path("v1")
    pl.read_parquet(path).cast({"token_id": pl.Int64}).write_parquet(path)
    with pytest.raises(RunError, match="column token_id is Int64; expected UInt32"):
        analysis.load(small_run)


def test_a_file_that_is_not_parquet_is_refused(small_run):
    (small_run / schema.vocab_path("v1")).write_text("no", encoding="utf-8")
    with pytest.raises(RunError, match=r"v1.parquet: not a parquet file"):
        analysis.load(small_run)


def test_mixed_fingerprints_are_refused_with_what_differs(make_run):
    args = {"v": ["a"]}, {"m": "v"}, {("m", "greatest"): [1.0]}
    folders = [make_run(*args, name="first"), make_run(*args, name="second")]
    runs.edit_manifest(
        folders[1], lambda content: result(content, "m")["fingerprint"].update(mode="text")
    )
    with pytest.raises(RunError, match=r"mixed fingerprints: m × greatest .* differ in \['mode'\]"):
        analysis.load(folders)


def test_one_fingerprint_with_two_contents_is_refused(make_run):
    runs = [
        make_run({"v": ["a"]}, {"m": "v"}, {("m", "greatest"): [reward]}, name=f"run{reward}")
        for reward in (1.0, 2.0)
    ]
    with pytest.raises(RunError, match="hold different bytes for part-0000000-0000001"):
        analysis.load(runs)


def test_runs_that_disagree_on_a_checkpoint_are_refused(make_run):
    first = make_run({"v": ["a"]}, {"m": "v"}, {("m", "greatest"): [1.0]}, name="first")
    second = make_run({"v": ["a"]}, {"m": "v"}, {("m", "worst"): [1.0]}, name="second")
    runs.edit_manifest(
        second, lambda content: content["models"]["m"].update(checkpoint_hash="other")
    )
    with pytest.raises(RunError, match="disagree on the checkpoint_hash of m: 'm-hash' and 'oth"):
        analysis.load([first, second])


def test_models_that_two_releases_have_converted_are_not_analysed_together(make_run):
    """Imported scores have no conversion and go with any."""
    folders = [
        make_run({"v": ["a"]}, {slug: "v"}, {(slug, "greatest"): [1.0]}, name=slug)
        for slug in ("imported", "new", "old")
    ]
    for folder, conversion in zip(folders[1:], ({"conversion": 3}, {}), strict=True):
        change = functools.partial(_replace_models, {"decoder_hash": "d", **conversion})
        runs.edit_manifest(folder, change)
    assert analysis.load(folders[:2]).models
    with pytest.raises(RunError, match=r"^models 'new' and 'old' were converted by two releases"):
        analysis.load(folders)


def _replace_models(entry, content):
    for record in content["models"].values():
        record.pop("conversion")
        record.update(entry)


def test_runs_that_disagree_on_a_prompt_are_refused(make_run):
    first = make_run({"v": ["a"]}, {"m": "v"}, {("m", "greatest"): [1.0]}, name="first")
    second = make_run({"v": ["a"]}, {"m": "v"}, {("m", "worst"): [1.0]}, name="second")
    runs.edit_manifest(second, lambda content: content["prompts"].update(worst="Else?"))
    with pytest.raises(RunError, match="disagree on the text of prompt worst"):
        analysis.load([first, second])
