"""`verify` finds what is wrong with a run."""

import hashlib
import os
import re
import shutil

import numpy as np
import polars as pl
import pytest

from engine.runs.result import to_parquet
from tests.support import runs
from tests.support.folders import flipped
from tests.support.sweeps import ONE, Run

SCORES = "scores/model=tiny/prompt=greatest"
PART = f"{SCORES}/part-0000100-0000200.parquet"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run with a sweep, a list, log-probabilities and a search."""
    rng, made = np.random.default_rng(0), tmp_path_factory.mktemp("verify") / "run"
    tokens, prompts = [f"t{i}" for i in range(288)], ("greatest", "worst")
    scores = {("tiny", prompt): rng.normal(size=288) for prompt in prompts}
    runs.write_run(made, {"v": tokens}, {"tiny": "v"}, scores, size=100)
    runs.add_items(made, "words", "tiny", "greatest", {"love": 1.0, "hate": -1.0, "war": 0.0})
    runs.add_logprobs(made, "lm", "v", "greatest", -5 + rng.normal(size=288))
    for direction in ("max", "min"):
        runs.add_search(made, "tiny", direction, [1.0, 2.0, 3.0])

    def computed(content):
        for result in content["results"].values():
            result["identity"]["dtype"] = "float32"

    runs.edit_run(made, computed)
    return made


@pytest.fixture
def run(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


@pytest.fixture
def verify(command, run):
    return lambda *flags: command("verify", f"--run={run}", *flags)


def test_a_whole_run_is_well_and_left_as_it_is(run, verify):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done = verify()
    assert (done.code, done.err) == (0, [])
    assert done.out == [f"{run}: 6 results, 10 files, 873 rows: all is well"]
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


FILES = (PART, "vocab/*", "sequences/*/*/*/*/trace.*", "scores/*/*/result.json", "run.json")


@pytest.mark.parametrize("pattern", FILES)
def test_a_flipped_bit_anywhere_in_a_file_is_found(run, verify, pattern):
    path = next(run.glob(pattern))
    for position in np.linspace(0, path.stat().st_size - 1, 8).astype(int).tolist():
        with flipped(path, position):
            done = verify()
        assert done.code == 1, position
        assert str(path.parent) in done.out[0], (position, done.out)
    assert verify().code == 0


NAME = PART.rpartition("/")[2]


def remove(pattern):
    return lambda run: next(run.glob(pattern)).unlink()


def of_check(**values):
    """Alters the self-check of the greatest prompt's sweep."""
    return of_result(lambda entry: entry["self_check"].update(values))


def of_result(change):
    """Alters what the greatest prompt's sweep says of itself."""
    return lambda run: Run(run).edit(change, SCORES)


WORST = SCORES.replace("greatest", "worst")
HALF, MIDDLE = f"{SCORES}/.{NAME}.0123abcd.tmp", f"{SCORES}/part-0000150-0000250.parquet"
RECORD = f"{SCORES}/result.json"


def copied(source, target):
    return lambda run: shutil.copy(run / source, run / target)


# How something comes to be wrong, and the line that says so, behind the run's folder.
DAMAGES = [
    (remove(PART), f"{PART}: missing"),
    (remove("sequences/*/*/direction=max/*/trace.*"), "sequences/.*missing"),
    (of_result(lambda entry: entry["parts"].pop(NAME)), f"{SCORES}: not finished: 188 of 288 rows"),
    (copied(f"{WORST}/{NAME}", PART), f"{PART}: damaged"),  # of another prompt
    (copied(PART, MIDDLE), f"{MIDDLE}: "),  # overlaps others
    (remove(RECORD), f"{SCORES}/part-0000000-0000100.parquet: "),
    (copied(f"{WORST}/result.json", RECORD), f"{RECORD}: damaged .*prompt=worst'"),
    (
        of_result(lambda entry: entry["parts"][NAME].update(rows=99)),
        f"{RECORD}: damaged .* 99 rows",
    ),
    (lambda run: (run / HALF).write_bytes(b"half"), f"{HALF}: "),
    (lambda run: os.truncate(run / PART, 1000), f"{PART}: damaged"),
    (of_check(dtype="bfloat16"), f"{RECORD}: self_check .* bfloat16"),
    (of_check(compared="median"), f"{RECORD}: self_check .* median"),  # as of a mixture
    (
        of_check(relative_difference=0.1, tolerance=6.0),
        f"{RECORD}: self_check .* 0.1, beyond 0.0001",
    ),
    (of_result(lambda entry: entry.pop("self_check")), f"{SCORES}: not checked"),
    (
        lambda run: Run(run).edit(lambda c: c["prompts"].update(worst="?")),
        f"{WORST}: prompt 'worst'",
    ),
]


@pytest.mark.parametrize(("damage", "line"), DAMAGES, ids=[line for _, line in DAMAGES])
def test_one_line_says_what_is_wrong_and_what_to_do(run, verify, damage, line):
    damage(run)
    done = verify()
    assert done.code == 1
    assert re.match(f"{run}/{line}", done.out[0])
    assert done.out[-1].endswith(f"problems: {len(done.out) - 1}")


def test_parts_that_were_computed_in_two_ways_are_said_and_no_problem(run, verify):
    def change(entry):
        entry["ways"].append({**entry["ways"][0], "step_size": 8})
        entry["parts"][NAME]["way"] = 1

    Run(run).edit(change, SCORES)
    done = verify()
    assert done.code == 0
    assert f"{run / SCORES}: " in done.err[-1] and "step_size default and 8" in done.err[-1]


def test_a_wrong_reward_that_every_hash_vouches_for_is_found_by_scoring_it_again(
    command, checkpoint, tmp_path
):
    swept = Run(tmp_path / "run")
    swept.sweep([checkpoint()], ONE)
    part = swept.folder / PART
    part.write_bytes(data := to_parquet(pl.read_parquet(part).with_columns(pl.col("reward") + 1)))
    digest = hashlib.sha256(data).hexdigest()
    swept.edit(lambda entry: entry["parts"][NAME].update(sha256=digest), SCORES)
    run = f"--run={swept.folder}"
    assert command("verify", run).code == 0
    done = command("verify", run, "--rescore=288", f"--checkpoint={checkpoint().path}")
    assert done.code == 1
    assert done.out[0].startswith(f"{swept.folder / SCORES}: re-scored: row 1")
