"""`verify` finds what is wrong with a run, and makes a lost manifest from the parts."""

import os
import shutil
import threading

import numpy as np
import polars as pl
import pytest

import analysis
from tests.support import slow
from tests.support.folders import flipped
from tests.support.sweeps import Run

SMALL = ("--config.step_size=64", "--config.part_size=100")
SEARCH = ("--config.length=3", "--config.steps=3", "--config.candidates=16", "--config.topk=16")
SCORES = "scores/model=tiny/prompt=greatest"
PART = f"{SCORES}/part-0000100-0000200.parquet"


@pytest.fixture(scope="module")
def models(checkpoint):
    return checkpoint(), checkpoint("lm", head="lm")


@pytest.fixture(scope="module")
def whole(models, tmp_path_factory):
    """A run with a sweep, a list, log-probabilities and a search."""
    from launch import logprobs, score, search, sweep

    folder = tmp_path_factory.mktemp("verify")
    (folder / "words.txt").write_text("love\nhate\nwar and peace\n")
    model, language = (f"--checkpoint={one.path}" for one in models)
    run = f"--run={folder / 'run'}"
    prompts = "--config.prompts=greatest,worst"
    assert sweep.main([model, run, prompts, *SMALL]) == 0
    prompts = "--config.prompts=greatest"
    items = f"--items={folder / 'words.txt'}"
    assert score.main([model, run, prompts, items]) == 0
    assert logprobs.main([language, run, prompts, *SMALL]) == 0
    assert search.main([model, run, prompts, *SEARCH]) == 0
    return folder / "run"


@pytest.fixture
def run(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


@pytest.fixture
def verify(command, run):
    return lambda *flags: command("verify", f"--run={run}", *flags)


def content(run):
    return Run(run).manifest()


def test_a_run_as_its_commands_left_it_is_well(run, verify):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done = verify()
    assert (done.code, done.err) == (0, [])
    assert done.out == [f"{run}: 6 results, 12 files, 873 rows: all is well"]
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


FILES = (PART, "vocab/*", "sequences/*/*/*/*", "items/*/*/*/*", "manifest.json")


@pytest.mark.parametrize("pattern", FILES)
def test_a_flipped_bit_anywhere_in_a_file_is_found(run, verify, pattern):
    path = next(run.glob(pattern))
    advice = "--rebuild" if pattern == "manifest.json" else "remove it and run again"
    for position in np.linspace(0, path.stat().st_size - 1, 20).astype(int).tolist():
        with flipped(path, position):
            done = verify()
        assert done.code == 1, position
        assert str(path.parent) in done.out[0] and advice in done.out[0], (position, done.out)
    assert verify().code == 0


NAME = PART.rpartition("/")[2]


def remove(pattern):
    return lambda run: next(run.glob(pattern)).unlink()


def pipe(run):
    """Puts a pipe in the place of a part, with a writer: a reader does not wait for ever."""
    remove(PART)(run)
    os.mkfifo(run / PART)
    threading.Thread(target=(run / PART).write_bytes, args=[b""], daemon=True).start()


def of_check(**said):
    """Alters the self-check of the greatest prompt's sweep."""
    return of_result(lambda entry: entry["self_check"].update(said))


def of_result(change):
    """Alters what the manifest says of the greatest prompt's sweep."""
    return lambda run: Run(run).edit_manifest(lambda content: change(content["results"][SCORES]))


# What is wrong -> how it comes about, and the line that says so, behind the run's folder.
DAMAGES = {
    "a lost part": (remove(PART), f"{SCORES}: {NAME}: missing; run the command again"),
    "a lost search": (remove("sequences/*/*/direction=max/*"), "sequences/"),
    "a part that the manifest does not name": (
        of_result(lambda entry: entry["parts"].pop(NAME)),
        f"{SCORES}: 100 of 288 rows are missing; run the command again",
    ),
    "a part of another prompt": (
        lambda run: shutil.copy(run / PART.replace("greatest", "worst"), run / PART),
        f"{SCORES}: {NAME}: differs from its hash",
    ),
    "a part that overlaps others": (
        lambda run: shutil.copy(run / PART, run / SCORES / "part-0000150-0000250.parquet"),
        f"{SCORES}/part-0000150-0000250.parquet: not in the manifest",
    ),
    "a result that the manifest does not name": (
        lambda run: Run(run).edit_manifest(lambda content: content["results"].pop(SCORES)),
        f"{SCORES}/part-0000000-0000100.parquet: not in the manifest",
    ),
    "another label": (
        of_result(lambda entry: entry["fingerprint"].update(dtype="bfloat16")),
        f"{SCORES}: part-0000000-0000100.parquet: belongs to something else (dtype='float32', not ",
    ),
    "another number of rows": (
        of_result(lambda entry: entry["parts"][NAME].update(rows=99)),
        f"{SCORES}: {NAME} has 100 rows, the manifest says 99",
    ),
    "a file that is half written": (
        lambda run: (run / SCORES / f".{NAME}.0123abcd.tmp").write_bytes(b"half"),
        f"{SCORES}/.{NAME}.0123abcd.tmp: left by a command that was killed; remove it",
    ),
    "a part that is cut short": (
        lambda run: os.truncate(run / PART, 1000),
        f"{SCORES}: {NAME}: damaged; remove it and run again",
    ),
    "a pipe": (pipe, f"{SCORES}: {NAME}: not a regular file"),
    "another tolerance": (
        of_check(tolerance=6.0),
        f"{SCORES}: self_check has a difference of ",
    ),
    "a tolerance of no dtype": (of_check(tolerance=2e-2), f"{SCORES}: self_check has a difference"),
    "a difference beyond the tolerance": (
        of_check(max_abs_difference=0.1),
        f"{SCORES}: self_check has a difference of 0.1 and a tolerance of 0.0001, beyond what fl",
    ),
    "a difference that is infinite": (
        of_check(max_abs_difference=float("inf")),
        f"{SCORES}: self_check has a difference of inf",
    ),
    "a result that was not checked": (
        of_result(lambda entry: entry.update(self_check=None)),
        f"{SCORES}: not checked by the plain pass; run the command again",
    ),
}


@pytest.mark.parametrize(("damage", "line"), DAMAGES.values(), ids=DAMAGES)
def test_one_line_says_what_is_wrong_and_what_to_do(run, verify, damage, line):
    damage(run)
    done = verify()
    assert done.code == 1
    assert done.out[0].startswith(f"{run}/{line}")
    assert "missing" in done.out[0] or "sequences" not in line
    assert done.out[-1].endswith(f"problems: {len(done.out) - 1}")


# A lost manifest


LOSSES = {
    "gone": lambda path: path.unlink(),
    "damaged": lambda path: path.write_bytes(path.read_bytes().replace(b"greatest", b"grextest")),
}


@pytest.mark.parametrize("loss", slow.all_but(["gone"], LOSSES))
def test_a_lost_manifest_is_made_from_the_parts(run, command, verify, models, loss):
    before, files = content(run), {p: p.read_bytes() for p in run.rglob("*.parquet")}
    LOSSES[loss](run / "manifest.json")
    done = command("sweep", f"--checkpoint={models[0].path}", f"--run={run}", *SMALL)
    assert done.code == 2 and "`assay verify --run=<dir> --rebuild`" in done.err[-1]

    done = verify("--rebuild")
    assert done.code == 1 and all("not checked by the plain pass" in line for line in done.out[:-1])
    done = verify("--rescore=5", *(f"--checkpoint={','.join(str(m.path) for m in models)}",))
    assert done.out == [f"{run}: 6 results, 12 files, 873 rows, 6 results re-scored: all is well"]
    after = content(run)
    assert after["models"] == before["models"]
    assert after["prompts"] == before["prompts"]
    assert after["lists"] == before["lists"]
    for path, entry in before["results"].items():
        for key in ("fingerprint", "parts", "complete", "coefficients"):
            assert after["results"][path][key] == entry[key], (path, key)
        if path.startswith("sequences"):
            for key in ("self_check", "rejected"):
                assert after["results"][path][key] == entry[key]
    assert {path: path.read_bytes() for path in run.rglob("*.parquet")} == files
    assert len(analysis.load(run).results) == 2


def test_the_sweep_checks_a_rebuilt_result_again_without_computing_it(run, command, verify, models):
    (run / "manifest.json").unlink()
    verify("--rebuild")
    flags = (f"--checkpoint={models[0].path}", f"--run={run}", "--config.prompts=greatest", *SMALL)
    done = command("sweep", *flags)
    assert done.out == [f"{run}/scores: 1 model × 1 prompt, complete already"]
    assert content(run)["results"][SCORES]["self_check"]["candidates"] == 16


def test_a_rebuilt_manifest_leaves_out_what_does_not_belong(run, verify):
    shutil.copy(run / PART.replace("greatest", "worst"), run / PART)
    (run / "manifest.json").unlink()
    done = verify("--rebuild")
    assert done.out[0].startswith(
        f"{run / PART}: belongs to something else (path='scores/model=tiny"
    )
    assert content(run)["results"][SCORES]["complete"] is False
    assert len(content(run)["results"][SCORES]["parts"]) == 2


def test_a_manifest_that_is_right_is_rebuilt_to_itself(run, verify):
    before = content(run)
    assert verify("--rebuild").code == 0
    assert content(run) == before


# Random rows, computed again


def test_a_wrong_reward_that_every_hash_vouches_for_is_found_by_scoring_it_again(
    run, verify, models
):
    from etils import epath

    from engine.runs import parts, provenance

    table = parts.read_frame(epath.Path(run / PART), None, {})
    wrong = table.frame.with_columns(reward=pl.col("reward") + 1)
    about = {k: v for k, v in table.about.items() if k != "file_sha256"}
    digest = parts.write_part(epath.Path(run / SCORES), 100, 200, wrong, about)
    Run(run).edit_manifest(lambda c: c["results"][SCORES]["parts"][NAME].update(sha256=digest))
    assert verify().code == 0
    assert provenance.is_whole((run / PART).read_bytes())
    done = verify("--rescore=288", f"--checkpoint={models[0].path}")
    assert done.code == 1
    assert done.out[0].startswith(f"{run / SCORES}: re-scored: row 1")
    assert "the plain pass gives" in done.out[0] and "remove it and run" in done.out[0]
