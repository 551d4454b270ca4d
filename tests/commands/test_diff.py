"""`assay diff`: of two runs, of two checkpoints with their noise, and bad input."""

import collections
import json
import re

import numpy as np
import polars as pl
import pytest

from analysis.report import drawing
from engine.planning import admission
from launch.common import comparing
from tests.support import folders, runs, tiny

N = 300
FAST = [f"--config.analyze.options.{key}=99" for key in ("permutations", "bootstraps")]


def _write(folder, rewards, tokens=None):
    tokens = tokens or [f"w{i}" for i in range(len(rewards))]
    return runs.write_run(folder, {"v": tokens}, {"m": "v"}, {("m", "greatest"): rewards}, size=N)


@pytest.fixture
def both(tmp_path):
    """Two runs of the same model but for noise, and one of another model."""
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=N)
    made = {"before": rewards, "same": rewards + 1e-4, "other": rng.normal(size=N)}
    return {name: _write(tmp_path / name, values) for name, values in made.items()}


@pytest.fixture
def light(monkeypatch):
    """Leaves the figures undrawn."""
    monkeypatch.setattr(drawing, "draw", lambda *_: collections.defaultdict(str))


@pytest.mark.parametrize(("after", "code"), [("same", 0), ("other", 1)])
def test_the_exit_status_is_the_verdict(command, both, tmp_path, light, after, code):
    report = tmp_path / "report"
    flags = [f"--before={both['before']}", f"--after={both[after]}", f"--report={report}"]
    done = command("diff", *flags, *FAST)
    assert done.code == code, done.err
    said = "all 4 limits hold" if code == 0 else "3 of 4 limits do not hold"
    assert done.out == [f"{report}/index.html: {said}"]
    page = (report / "index.html").read_text(encoding="utf-8")
    assert '<section id="verdict"' in page
    assert pl.read_csv(report / "tables" / "changes.csv")["of"].to_list() == ["change"]


@pytest.mark.parametrize(("flags", "step"), [([], 48), (["--config.step_size=48"], 40)])
def test_two_checkpoints_are_swept_and_the_noise_is_measured(
    command, checkpoint, tmp_path, light, flags, step
):
    """The noise is of another dtype, and of steps of another size than the sides'."""
    model = checkpoint("diffed", seed=3)
    flags = [*flags, f"--before={model.path}", f"--after={model.path}"]
    flags += [f"--report={tmp_path / 'report'}", f"--run={tmp_path / 'runs'}"]
    flags += ["--config.prompts=greatest", *FAST]
    done = command("diff", *flags)
    assert done.code == 0, done.err
    table = pl.read_csv(tmp_path / "report" / "tables" / "changes.csv")
    assert table["of"].to_list() == ["change", "noise: after in float32 and bfloat16 (noise)"]
    change, noise = table["mean_shift"]
    assert change == 0 < noise
    again = command("diff", *flags)
    assert again.code == 0, again.err
    manifest = json.loads((tmp_path / "runs" / "noise" / "manifest.json").read_text())
    (result,) = manifest["results"].values()
    assert result["fingerprint"]["dtype"] == "bfloat16"
    assert result["fingerprint"]["step_size"] == step


def test_the_figures_are_drawn(command, both, tmp_path):
    report = tmp_path / "report"
    flags = [f"--before={both['before']}", f"--after={both['other']}", f"--report={report}"]
    assert command("diff", *flags, *FAST).code == 1
    assert (report / "figures" / "changes_greatest.png").is_file()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--after={same}"], "diff: --before is missing; allowed: a run of one model"),
        (["--before={before}", "--after={tmp}/no"], "diff: {tmp}/no: not a run folder"),
        (["--before={before}", "--after={short}"], "have two vocabularies (300 and 2 tokens;"),
        (
            ["--before={before}", "--after={same}", "--config.limits.kendall=7.0"],
            "diff: diff.limits.kendall=7.0; allowed: -1 to 1",
        ),
        (
            ["--before={before}", "--after={same}", "--noise={other}"],
            "of neither model; allowed: another sweep of the checkpoint",
        ),
        (["--before={model}", "--after={same}"], "diff: --run is missing; allowed: a folder"),
        (
            ["--before={before}", "--after={same}", "--config.prompts=greatest"],
            "diff: --config.prompts: both sides are runs, so nothing is swept; allowed: --config.c",
        ),
    ],
)
def test_bad_input_ends_with_one_line_and_writes_nothing(
    command, both, checkpoint, tmp_path, flags, message
):
    short = _write(tmp_path / "short", [1.0, 2.0], ["a", "b"])
    known = {**both, "short": short, "model": checkpoint("diffed", seed=3).path, "tmp": tmp_path}
    report = tmp_path / "report"
    done = command("diff", *(flag.format(**known) for flag in flags), f"--report={report}")
    assert done.code == 2
    assert len(done.err) == 1
    assert message.format(**known) in done.err[0]
    assert not report.exists()


@pytest.fixture
def swept(checkpoint, tmp_path):
    """A checkpoint, runs that fit it, and what does not fit."""
    model, language = checkpoint("diffed", seed=3), checkpoint("lm", head="lm")
    source = tiny.write_model(tmp_path / "hf")
    tiny.tokenizer(words=tiny.WORDS[::-1]).save_pretrained(source)
    tokens = list(model.tokens.values())
    rewards = np.random.default_rng(2).normal(size=len(tokens))
    return {
        "tmp": tmp_path,
        "model": model.path,
        "language": language.path,
        "reversed": folders.convert(source, tmp_path / "reversed", "reversed").path,
        "fits": _write(tmp_path / "fits", rewards, tokens),
    }


SIDES = ["--before={model}", "--after={model}"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--before={model}", "--after={tmp}/typo"], "{tmp}/typo: not a run folder"),
        ([*SIDES, "--noise={fits}"], "--noise={fits}: of neither model"),
        ([*SIDES, "--config.compared=worst"], "--before has no prompt 'worst'; allowed: --config."),
        ([*SIDES, "--after_model=x"], "--after_model='x'; allowed: diffed"),
        (["--before={model}", "--after={fits}", "--config.prompts=best"], "--before has 'best'"),
        (["--before={model}", "--after={reversed}"], "--after (reversed) have two vocabularies ("),
        (["--before={model}", "--after={language}"], "a language model; allowed: a reward model"),
        ([*SIDES, "--config.limits.ends=300"], "diff.limits.ends=300 of "),
        ([*SIDES, "--config.objectives=values"], "but none of the models has any: diffed"),
        ([*SIDES, "--config.mesh.model=3"], "mesh"),
        ([*SIDES, "--run={model}/model.json"], "/model.json: a file; allowed: a folder"),
    ],
)
def test_nothing_is_swept_before_every_input_is_checked(command, swept, flags, message):
    run, report = swept["tmp"] / "runs", swept["tmp"] / "report"
    named = ["--run={tmp}/runs", "--report={tmp}/report", "--config.prompts=greatest", *flags]
    done = command("diff", *(flag.format(**swept) for flag in named), *FAST)
    assert done.code == 2
    assert len(done.err) == 1
    assert message.format(**swept) in done.err[0]
    assert not run.exists()
    assert not report.exists()


def test_a_noise_sweep_that_does_not_fit_is_refused_before_any_sweep(
    command, checkpoint, tmp_path, monkeypatch
):
    model = checkpoint("diffed", seed=3)
    monkeypatch.setattr(admission, "free_memory", lambda: 2 << 30)
    monkeypatch.setattr(comparing, "_OTHER_STEPS", (1 << 20,))  # the tiny model fits with any other
    sides = [f"--before={model.path}", f"--after={model.path}"]
    flags = [f"--run={tmp_path / 'runs'}", f"--report={tmp_path / 'report'}", *sides]
    done = command("diff", *flags, "--config.prompts=greatest", *FAST)
    assert done.code == 2
    assert re.search("diffed: needs .* of memory on a device in bfloat16 ", done.err[0])
    assert not (tmp_path / "runs").exists()


def test_an_older_comparison_in_the_run_folder_is_found_before_any_sweep(
    command, checkpoint, tmp_path
):
    """Its `after` was another checkpoint of that slug; `before` is not touched."""
    model = checkpoint("diffed", seed=3)
    folder = tmp_path / "runs" / "after"
    tokens = list(model.tokens.values())
    runs.write_run(folder, {"v": tokens}, {"diffed": "v"}, {("diffed", "greatest"): [0.0] * N})
    sides = [f"--before={model.path}", f"--after={model.path}"]
    flags = [f"--run={tmp_path / 'runs'}", f"--report={tmp_path / 'report'}", *sides]
    done = command("diff", *flags, "--config.prompts=greatest", *FAST)
    assert done.code == 2
    assert "runs/after: model 'diffed' is there already with " in done.err[0]
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["after"]


def _of_checkpoint(folder, digest, dtype):
    """Says in a run whose rewards they are, and in which dtype."""

    def change(content):
        for result in content["results"].values():
            result["fingerprint"] |= {"checkpoint_hash": digest, "dtype": dtype}

    runs.edit_manifest(folder, change)


SAME = (
    "has the same rewards or log-probabilities as --{}; allowed: another sweep of that checkpoint, "
    "in another dtype or step size, or on another mesh"
)


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
        done = command("diff", *flags, f"--noise={tmp_path / name}")
        assert (done.code, done.out) == (2, [])
        assert done.err == [f"diff: --noise={tmp_path / name}: {SAME.format(side)}"]
    assert command("diff", *flags, f"--noise={tmp_path / 'half'}").code == 0
    table = pl.read_csv(tmp_path / "report" / "tables" / "changes.csv")
    found = table.filter(pl.col("of").str.starts_with("noise"))
    assert found["prompt"].to_list() == ["worst"]
    assert found["of"].str.starts_with("noise: before in bfloat16").all()  # as `half` is


def test_noise_is_of_the_side_that_is_more_like_it_under_all_prompts(command, tmp_path, light):
    """Under the first prompt alone, both sides are as much like it."""
    rng = np.random.default_rng(0)
    tokens = [f"w{i}" for i in range(N)]
    for name, dtype in (("before", "bfloat16"), ("after", "float16"), ("noise", "bfloat16")):
        scores = {("m", prompt): rng.normal(size=N) for prompt in ("greatest", "worst")}
        runs.write_run(tmp_path / name, {"v": tokens}, {"m": "v"}, scores, size=N)
        _of_checkpoint(tmp_path / name, "one", "float32")

        def change(content, dtype=dtype):
            [worst] = [key for key in content["results"] if "worst" in key]
            content["results"][worst]["fingerprint"]["dtype"] = dtype

        runs.edit_manifest(tmp_path / name, change)
    flags = [f"--{of}={tmp_path / of}" for of in ("before", "after", "noise")]
    done = command("diff", *flags, f"--report={tmp_path / 'report'}", *FAST)
    assert done.code in (0, 1), done.err
    found = pl.read_csv(tmp_path / "report" / "tables" / "changes.csv")["of"]
    noise = found.filter(found.str.starts_with("noise"))
    assert len(noise) == 2 and noise.str.starts_with("noise: before").all()


def test_a_language_model_is_called_one_and_its_second_run_is_noise(
    command, checkpoint, tmp_path, light
):
    language = checkpoint("lm", head="lm")
    for name, dtype in (("lm", "float32"), ("noise", "bfloat16")):
        flags = [f"--checkpoint={language.path}", f"--run={tmp_path / name}"]
        flags += ["--config.prompts=greatest", f"--config.dtype={dtype}"]
        assert command("logprobs", *flags).code == 0
    tokens = list(language.tokens.values())
    rewards = np.random.default_rng(2).normal(size=len(tokens) + 1)
    rewarded = _write(tmp_path / "judged", rewards, [*tokens, "<|pad|>"])
    report = tmp_path / "report"
    flags = [f"--before={tmp_path / 'lm'}", f"--after={rewarded}", f"--report={report}"]
    done = command("diff", *flags, f"--noise={tmp_path / 'noise'}", *FAST)
    assert done.code == 1, done.err
    left = f"left out: 1 token that only after has ({len(tokens)} '<|pad|>')"
    assert done.out[0].endswith(f"of 4 limits do not hold; {left}")
    table = pl.read_csv(report / "tables" / "changes.csv")
    assert table["of"].to_list() == ["change", "noise: before in float32 and bfloat16 (noise)"]
    assert table["n"].to_list() == [len(tokens)] * 2
    page = (report / "index.html").read_text(encoding="utf-8")
    text = re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL)
    assert "2 models gave a reward or a log-probability to every token" in text
    assert "reward model" not in text
    sections = re.findall(r"<section id=\"(.*?)\"", page)  # none that is about rewards
    assert sections == ["headlines", "explorer", "verdict", "caveats", "tables"]


@pytest.mark.slow
def test_the_lens_of_swept_checkpoints_is_in_the_report(command, checkpoint, tmp_path, light):
    model = checkpoint("diffed", seed=3)
    sides = [f"--before={model.path}", f"--after={model.path}", "--config.lens=true"]
    flags = [f"--run={tmp_path / 'runs'}", f"--report={tmp_path / 'report'}", *sides]
    flags += ["--config.prompts=greatest", "--config.measure_noise=False", *FAST]
    done = command("diff", *flags)
    assert done.code == 0, done.err
    assert (tmp_path / "report" / "tables" / "lens.csv").exists()
