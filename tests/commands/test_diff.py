"""`assay diff`: of two runs, of two checkpoints with their noise, and bad input."""

import json
import re

import numpy as np
import polars as pl
import pytest

from engine.lists.files import read_pairs
from tests.support import runs
from tests.support.sweeps import Run

N = 300
FAST = [f"--config.analyze.options.{key}=99" for key in ("permutations", "bootstraps")]


def _write(folder, rewards, tokens=None):
    tokens = tokens or [f"w{i}" for i in range(len(rewards))]
    return runs.write_run(folder, {"v": tokens}, {"m": "v"}, {("m", "greatest"): rewards}, size=N)


@pytest.fixture
def places(tmp_path):
    """Two runs of the same model but for noise, and one of another model."""
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=N)
    made = {"before": rewards, "same": rewards + 1e-4, "other": rng.normal(size=N)}
    return {name: _write(tmp_path / name, values) for name, values in made.items()}


@pytest.mark.parametrize(("after", "code"), [("same", 0), ("other", 1)])
def test_the_exit_status_is_the_verdict(command, places, tmp_path, light, after, code):
    """The limits stand on the terminal as in the file, worst first."""
    report = tmp_path / "report"
    flags = [f"--before={places['before']}", f"--after={places[after]}", f"--report={report}"]
    done = command("diff", *flags, *FAST)
    assert done.code == code, done.err
    counted = "all 4" if code == 0 else "3 of 4"
    assert done.out[0].startswith(f"{'FAIL' if code else 'PASS'}: {counted}")
    assert done.out[-1].startswith(f"{report}/index.html: {counted}")
    shown = [line for line in done.out if line.startswith(("FAILS", "holds"))]
    content = json.loads((report / "verdict.json").read_text(encoding="utf-8"))
    assert [row["ok"] for row in content["limits"]] == [False] * 3 * code + [True] * (4 - 3 * code)
    for row, line in zip(content["limits"], shown, strict=True):
        assert line.startswith("holds") if row["ok"] else row["on"] in line
    page = (report / "index.html").read_text(encoding="utf-8")
    assert f"<h1><b>{'FAIL' if code else 'PASS'}</b> <span>{counted}" in page
    assert pl.read_csv(report / "tables" / "changes.csv")["of"].to_list() == ["change"]


@pytest.mark.slow
def test_two_checkpoints_are_swept_and_the_noise_is_measured(command, checkpoint, tmp_path, light):
    """The noise is of another dtype, and of steps of another size than the sides'."""
    model = checkpoint("diffed", seed=3)
    flags = [f"--before={model.path}", f"--after={model.path}"]
    flags += [f"--report={tmp_path / 'report'}", f"--run={tmp_path / 'runs'}"]
    flags += ["--config.prompts=greatest", *FAST]
    assert "after also in bfloat16" in command("diff", *flags).fine().err[0]
    table = pl.read_csv(tmp_path / "report" / "tables" / "changes.csv")
    assert table["of"].to_list() == ["change", "noise: after in float32 and bfloat16 (noise)"]
    change, noise = table["mean_shift"]
    assert change == 0 < noise
    command("diff", *flags).fine()
    (result,) = Run(tmp_path / "runs" / "noise").results().values()
    assert result.identity.dtype == "bfloat16"
    assert result.ways[0]["step_size"] == 48


def test_pairs_are_a_limit(command, places, source, tmp_path, light):
    """Of two runs that hold the list; `after` judges one pair of two as people did."""
    rows = [{"prompt": "a", "chosen": "b", "rejected": "c", "kind": kind} for kind in "xy"]
    path = source("".join(f"{json.dumps(row)}\n" for row in rows), "own.jsonl")
    listed = read_pairs(path)
    flags = [f"--before={places['before']}", f"--after={places['same']}", f"--items={path}", *FAST]
    flags += [f"--report={tmp_path / 'report'}"]
    done = command("diff", *flags)
    assert "--before: m " in done.err[-1] and "'own'" in done.err[-1]
    rewards = {"before": [1.0, 0.0, 1.0, 0.0], "same": [1.0, 0.0, 0.0, 0.0]}
    for side, values in rewards.items():
        runs.add_conversations(places[side], "own", listed.table, {"m": values})
    assert command("diff", *flags).code == 0
    done = command("diff", *flags, "--config.limits.accuracy=0.75")
    assert done.code == 1
    assert re.search(r"FAILS .*\(100\.0% before\) .*own +50\.0 % .*75 %", "\n".join(done.out))
    losses = [line.split(";")[0] for line in done.out if "log loss" in line]
    assert losses == ["before: log loss 0.313", "after: log loss 0.503"]
    content = json.loads((tmp_path / "report" / "verdict.json").read_text(encoding="utf-8"))
    first = content["limits"][0]
    assert (first["value"], first["limit"], first["ok"]) == (0.5, 0.75, False)


@pytest.fixture
def inputs(places, checkpoint, tmp_path):
    """Runs and checkpoints that fit one another, and what does not fit."""
    _of_checkpoint(places["other"], "another", "float32")
    model, language = checkpoint("diffed", seed=3), checkpoint("lm", head="lm")
    tokens = list(model.tokens.values())
    rewards = np.random.default_rng(2).normal(size=len(tokens))
    return {
        **places,
        "tmp": tmp_path,
        "short": _write(tmp_path / "short", [1.0, 2.0], ["a", "b"]),
        "model": model.path,
        "language": language.path,
        "fits": _write(tmp_path / "fits", rewards, tokens),
    }


RUNS, SIDES = ["--before={before}", "--after={same}"], ["--before={model}", "--after={model}"]
SWEPT = ["--run={tmp}/runs", "--config.prompts=greatest"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--before={before}", "--after={tmp}/no"], "diff: {tmp}/no: not a run folder"),
        (["--before={before}", "--after={short}"], "two vocabularies (300 and 2 tokens"),
        ([*RUNS, "--noise={other}"], "--noise={tmp}/other"),
        (["--before={model}", "--after={same}"], "diff: --run is missing"),
        ([*RUNS, "--config.prompts=greatest"], "diff: --config.prompts: "),
        ([*SIDES, *SWEPT, "--noise={fits}"], "--noise={fits}: "),
        ([*SIDES, *SWEPT, "--config.compared=worst"], "--before has no prompt 'worst'"),
        (["--before={model}", "--after={fits}", "--prompt=Best?", SWEPT[0]], "--before has 'best-"),
        (["--before={model}", "--after={language}", *SWEPT], "a language model; allowed: a reward"),
    ],
)
def test_nothing_is_swept_or_written_before_every_input_is_checked(command, inputs, flags, message):
    arguments = ["--report={tmp}/report", *flags]
    done = command("diff", *(flag.format(**inputs) for flag in arguments), *FAST)
    assert message.format(**inputs) in done.refusal()
    assert not (inputs["tmp"] / "runs").exists()
    assert not (inputs["tmp"] / "report").exists()


def _of_checkpoint(folder, digest, dtype, mode="ids"):
    """Says in a run whose rewards they are, in which dtype and mode."""

    def change(content):
        for result in content["results"].values():
            result["identity"] |= {"checkpoint_hash": digest, "dtype": dtype, "mode": mode}
        for model in content["models"].values():
            model |= {"checkpoint_hash": digest, "decoder_hash": digest}

    runs.edit_run(folder, change)


def test_noise_is_neither_side_of_one_checkpoint_and_is_measured_prompt_by_prompt(
    command, tmp_path, light
):
    """A copy of `before` passed as noise of `after`: it is the change, so nothing was beyond it."""
    rng = np.random.default_rng(0)
    first = {prompt: rng.normal(size=N) for prompt in ("greatest", "worst")}
    last = {prompt: rewards + 1e-3 * rng.normal(size=N) for prompt, rewards in first.items()}
    half = {**first, "worst": first["worst"] + 1e-3 * rng.normal(size=N)}
    made = {"before": first, "after": last, "copy": first, "half": half}
    tokens = [f"w{i}" for i in range(N)]
    for name, rewards in made.items():
        scores = {("m", prompt): values for prompt, values in rewards.items()}
        runs.write_run(tmp_path / name, {"v": tokens}, {"m": "v"}, scores, size=N)
        _of_checkpoint(tmp_path / name, "one", "float32" if name == "after" else "bfloat16")
    sides = [f"--before={tmp_path / 'before'}", f"--after={tmp_path / 'after'}"]
    flags = [*sides, f"--report={tmp_path / 'report'}", *FAST]
    aliased = "copy/../before"
    for name, side in (("before",) * 2, (aliased, "before"), ("copy", "before"), ("after",) * 2):
        refused = command("diff", *flags, f"--noise={tmp_path / name}").refusal()
        assert refused.startswith(f"diff: --noise={tmp_path / name}: ") and f"--{side}" in refused
    assert command("diff", *flags, f"--noise={tmp_path / 'half'}").code == 0
    table = pl.read_csv(tmp_path / "report" / "tables" / "changes.csv")
    found = table.filter(pl.col("of").str.starts_with("noise"))
    assert found["prompt"].to_list() == ["worst"]
    assert found["of"].str.starts_with("noise: after in float32 and bfloat16").all()


def test_noise_is_of_the_side_in_whose_mode_it_was_swept(command, tmp_path, light):
    """Both sides are of one checkpoint, whose noise under another mode would be the change."""
    rng, made = np.random.default_rng(0), {}
    for mode in ("ids", "text"):
        rewards = rng.normal(size=N)
        for dtype in ("float32", "bfloat16"):
            place = _write(tmp_path / f"{mode}-{dtype}", rewards + 1e-3 * rng.normal(size=N))
            _of_checkpoint(place, "one", dtype, mode)
            made[mode, dtype] = place
    flags = [f"--before={made['ids', 'float32']}", f"--after={made['text', 'float32']}", *FAST]
    flags += [f"--noise={made['ids', 'bfloat16']},{made['text', 'bfloat16']}"]
    done = command("diff", *flags, f"--report={tmp_path / 'report'}")
    assert (done.code, done.out[1]) == (1, "differs in: mode=ids/text")
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "differs in: mode=ids/text<" in page
    content = json.loads((tmp_path / "report" / "verdict.json").read_text(encoding="utf-8"))
    assert content["differs_in"] == "mode=ids/text"
    table = pl.read_csv(tmp_path / "report" / "tables" / "changes.csv")
    sides = [f"noise: {side} in float32 and bfloat16" for side in ("before", "after")]
    assert [of.partition(" (")[0] for of in table["of"]] == ["change", *sides]
    assert table["kendall"][0] < 0.9 < table["kendall"][1:].min()
