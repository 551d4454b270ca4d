import functools
import hashlib
import math

import numpy as np
import polars as pl
import pytest
from etils import epath

import analysis
from analysis import RunError, cache
from engine.runs import schema
from engine.runs.result import to_parquet
from engine.runs.verify import verify
from tests.support import runs

NAMES = ["model", "prompt", "token_id", "token", "reward", "is_special", "round_trip"]


def result(content, model="m-one", prompt="greatest"):
    return content["results"][schema.scores_path(model, prompt)]


def test_scores_hold_every_token_of_every_model_and_prompt_in_order(small_run):
    frame = analysis.load(small_run).scores().collect()
    assert frame.columns == NAMES
    assert frame.height == 7 + 7 + 6
    assert frame.equals(frame.sort("model", "prompt", "token_id"))
    rewards = dict(frame.filter(model="m-two").select("token", "reward").iter_rows())
    assert (rewards[" love"], rewards["love"]) == (np.float32(0.9), np.float32(0.8))
    pieces = frame.filter(model="m-one", prompt="greatest", token="\ufffd")
    assert pieces["reward"].to_list() == [0, 0.5]


def test_a_folder_name_with_glob_characters_is_read_as_it_is(make_run):
    run = make_run({"v": ["a"]}, {"m": "v"}, {("m", "greatest"): [1.0]}, name="run [*] a=b")
    assert analysis.load(run).rewards("m", "greatest")[1].tolist() == [1.0]


def test_a_name_that_the_run_does_not_hold_is_refused(small_run):
    with pytest.raises(RunError, match=r"'m-three'.*\['m-one'"):
        analysis.load(small_run).scores(models=["m-three"])


def test_what_is_no_run_folder_is_refused(tmp_path):
    for folder, error in ((tmp_path / "nowhere", "nowhere"), (tmp_path, "run.json"), (3, "run=3")):
        with pytest.raises(RunError, match=error):
            analysis.load(folder)


def rewritten(run, path, change):
    """Alters a table, for which run.json still vouches."""
    table = pl.read_parquet(run / path)
    runs.add_table(run, path, change(table))


def replace_part(run, token_ids):
    """Other bytes in the place of a part of m-one under "greatest"."""
    path = run / schema.scores_path("m-one", "greatest") / schema.part_name(3, 6)
    columns = {"token_id": token_ids, "reward": [9.0] * len(token_ids)}
    path.write_bytes(to_parquet(pl.DataFrame(columns, schema=schema.SCORE_COLUMNS)))


def vouched(run, token_ids):
    """The same, for which result.json vouches."""
    replace_part(run, token_ids)
    path = run / schema.scores_path("m-one", "greatest") / schema.part_name(3, 6)
    fields = {"rows": len(token_ids), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    runs.edit_run(run, lambda c: result(c)["parts"][path.name].update(fields))


def add_items(run, **listed):
    """Rewards of one list by m-one under a prompt."""
    for prompt, rewards in listed.items():
        runs.add_items(run, "pets", "m-one", prompt, rewards)


V1, V2 = schema.vocab_path("v1"), schema.vocab_path("v2")
FAULTS = {
    "logprobs .* token ids 1$": lambda run: runs.add_logprobs(
        run, "lm", "v2", "greatest", [0.0, -math.inf, 0.0, 0.0, 0.0, 0.0]
    ),
    "nothing was scored": lambda run: runs.edit_run(run, lambda c: c["results"].clear()),
    r"name '\.\./x'": lambda run: runs.edit_run(run, lambda c: c["prompts"].update({"../x": "?"})),
    "name 'token'; tables have a column": lambda run: runs.edit_run(
        run, lambda c: c["models"].update(token=c["models"]["m-one"])
    ),
    r"part-0000003-0000006.parquet: damaged": lambda run: replace_part(run, [3, 4, 5]),
    r"part-0000003-0000006.parquet: other rows": lambda run: vouched(run, [3, 4, 4]),
    "part 'part-0000003-0000006.parquet' of 2 rows": lambda run: vouched(run, [3, 4]),
    "v2.parquet: no such table": lambda run: (run / V2).unlink(),
    "token_id is Int64; expected UInt32": lambda run: rewritten(
        run, V1, lambda table: table.cast({"token_id": pl.Int64})
    ),
    r"v1.parquet: damaged": lambda run: (run / V1).write_text("no"),
    "safes .* token ids 1$": lambda run: runs.add_objectives(
        run, "m-two", "greatest", {"safe": [0.0, math.nan, 0.0, 0.0, 0.0, 0.0]}
    ),
    "m-one × worst of pets .* rewards .* item ids 0$": lambda run: add_items(
        run, worst={"cat": math.inf}
    ),
    "m-one × worst of pets .* other items .* ids 1$": lambda run: add_items(
        run, greatest={"cat": 1.0, "dog": 2.0}, worst={"cat": 1.0, "Dog": 2.0}
    ),
}


@pytest.mark.parametrize("message", FAULTS)
def test_a_run_with_a_fault_is_refused_with_its_name(small_run, message):
    FAULTS[message](small_run)
    with pytest.raises(RunError, match=message):
        analysis.load(small_run)


ONE, PART = schema.scores_path("m-one", "greatest"), schema.part_name(0, 3)
RESULT, RUN = rf"{ONE}/result\.json: damaged", r"run\.json: damaged"
# What somebody wrote into a run -> how both readers refuse it.
STRANGE = {
    rf"{RESULT} .'x' is no Identity": lambda c: result(c).update(identity="x"),
    rf"{RESULT} .*'<b>' is no int": lambda c: result(c)["self_check"].update(candidates="<b>"),
    rf"{RESULT} .*lens=1000000000": lambda c: result(c)["identity"].update(lens=10**12),
    rf"{RESULT} .*'parts'|{RESULT} .*'path'": lambda c: result(c).pop("path"),
    rf"{RESULT} .*it is of '\.\./x'": lambda c: result(c).update(path="../x"),
    rf"{RESULT} .*part '\.\./\.\./x.parquet'": lambda c: result(c)["parts"].update(
        {"../../x.parquet": {"rows": 1, "sha256": "", "way": 0}}
    ),
    r"run\.json: vocab '\.\./\.\./v1'": lambda c: c["models"]["m-one"].update(vocab="../../v1"),
    "prompt 'greatest' with 'What": lambda c: c["prompts"].update(greatest="Else?"),
    "model 'm-one' with 'm-one-hash', not None": lambda c: c["models"].pop("m-one"),
}


@pytest.mark.parametrize("message", STRANGE)
def test_strange_records_are_refused_in_one_line_by_both_readers(small_run, message):
    runs.edit_run(small_run, STRANGE[message], follow=False)
    with pytest.raises(RunError, match=message) as refused:
        analysis.load(small_run)
    assert verify(epath.Path(small_run)).problems[0] == str(refused.value)


def test_rewards_that_are_not_finite_are_named_and_counted(make_run):
    rewards = [1.0, math.nan, math.inf, -math.inf, math.nan, math.nan, math.nan, 2.0]
    run = make_run({"v": list("abcdefgh")}, {"m": "v"}, {("m", "greatest"): rewards}, size=8)
    with pytest.raises(RunError, match=r"m × greatest .* token ids 1, 2, 3, 4, 5 and 1 more$"):
        analysis.load(run)


def test_an_unfinished_sweep_is_refused_unless_allowed_and_one_without_parts_left_out(small_run):
    runs.edit_run(small_run, lambda content: result(content).pop("self_check"))
    with pytest.raises(RunError, match=r"m-one × greatest .* incomplete"):
        analysis.load(small_run)
    assert analysis.load(small_run, allow_incomplete=True).scores().collect().height == 20
    runs.edit_run(small_run, lambda content: result(content).update(parts={}))
    loaded = analysis.load(small_run, allow_incomplete=True)
    assert ("m-one", "greatest") not in loaded.results
    assert loaded.results


def test_a_missing_part_is_refused_unless_allowed(small_run):
    (small_run / schema.scores_path("m-one", "greatest") / schema.part_name(3, 6)).unlink()
    with pytest.raises(RunError, match=r"m-one × greatest .* part-0000003-0000006.parquet"):
        analysis.load(small_run)
    ids, _ = analysis.load(small_run, allow_incomplete=True).rewards("m-one", "greatest")
    assert ids.tolist() == [0, 1, 2, 6]


def test_a_token_without_a_score_or_out_of_the_vocabulary_is_refused(make_run):
    run = make_run({"v": ["a", "b", "c"]}, {"m": "v"}, {("m", "greatest"): {0: 1.0, 2: 2.0}})
    with pytest.raises(RunError, match=r"token ids 1$"):
        analysis.load(run)
    assert analysis.load(run, allow_incomplete=True).rewards("m", "greatest")[0].tolist() == [0, 2]
    run = make_run({"v": ["a"]}, {"m": "v"}, {("m", "greatest"): [1.0, 2.0]}, "more")
    with pytest.raises(RunError, match=r"not in its vocabulary 1$"):
        analysis.load(run)


@pytest.fixture
def two_runs(make_run):
    """One model under "greatest", and again with these rewards by prompt; the first twice."""

    def make(**second):
        tokens = {"v": ["a", "b"]}
        first = make_run(tokens, {"m": "v"}, {("m", "greatest"): [1.0, 2.0]}, "first")
        scores = {("m", prompt): rewards for prompt, rewards in second.items()}
        return [first, make_run(tokens, {"m": "v"}, scores, "second")]

    return make


def test_two_runs_load_as_one_and_what_is_in_both_counts_once(two_runs):
    run = analysis.load(two_runs(greatest=[1.0, 2.0], worst=[3.0, 4.0]))
    assert list(run.prompts) == ["greatest", "worst"]
    assert run.scores().collect()["reward"].to_list() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("folders", "order"),
    [
        ("a b", ["step-300", "step-50", "step-100"]),
        ("b a", ["step-50", "step-100", "step-300"]),
        ("shards", ["step-50", "step-100", "step-300"]),  # none holds the order of all
        ("shards/shard-1-of-2 shards/shard-2-of-2", ["step-50", "step-100", "step-300"]),
        ("shards/shard-1-of-2", ["step-300", "step-50"]),
    ],
)
def test_models_stand_as_they_were_first_given_and_those_of_shards_by_number(
    make_run, tmp_path, folders, order
):
    for first, second in (("a", "b"), ("shards/shard-1-of-2", "shards/shard-2-of-2")):
        for name, models in ((first, ["step-300", "step-50"]), (second, ["step-50", "step-100"])):
            scores = {(model, "best"): [1.0] for model in models}
            make_run({"v": ["a"]}, dict.fromkeys(models, "v"), scores, name)
    run = analysis.load([tmp_path / name for name in folders.split()])
    assert list(run.models) == run.vocabulary_models == [m for m, _ in run.results] == order
    assert run.scores().collect()["model"].to_list() == order


@pytest.mark.parametrize(
    ("rewards", "change", "message"),
    [
        (
            {"greatest": [1.0, 2.0]},
            lambda content: result(content, "m")["identity"].update(mode="text"),
            r"m × greatest .* mode='ids', not 'text'",
        ),
        (
            {"worst": [3.0, 4.0]},
            lambda content: content["models"]["m"].update(checkpoint_hash="other"),
            "checkpoint_hash of m: 'm-hash' and 'other'",
        ),
        (
            {"worst": [3.0, 4.0]},
            lambda content: content["prompts"].update(worst="Else?"),
            "prompt worst",
        ),
    ],
)
def test_runs_that_disagree_are_refused(two_runs, rewards, change, message):
    folders = two_runs(**rewards)
    runs.edit_run(folders[1], change)
    with pytest.raises(RunError, match=message):
        analysis.load(folders)


def test_models_that_two_releases_have_converted_are_not_analysed_together(make_run):
    """Imported scores have no conversion and go with any."""
    folders = [
        make_run({"v": ["a"]}, {slug: "v"}, {(slug, "greatest"): [1.0]}, name=slug)
        for slug in ("imported", "new", "old")
    ]
    for folder, conversion in zip(folders[1:], ({"conversion": 3}, {}), strict=True):
        change = functools.partial(_replace_models, {"decoder_hash": "d", **conversion})
        runs.edit_run(folder, change)
    assert analysis.load(folders[:2]).models
    with pytest.raises(RunError, match=r"'new' and 'old'"):
        analysis.load(folders)


def _replace_models(entry, content):
    for record in content["models"].values():
        record.pop("conversion")
        record.update(entry)


@pytest.fixture
def two_models(make_run):
    scores = {(model, "greatest"): [1.0, 2.0, 3.0] for model in ("m1", "m2")}
    return make_run({"v": ["a", "b", "c"]}, {"m1": "v", "m2": "v"}, scores)


def test_rewards_and_vocabularies_are_read_once_and_cannot_be_written(two_models):
    run = analysis.load(two_models)
    token_ids, rewards = run.rewards("m1", "greatest")
    assert run.rewards("m1", "greatest")[1] is rewards
    assert run.ranked("m1", "greatest") is run.ranked("m1", "greatest")
    assert run.rewards("m2", "greatest")[0] is token_ids  # one vocabulary
    for column in (token_ids, rewards):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 9


def test_rewards_beyond_the_memory_that_is_given_are_read_again(two_models):
    results = list(analysis.load(two_models).results.values())
    small = cache.Cache(most_bytes=12)  # of one model
    (_, first), (_, second) = (small.rewards(result, "v") for result in results)
    assert small.rewards(results[0], "v")[1] is first
    again = small.rewards(results[1], "v")[1]
    assert again is not second
    np.testing.assert_array_equal(again, second)
