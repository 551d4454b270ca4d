"""`assay conventions`: each reading is computed once, is resumable, and stands on the page."""

import dataclasses
import json
import shutil

import polars as pl
import pytest
from safetensors.numpy import load_file, save_file

import analysis
from engine.mesh import build_mesh
from engine.runs.convention_index import read_index
from engine.runs.storage import path_of
from launch import conventions
from launch.common import convention_runs
from launch.common.convention_runs import ConventionRuns
from tests.support import folders, tiny
from tests.support.killed import Killed, killed_after
from tests.support.sweeps import SETTINGS, Run

# A BOS, a line end behind it, and a date.
TEMPLATE = "{{ bos_token }}\n\nToday: {{ date_string | default('1 May') }}" + tiny.CHATML
DATED = {"template": TEMPLATE, "head": "urm", "pad_token_id": 5}
READINGS = {
    "bos-none",
    "date-26-jul-2024",
    "date-empty",
    "newlines-trim",
    "mode-text",
    "pooling-first_pad",
    "head-urm-helpfulness",
    "dtype-bfloat16",
    "dtype-float16",
}
FEW = ["--config.tokens=40", "--config.prompts=best", "--config.self_check=2"]
DRAWS = [f"--config.options.{key}=99" for key in ("permutations", "bootstraps")]
CHEAP = [*FEW, "--config.dimensions=bos,newlines"]


@pytest.fixture
def dated(checkpoint):
    return checkpoint("dated", **DATED)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


def rewards(run, reading, slug="dated"):
    return Run(run / "readings" / reading).frame(f"scores/model={slug}/prompt=best")


def times(run):
    return {p: p.stat().st_mtime_ns for p in run.glob("readings/*/scores/**/*.parquet")}


@pytest.mark.slow
def test_every_dimension_that_the_model_allows_is_a_reading(
    command, dated, folder, tmp_path, light
):
    done = command("conventions", f"--checkpoint={dated.path}", f"--run={folder}", *FEW).fine()
    assert done.out[-1].endswith("12 readings of 1 model × 1 prompt, 480 new rewards")
    own = read_index(path_of(folder))["dated"]
    computed = {name for name, entry in own.items() if not entry.same_as}
    assert computed == {"default", "noise-mesh-2x2", "noise-step-16", *READINGS}
    assert {name: e.same_as for name, e in own.items() if e.same_as} == {
        "bos-single": "default",
        "bos-double": "default",
    }
    noise = [name for name, entry in own.items() if entry.noise]
    default = rewards(folder, "default")
    for name in computed - {"default", "pooling-first_pad", *noise}:
        assert not default.equals(rewards(folder, name)), name
    # The whole is read as a run, and the page compares the readings.
    assert analysis.load(folder).rewards("dated", "best")[0].shape == (40,)
    report = tmp_path / "report"
    done = command("analyze", f"--run={folder}", f"--report={report}", *DRAWS).fine()
    table = pl.read_csv(report / "tables/conventions_summary.csv")
    assert set(table["reading"]) == {*READINGS, *noise}
    assert table.filter("noise")["kendall_low"].min() > 0.99
    page = (report / "index.html").read_text()
    for reading in ("bos single", "bos double"):
        assert f"{reading} gives the token ids of default, and is not computed again" in page


def counted(monkeypatch, name) -> list:
    """What each call of a function that `convention_runs` uses has returned."""
    original, results = getattr(convention_runs, name), []

    def call(*args, **kwargs):
        results.append(original(*args, **kwargs))
        return results[-1]

    monkeypatch.setattr(convention_runs, name, call)
    return results


@pytest.fixture(scope="module")
def cheap(checkpoint, tmp_path_factory):
    """A run of few conventions, its flags without --run, and how often weights were restored."""
    run, model = tmp_path_factory.mktemp("cheap") / "run", checkpoint("dated", **DATED)
    with pytest.MonkeyPatch.context() as patch:
        calls = counted(patch, "restore")
        assert conventions.main([f"--checkpoint={model.path}", f"--run={run}", *CHEAP]) == 0
    return run, [f"--checkpoint={model.path}", *CHEAP], len(calls)


def test_weights_are_restored_once_for_readings_of_text(command, cheap):
    run, arguments, restored = cheap
    assert restored == 2  # one more for the mesh of the noise floor
    before = times(run)
    assert command("conventions", f"--run={run}", *arguments).out[-1].endswith("complete already")
    assert times(run) == before


def test_a_reading_of_another_meaning_is_refused(command, cheap):
    run, arguments, _ = cheap
    done = command("conventions", f"--run={run}", *arguments, "--config.mode=text")
    assert done.code == 2
    assert "the reading 'default' of 'dated' was begun with mode='ids', not 'text'" in done.err[-1]


def test_a_damaged_index_is_named(command, cheap, folder, tmp_path):
    shutil.copytree(cheap[0], folder)
    (folder / "readings/index.json").write_text(json.dumps({"version": 7}))
    done = command("analyze", f"--run={folder}", f"--report={tmp_path / 'report'}")
    assert done.code == 2 and "index.json: version=7; allowed: 1" in done.err[-1]


def test_the_noise_floor_never_takes_the_same_step_again(checkpoint):
    model = checkpoint()
    settings = dataclasses.replace(SETTINGS, tokens=40)
    runs = ConventionRuns(model, None, {}, [], settings, build_mesh())
    steps = {n: runs.noise_floor(None, n)[0].step for n in (1, 2, 3, 16, 1024)}
    assert steps == {1: 2, 2: 1, 3: 1, 16: 4, 1024: 16}


def test_a_killed_command_goes_on(command, cheap, folder, monkeypatch):
    whole, arguments, _ = cheap
    with monkeypatch.context() as patched:
        killed_after(patched, convention_runs, "sweep_rewards", 2)
        with pytest.raises(Killed):
            command("conventions", f"--run={folder}", *arguments)
    before = times(folder)
    assert len(before) == 2  # the default reading and the next
    assert command("conventions", f"--run={folder}", *arguments).code == 0
    after = times(folder)
    assert before.items() <= after.items() and len(after) == 5
    assert folders.files_of(folder, "*.parquet") == folders.files_of(whole, "*.parquet")
    assert len(analysis.load(folder).results) == 1


def test_a_sweep_of_the_run_is_the_default_reading(command, dated, folder, monkeypatch):
    """So is what it has of a prompt that is added later."""
    common = [f"--checkpoint={dated.path}", f"--run={folder}", "--config.self_check=2"]
    assert command("sweep", *common, "--config.prompts=best,worst").code == 0
    calls = counted(monkeypatch, "sweep_rewards")
    for prompts in ("best", "best,worst"):
        calls.clear()
        few = ["--config.dimensions=bos", "--config.lists=", f"--config.prompts={prompts}"]
        command("conventions", *common, *few).fine()
        assert calls[0] == 0 and calls[1] > 0
        part = f"scores/model=dated/prompt={prompts[-5:].strip(',')}/part-0000000-0000288.parquet"
        assert (folder / part).read_bytes() == (folder / "readings/default" / part).read_bytes()
    verified = command("verify", f"--run={folder}").fine()
    names = [line.partition(":")[0].removeprefix(f"{folder}") for line in verified.out]
    assert names[:3] == ["", "/readings/bos-none", "/readings/default"]
    next((folder / "readings/bos-none/scores").rglob("*.parquet")).unlink()
    assert command("verify", f"--run={folder}").code == 1


def test_imported_rewards_of_a_run_are_no_reading(command, dated, folder, source):
    """They were made nobody knows how; items that people ranked are scored under every reading."""
    ids, texts = dated.tokens.keys(), dated.tokens.values()
    columns = {"token_id": ids, "token_name": "", "token_decoded": texts, "best": 1.5}
    pl.DataFrame(columns).write_csv(vocabulary := folder.parent / "dated.csv")
    elo = source(
        "elo_rank,elo_score,name,elo_matches,dated\n1,9,love,7,0.5\n2,8,war,7,1\n", "e.csv"
    )
    for layout, file in (("tokens", vocabulary), ("elo", elo)):
        flags = [f"--source={file}", f"--layout={layout}", f"--run={folder}"]
        flags += ["--prompt=best"] if layout == "elo" else []
        assert command("import_scores", *flags).code == 0
    common = [f"--checkpoint={dated.path}", f"--run={folder}", "--config.self_check=2"]
    few = ["--config.dimensions=bos", "--config.prompts=best"]
    command("conventions", *common, *few).fine()
    own = analysis.load(folder / "readings/default")
    assert own.rewards("dated", "best")[1].std() > 0
    assert own.items["e", "dated", "best"].fingerprint["mode"] == "ids"


@pytest.fixture
def large(tmp_path):
    """A model whose hidden states overflow in float16, and in float32 do not."""
    source = tiny.write_model(tmp_path / "hf", template=TEMPLATE)
    tensors = load_file(source / "model.safetensors")
    tensors["model.layers.1.mlp.down_proj.weight"] *= 1e6
    save_file(tensors, source / "model.safetensors")
    return folders.convert(source, tmp_path / "large", "large")


@pytest.mark.slow
def test_a_reading_that_overflows_does_not_stop_the_others(command, large, folder, tmp_path, light):
    arguments = [f"--checkpoint={large.path}", f"--run={folder}", *FEW]
    released = tmp_path / "released.csv"
    released.write_text("item,reward\nlove,0.5\nwar,-0.5\n")
    done = command(
        *("conventions", *arguments, "--config.dimensions=dtype"),
        *("--config.dtypes=float16,bfloat16", f"--published={released}", "--layout=items"),
        "--published_prompt=greatest",
    )
    assert done.code == 1
    assert any("reproduced by none of" in line for line in done.out)  # compared all the same
    assert "large: readings that could not be computed: dtype-float16 (model" in done.err[-1]
    own = read_index(path_of(folder))["large"]
    assert [name for name, entry in own.items() if entry.failure] == ["dtype-float16"]
    assert len(rewards(folder, "dtype-bfloat16", "large")) == 40
    report = tmp_path / "report"
    assert command("analyze", f"--run={folder}", f"--report={report}", *DRAWS).code == 0
    assert "dtype float16 could not be compared" in (report / "index.html").read_text()
