"""`assay watch`: the steps that a trainer saves, one after the other, on one page."""

import json
import re
import shutil
import signal
import sys
import types
from pathlib import Path

import jax
import numpy as np
import polars as pl
import pytest
import transformers
from safetensors.numpy import load_file, save_file

from analysis.measures import steps
from engine.runs import storage
from launch.common import sources, trackers, watching
from tests.support import tiny
from tests.support.killed import Killed, killed_after
from tests.support.sweeps import Run

ROOT = Path(__file__).parents[2]
FAST = ["--once", "--config.step_size=64"]
pytestmark = pytest.mark.usefixtures("one_length")


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Steps -> a trainer's folder with them; the head goes from one direction to another."""
    monkeypatch.setattr(watching, "_LOOK_S", 0.01)

    def save(*numbers):
        folder = tmp_path / "trained"
        for number in numbers:
            place = tiny.write_model(folder / f"checkpoint-{number}", num_hidden_layers=1)
            weights = load_file(place / "model.safetensors")
            heads = [tiny.tensors(tiny.config(), head_seed=s)["score.weight"] for s in (1, 2)]
            share = np.float32(number / 400)
            weights["score.weight"] = (1 - share) * heads[0] + share * heads[1]
            save_file(weights, place / "model.safetensors")
        return folder

    return save


@pytest.fixture
def watch(command, tmp_path, light, monkeypatch):
    """Flags -> what the command did, and the lines of watch.jsonl; a page where it is asked."""

    def run(folder, *flags, out=tmp_path / "out", page=False):
        with monkeypatch.context() as patch:
            if not page:
                patch.setattr("analysis.report.write_report", lambda *_, **__: None)
            done = command("watch", folder, f"--out={out}", *FAST, *flags)
        lines = out / "watch.jsonl"
        text = lines.read_text(encoding="utf-8") if lines.exists() else ""
        return done, [json.loads(line) for line in text.splitlines()]

    return run


@pytest.fixture
def small(monkeypatch):
    """A panel of 100 tokens, 40 of them controls."""
    for name, size in {"PANEL": 100, "CONTROLS": 40, "_ENDS": 5, "_COMMON": 10}.items():
        monkeypatch.setattr(steps, name, size)


def test_each_step_has_the_rewards_of_a_sweep_and_a_line(watch, trained, command, tmp_path):
    out = tmp_path / "out"
    (out / "models").mkdir(parents=True)  # of the user
    folder = trained(100, 200)
    done, lines = watch(folder, page=True)
    assert [line["step"] for line in lines] == [100, 200]
    assert lines[0]["tau_previous"] is None is lines[1]["tau_last"]
    assert lines[0]["tau_last"] == lines[1]["tau_previous"] < 1
    assert done.code == 0 and done.out[-1] == f"{out}/report/index.html: 2 steps"
    page = (out / "report" / "index.html").read_text(encoding="utf-8")
    assert "Kendall’s τ of steps 100 and 200 is" in page
    tables = {path.stem for path in (out / "report" / "tables").iterdir()}
    assert {"steps", "steps_series", "steps_turns", "steps_words"} <= tables
    assert {path.name for path in out.iterdir() if path.is_dir()} == {"models", "report", "steps"}
    command("verify", f"--run={out}/steps/200").fine()
    flags = [f"--run={tmp_path}/swept", f"--config.cache={tmp_path}/cache", *FAST[1:]]
    command("sweep", folder / "checkpoint-100", *flags, "--config.prompts=greatest").fine()
    swept, step = (Run(place).hashes() for place in (tmp_path / "swept", out / "steps/100"))
    assert swept == step != {}


def test_a_second_step_compiles_nothing(watch, trained, small):
    """Also where it is a panel's."""
    events = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: events.append(event)
    )
    watch(trained(100), "--config.step_size=48")  # of no other test
    assert any("backend_compile" in event for event in events)
    events.clear()
    _, lines = watch(trained(200), "--config.step_size=48")
    assert [line["scored"] for line in lines] == ["vocabulary", "panel"]
    assert events and not [event for event in events if "backend_compile" in event]


def test_between_whole_sweeps_a_panel_is_scored(watch, trained, small, tmp_path):
    folder = trained(100, 200, 300)
    _, lines = watch(folder, "--config.every=2")
    assert [(line["scored"], line["tokens"]) for line in lines] == [
        ("vocabulary", 288),
        ("panel", 100),
        ("vocabulary", 288),
    ]
    path = "scores/model=trained-checkpoint-200/prompt=greatest"
    panel = Run(tmp_path / "out" / "steps" / "200").frame(path)
    for other in (100, 300):
        shutil.rmtree(folder / f"checkpoint-{other}")
    watch(folder, out=tmp_path / "other")
    whole = Run(tmp_path / "other" / "steps" / "200").frame(path)
    joined = panel.join(whole, on="token_id", suffix="_whole")
    assert (len(joined), len(whole)) == (100, 288)
    assert joined["reward"].to_list() == pytest.approx(joined["reward_whole"].to_list(), abs=1e-5)


def test_a_command_that_goes_on_scores_nothing_again(watch, trained, tmp_path, monkeypatch):
    folder = trained(100, 200)
    _, first = watch(folder)
    shutil.rmtree(folder / "checkpoint-100")  # as save_total_limit does
    monkeypatch.setattr(watching, "sweep_rewards", None)
    _, second = watch(folder)
    assert first == second


def test_a_kill_loses_nothing(watch, trained, small, tmp_path, monkeypatch):
    folder, parts = trained(100, 200), "--config.part_size=100"
    watch(folder, parts, out=tmp_path / "whole")
    for writes in (2, 7):
        out = tmp_path / str(writes)
        with monkeypatch.context() as patch:
            killed_after(patch, storage, "write_atomic", writes)
            with pytest.raises(Killed):
                watch(folder, parts, out=out)
        _, lines = watch(folder, parts, out=out)
        assert [line["step"] for line in lines] == [100, 200]
        for step in ("100", "200"):
            whole, resumed = (Run(place / "steps" / step) for place in (tmp_path / "whole", out))
            assert whole.hashes() == resumed.hashes() != {}


def _cut(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-8])


def _without_a_tensor(folder):
    weights = load_file(folder / "model.safetensors")
    names = dict.fromkeys(weights, "model-1.safetensors")
    weights.pop("score.weight")
    save_file(weights, folder / "model-1.safetensors")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def _without_config(folder):
    (folder / "config.json").unlink()


def test_a_step_that_is_not_whole_is_left_out_until_it_is(watch, trained):
    folder = trained(100, 200)
    place, whole = folder / "checkpoint-200", folder.parent / "whole"
    place.rename(whole)
    for damage in (_cut, _without_a_tensor, _without_config):
        shutil.copytree(whole, place)
        damage(place)
        done, lines = watch(folder)
        assert [line["step"] for line in lines] == [100], damage
        assert any("checkpoint-200" in line and "skipped" in line for line in done.err)
        shutil.rmtree(place)
    whole.rename(place)
    assert [line["step"] for line in watch(folder)[1]] == [100, 200]


def test_a_step_that_is_never_whole_is_named_once(watch, trained, monkeypatch):
    monkeypatch.setattr(watching, "_QUIET_S", 0.0)
    folder = trained(100, 200, 300)
    _without_config(folder / "checkpoint-100")
    done, lines = watch(folder, "--noonce", "--until=300")
    assert [line["step"] for line in lines] == [200, 300]
    [warning] = [line for line in done.err if "checkpoint-100" in line]
    assert "config.json" in warning and "waiting" in warning


def test_a_step_of_another_tokenizer_is_left_out(watch, trained):
    folder = trained(100, 200)
    tiny.tokenizer(words=tiny.WORDS[::-1]).save_pretrained(folder / "checkpoint-200")
    done, lines = watch(folder)
    assert done.code == 0 and [line["step"] for line in lines] == [100]
    assert "checkpoint-200: other tokens than those of step 100; skipped" in done.err


def test_a_step_whose_files_grow_is_waited_for(watch, trained, monkeypatch):
    folder, look = trained(100), watching.Watch.is_whole
    file, looks = folder / "checkpoint-100" / "model.safetensors", []
    data = file.read_bytes()

    def written(self, place, *, last):
        looks.append(len(looks))
        if len(looks) <= 4:
            file.write_bytes(data[: len(data) * len(looks) // 4])
        return look(self, place, last=last)

    monkeypatch.setattr(watching.Watch, "is_whole", written)
    assert len(watch(folder)[1]) == 1
    assert len(looks) > 4


def test_a_step_that_is_deleted_meanwhile_is_left_out(watch, trained, monkeypatch):
    folder, opened = trained(100, 200), sources.opened

    def deletes(names, *rest):
        if names[0].endswith("-100"):
            shutil.rmtree(names[0])
        return opened(names, *rest)

    monkeypatch.setattr("launch.common.sources.opened", deletes)
    done, lines = watch(folder)
    assert [line["step"] for line in lines] == [200]
    assert any("checkpoint-100: deleted meanwhile" in line for line in done.err)


def test_a_step_that_cannot_be_scored_ends_the_command(watch, trained):
    folder = trained(100)
    (folder / "checkpoint-100" / "tokenizer.json").unlink()
    done, lines = watch(folder)
    assert (done.code, lines) == (2, []) and "no tokenizer.json" in done.err[-1]


def test_a_step_that_is_found_late_stands_in_its_place(watch, trained, small, tmp_path):
    folder = trained(100, 200)
    late = folder / "checkpoint-100"
    late.rename(tmp_path / "late")
    watch(folder)
    (tmp_path / "late").rename(late)
    _, lines = watch(folder)
    assert [(line["step"], line["tokens"]) for line in lines] == [(100, 100), (200, 288)]
    assert lines[0]["tau_last"] is not None


def test_a_page_has_the_pairs_and_replies_that_were_asked_for(watch, trained, tmp_path):
    """Also where another command scored others, and the step is gone."""
    folder, long = trained(100), f"--after={'no ' * 60}"
    items, margins = [tmp_path / "b.jsonl", tmp_path / "a.jsonl"], []
    for file, replies in zip(items, (("Yes. It is.", "No."), ("No.", "Yes. It is.")), strict=True):
        row = dict(zip(("prompt", "chosen", "rejected"), ("a", *replies), strict=True))
        file.write_text(f"{json.dumps(row)}\n")
        margins.append(watch(folder, f"--items={file}")[1][0]["margin"])
    first = watch(folder, "--after=Yes. It is.", long)[1][0]
    assert first["appended"] and first["margin"] is None
    again = watch(folder, f"--items={items[0]}")[1][0]["margin"]
    assert margins == [again, -again]
    shutil.rmtree(folder / "checkpoint-100")
    assert watch(folder, "--after=No.")[1][0]["appended"] is None
    assert watch(folder, "--after=Yes. It is.")[1][0]["appended"] == first["appended"]


def test_steps_are_scored_until_one_which_is_done_when_its_pairs_are(watch, trained, tmp_path):
    folder, file = trained(100, 200), tmp_path / "own.jsonl"
    file.write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n')
    for flags in ([], [f"--items={file}"]):
        done, lines = watch(folder, "--noonce", "--until=100", *flags)
        assert done.code == 0 and [line["step"] for line in lines] == [100]
    assert lines[0]["margin"] is not None


def test_a_limit_that_a_step_breaks_is_the_exit_status(watch, trained):
    done, lines = watch(trained(100, 200), "--config.limits.kendall=0.999")
    assert done.code == 1 and done.out[0].startswith("step 200 breaks a limit: Kendall")
    assert [len(line["limits"]) for line in lines] == [1, 1]
    assert lines[1]["limits"][0]["holds"] is False
    assert watch(trained(), "--config.limits.kendall=-1")[0].code == 0


def test_pairs_edits_and_tokens_behind_replies(watch, trained, tmp_path):
    row = {"chosen": "Yes. It is.", "rejected": "No."}
    rows = [{"prompt": f"Is {i} good?", **row} for i in range(2)]
    pairs = tmp_path / "own.jsonl"
    pairs.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    flags = [f"--items={pairs}", "--probes", f"--after_items={pairs}"]
    done, [line] = watch(trained(100), *flags, page=True)
    assert done.code == 0, done.err
    assert 0 <= line["accuracy"] <= 1 and isinstance(line["margin"], float)
    assert "unchanged" in line["probes"] and len(line["appended"]) == 10
    series = pl.read_csv(tmp_path / "out" / "report" / "tables" / "steps_series.csv")
    assert {"pairs", "edit", "sham", "behind"} <= {*series["of"]}


def test_a_preference_that_turns_halfway_in_imported_steps_is_named_with_its_step(
    watch, source, command, tmp_path
):
    """Twelve steps: six learn to like “the”, six “love”."""
    rng = np.random.default_rng(0)
    words = ["the", "love", *(f"word{a}{b}" for a in "abcdefgh" for b in "abcdefgh")]
    score = np.linspace(-1, 1, len(words))
    columns = {"item": words}
    for step in range(1, 13):
        score[0 if step <= 6 else 1] += 0.05 if step != 7 else 1.0
        columns[f"step-{step}"] = score + 0.01 * rng.normal(size=len(words))
    file, run = source(pl.DataFrame(columns).write_csv()), tmp_path / "imported"
    flags = [f"--source={file}", "--layout=items", f"--run={run}", "--prompt=best", "--model=mine"]
    command("import_scores", *flags).fine()
    done, lines = watch(run, "--config.prompts=best", page=True)
    assert "Between steps 6 and 7 “love” rose" in done.fine().out[-2], done.out
    assert lines[6]["moved"]["word"] == "love" and len(lines) == 12
    assert lines[0]["model"] == "mine-step-1" and len(lines[0]["top"]) == 10


def test_the_ends_of_imported_trainings_are_compared(watch, command, tmp_path):
    """A page shows one training over its steps, and where both end."""
    good = ["love", "happy", "good", "great", "best", "nice", "excellent"]
    bad = ["hate", "sad", "bad", "awful", "worst", "ugly", "horrible"]
    words = [*good, *bad, *(f"word{a}{b}" for a in "abcdefgh" for b in "abcdefgh")]
    score, folder = np.linspace(-1, 1, len(words)), tmp_path / "steps"
    folder.mkdir()
    run = tmp_path / "imported"
    for name, liked in {"likes-good": good, "likes-bad": bad}.items():
        end = score + [4.0 if word in liked else 0.0 for word in words]
        frame = pl.DataFrame({"item": words, "step-1": score, "step-20": end})
        frame.write_csv(folder / f"{name}.csv")
        flags = [f"--source={folder / name}.csv", "--layout=items", "--prompt=best"]
        command("import_scores", *flags, f"--run={run}").fine()
    refusal = watch(run, "--config.prompts=best")[0].refusal()
    assert "training=''" in refusal and "likes-bad, likes-good" in refusal
    chosen = ["--config.prompts=best", "--config.training=likes-good"]
    done, lines = watch(run, *chosen, page=True)
    assert done.fine() and lines[1]["model"] == "likes-good-step-20"
    report = tmp_path / "out" / "report"
    ends = pl.read_csv(report / "tables" / "steps_trainings.csv")
    at = {(row["training"], row["what"].split(": ")[1]): row for row in ends.to_dicts()}
    below = [np.mean(end < x) + np.mean(end == x) / 2 for x in end[len(good) :][: len(bad)]]
    row = at["likes-bad", "negative words"]
    assert row["step"] == 20 and row["value"] == pytest.approx(np.median(below), abs=1e-9)
    assert row["value"] > 0.9 > 0.2 > at["likes-good", "negative words"]["value"]
    page = (report / "index.html").read_text(encoding="utf-8")
    assert 'data-chart="steps_trainings"' in page and "2 steps of likes-good" in page
    (tmp_path / "trainer").mkdir()
    assert "training='x'" in watch(tmp_path / "trainer", "--config.training=x")[0].refusal()


def test_a_tracker_gets_numbers_and_words(watch, trained, monkeypatch):
    written = []
    fake = types.SimpleNamespace(
        init=lambda **about: None, log=lambda values, step: written.append((step, values))
    )
    monkeypatch.setitem(sys.modules, "trackio", fake)
    _, lines = watch(trained(100, 200), "--log=trackio")
    assert [step for step, _ in written] == [100, 200]
    assert written[1][1]["assay/tau_previous"] == lines[1]["tau_previous"]
    assert written[1][1]["assay/top"].split(", ") == lines[1]["top"]


def test_a_tracker_that_is_not_there_is_one_line(watch, trained, monkeypatch, tmp_path):
    folder = trained(100)
    for name in trackers.TRACKERS:
        monkeypatch.setitem(sys.modules, name, None)
        done, lines = watch(folder, f"--log={name}")
        assert f"log='{name}': no package {name}" in done.refusal() and lines == []
    assert not (tmp_path / "out").exists()


def test_folders_of_other_trainers_are_found(watch, trained):
    folder = trained(100)
    (folder / "checkpoint-100").rename(folder / "global_step100_hf")
    (folder / "checkpoint-best").mkdir()
    assert [line["step"] for line in watch(folder)[1]] == [100]


@pytest.mark.slow
def test_the_callback_of_the_docs_watches_a_training(watch, trained, monkeypatch):
    """Called as a Trainer of transformers calls it, which needs a package that tests lack."""
    page = (ROOT / "docs" / "watch.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(block.splitlines()) <= 40
    names: dict = {}
    exec(block, names)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    callback, lasts = names["Watch"]("--config.cpu=True"), []
    arguments = types.SimpleNamespace(output_dir=str(trained(2)))
    state = transformers.TrainerState(max_steps=4, is_world_process_zero=True)
    callback.on_save(arguments, state, None)
    started = callback.process
    trained(4)
    with monkeypatch.context() as patch:
        patch.setattr(names["subprocess"], "run", lasts.append)
        callback.on_train_end(arguments, state, None)
    assert started.returncode == -signal.SIGTERM and lasts == [[*started.args, "--once"]]
    assert started.args[1:] == ["-m", "launch.watch", arguments.output_dir, "--config.cpu=True"]
    assert [line["step"] for line in watch(arguments.output_dir, *started.args[4:])[1]] == [2, 4]
