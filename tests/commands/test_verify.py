"""`verify` finds what is wrong with a run, and makes a lost manifest from the parts."""

import json
import shutil

import numpy as np
import polars as pl
import pytest

import analysis
from tests.support.folders import flipped

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
    return json.loads((run / "manifest.json").read_text())


def edit(run, change):
    """Lets `change` alter the manifest, as somebody would by hand."""
    altered = content(run)
    change(altered)
    del altered["sha256"]
    (run / "manifest.json").write_text(json.dumps(altered))


def test_a_run_as_its_commands_left_it_is_well(run, verify):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done = verify()
    assert (done.code, done.err) == (0, [])
    assert done.out == [f"{run}: 6 results, 12 files, 873 rows: all is well"]
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def places(run, pattern):
    """Twenty positions of a file, spread over it, its first and last bytes among them."""
    path = next(run.glob(pattern))
    return path, np.linspace(0, path.stat().st_size - 1, 20).astype(int).tolist()


FILES = (PART, "vocab/*", "sequences/*/*/*/*", "items/*/*/*/*", "manifest.json")


@pytest.mark.parametrize("pattern", FILES)
def test_a_flipped_bit_anywhere_in_a_file_is_found(run, verify, pattern):
    path, positions = places(run, pattern)
    advice = "--rebuild" if pattern == "manifest.json" else "remove it and run again"
    for position in positions:
        with flipped(path, position):
            done = verify()
        assert done.code == 1, position
        assert str(path.parent) in done.out[0] and advice in done.out[0], (position, done.out)
    assert verify().code == 0


@pytest.mark.parametrize("command_line", ["sweep", "analyze"])
def test_a_flipped_bit_in_a_complete_result_is_found_by(
    run, command, models, tmp_path, command_line
):
    flags = {
        "sweep": (f"--checkpoint={models[0].path}", f"--run={run}", "--config.prompts=greatest"),
        "analyze": (f"--run={run}", f"--report={tmp_path / 'report'}"),
    }[command_line]
    sizes = SMALL if command_line == "sweep" else ()
    for pattern in (PART, "vocab/*"):
        path, positions = places(run, pattern)
        for position in positions[::5]:
            with flipped(path, position):
                done = command(command_line, *flags, *sizes)
            assert done.code == 2, (pattern, position, done)
            assert path.name in done.err[-1] and done.out == []


def damage_lost_part(run):
    (run / PART).unlink()
    return f"{run / SCORES}: part-0000100-0000200.parquet: missing; run the command again"


def damage_unknown_part(run):
    edit(run, lambda c: c["results"][SCORES]["parts"].pop(PART.rpartition("/")[2]))
    return f"{run / SCORES}: 100 of 288 rows are missing; run the command again"


def damage_part_of_another_prompt(run):
    shutil.copy(run / PART.replace("greatest", "worst"), run / PART)
    return f"{run / SCORES}: part-0000100-0000200.parquet: differs from its hash"


def damage_overlapping_part(run):
    shutil.copy(run / PART, run / SCORES / "part-0000150-0000250.parquet")
    return f"{run / SCORES}/part-0000150-0000250.parquet: not in the manifest"


def damage_unknown_result(run):
    edit(run, lambda c: c["results"].pop(SCORES))
    return f"{run / SCORES}/part-0000000-0000100.parquet: not in the manifest"


def damage_other_label(run):
    edit(run, lambda c: c["results"][SCORES]["fingerprint"].update(dtype="bfloat16"))
    return (
        f"{run / SCORES}: part-0000000-0000100.parquet: belongs to something else "
        "(dtype='float32', not 'bfloat16')"
    )


def damage_number_of_rows(run):
    name = PART.rpartition("/")[2]
    edit(run, lambda c: c["results"][SCORES]["parts"][name].update(rows=99))
    return f"{run / SCORES}: part-0000100-0000200.parquet has 100 rows, the manifest says 99"


def damage_prompt(run):
    edit(run, lambda c: c["prompts"].update(greatest="What?"))
    return f"{run / 'items'}"


def damage_lost_vocabulary(run):
    [path] = (run / "vocab").iterdir()
    path.unlink()
    return f"{path}: missing; run the command again"


def damage_temporary(run):
    path = run / SCORES / ".part-0000000-0000100.parquet.0123abcd.tmp"
    path.write_bytes(b"half")
    return f"{path}: left by a command that was killed; remove it"


def damage_lost_search(run):
    [path] = (run / "sequences").glob("*/*/direction=max/*")
    path.unlink()
    return f"{path.parent}: {path.name}: missing; run the command again"


def damage_unchecked(run):
    edit(run, lambda c: c["results"][SCORES].update(self_check=None))
    return f"{run / SCORES}: not checked by the plain pass; run the command again"


DAMAGES = [value for name, value in globals().items() if name.startswith("damage_")]


@pytest.mark.parametrize("damage", DAMAGES)
def test_one_line_says_what_is_wrong_and_what_to_do(run, verify, damage):
    line = damage(run)
    done = verify()
    assert done.code == 1
    assert done.out[0].startswith(line)
    assert done.out[-1].endswith(f"problems: {len(done.out) - 1}")


# A lost manifest


LOSSES = {
    "gone": lambda path: path.unlink(),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:1000]),
    "damaged": lambda path: path.write_bytes(path.read_bytes().replace(b"greatest", b"grextest")),
}


@pytest.mark.parametrize("loss", LOSSES)
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
    assert done.out == [f"{run}/scores: 1 models × 1 prompts, complete already"]
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

    table = parts.read_part(epath.Path(run / SCORES), 100, 200, None, {})
    wrong = table.frame.with_columns(reward=pl.col("reward") + 1)
    about = {k: v for k, v in table.about.items() if k != "file_sha256"}
    digest = parts.write_part(epath.Path(run / SCORES), 100, 200, wrong, about)
    name = PART.rpartition("/")[2]
    edit(run, lambda c: c["results"][SCORES]["parts"][name].update(sha256=digest))
    assert verify().code == 0
    assert provenance.is_whole((run / PART).read_bytes())
    done = verify("--rescore=288", f"--checkpoint={models[0].path}")
    assert done.code == 1
    assert done.out[0].startswith(f"{run / SCORES}: re-scored: row 1")
    assert "the plain pass gives" in done.out[0] and "remove it and run" in done.out[0]


@pytest.mark.parametrize("flags", [["--rescore=5"], ["--checkpoint={tiny}"]])
def test_rows_are_scored_again_by_models_that_are_named(run, verify, models, flags):
    done = verify(*(flag.format(tiny=models[0].path) for flag in flags))
    assert (done.code, done.out) == (2, [])
    assert done.err == ["verify: --rescore and --checkpoint; allowed: both or neither"]


def test_a_folder_that_is_no_run_is_refused(command, tmp_path):
    done = command("verify", f"--run={tmp_path / 'nothing'}")
    assert (done.code, done.out) == (2, [])
    assert done.err == [f"verify: run {tmp_path / 'nothing'}: no such folder"]
    assert list(tmp_path.iterdir()) == []
