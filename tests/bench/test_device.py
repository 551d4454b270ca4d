"""`bench.device` runs on a CPU from its first to its last section, so that it starts elsewhere.

What a run on an accelerator does differently is its shapes. vLLM, which CI cannot install, is a
stand-in that checks how it is called (tests/support/vllm_stand_in.py).
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from bench.device import plan, runner
from bench.device.worker import SECTIONS
from tests.support.tolerances import TOLERANCES

pytestmark = pytest.mark.slow  # processes that compile

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "bench/device/setup.sh"
MODEL = "llama-3.1-8b"
SEARCHES = ("step", "gradient")


def bench(*arguments: str, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.device", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def with_vllm(site: Path) -> Path:
    """A folder for the path of modules, where `vllm` is a stand-in."""
    (site / "vllm-0.0.dist-info").mkdir(parents=True)
    metadata = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.0\n"
    (site / "vllm-0.0.dist-info/METADATA").write_text(metadata)
    shutil.copy(ROOT / "tests/support/vllm_stand_in.py", site / "vllm.py")
    return site


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Every section of one model: what was printed, and the file of results."""
    folder = tmp_path_factory.mktemp("device")
    file = folder / "new folder" / "device.json"
    environment = {**os.environ, "PYTHONPATH": f"{with_vllm(folder / 'site')}:{ROOT}"}
    process = bench(f"--models={MODEL}", f"--json={file}", "--minutes=20", env=environment)
    printed, errors = process.communicate(timeout=900)
    assert process.returncode == 0, errors
    return printed, json.loads(file.read_text())


@pytest.fixture(scope="module")
def found(run):
    """Section -> its result."""
    return {e["section"]: e["result"] for e in run[1]["sections"] if e["status"] == "done"}


def test_every_section_runs_and_is_in_the_file(run):
    printed, results = run
    status = {entry["section"]: entry["status"] for entry in results["sections"]}
    assert status == dict.fromkeys(SECTIONS, "done")
    assert "vLLM 0.0: 32 tokens" in printed and "vLLM with its prefix cache" in printed
    assert results["toy"] and "TOY SHAPES (no accelerator here)" in printed
    assert results["device"]["platform"] == "cpu" and results["device"]["versions"]["jax"]
    assert results["seconds"] < 20 * 60
    assert [name for name in status if f"== {MODEL}: {name} (" not in printed] == []


def test_no_rate_exceeds_its_ceiling_and_no_time_is_below_its_floor(found):
    sweep, ceiling = found["sweep"], found["ceiling"]
    assert set(sweep["by_step_size"]) == set(ceiling["flops_per_s"]) == {"16", "64"}
    for size, rates in sweep["by_step_size"].items():
        share = rates["flops_per_s"] / ceiling["flops_per_s"][size]
        assert rates["share_of_ceiling"] == pytest.approx(share)
        assert 0 < share < 1.5  # rounds on a busy CPU
    pairs = [(found[name]["seconds"], found[name]["floor_s"]) for name in ("vocabulary", "prefill")]
    pairs += [(found["search"][f"{n}_s"], found["search"][f"{n}_floor_s"]) for n in SEARCHES]
    pairs += [(each["seconds"], each["floor_s"]) for each in found["replies"].values()]
    assert all(0 < floor < 1.5 * seconds for seconds, floor in pairs)


def test_the_numbers_are_of_what_they_say(found):
    assert found["vocabulary"]["whole"] and found["vocabulary"]["tokens"] == 512
    assert found["search"]["step_flops"] > found["search"]["gradient_flops"] > 0
    assert found["memory"]["peak_bytes"] is None  # a CPU reports none
    assert found["memory"]["weight_bytes"] > found["memory"]["prefix_bytes"] > 0
    kernels = found["kernels"]["kernels"]
    assert len(kernels) == 10
    assert kernels == sorted(kernels, key=lambda kernel: -kernel["ms_per_step"])
    assert 0 < sum(kernel["share"] for kernel in kernels) <= 1
    cold, warm = found["start"]["empty cache"], found["start"]["full cache"]
    for stages in (cold, warm):
        assert list(stages.values()) == sorted(stages.values())
    assert all(rate > 0 for name, rate in found["transformers"].items() if name != "versions")
    errors = found["agreement"]["relative_error"]
    assert set(errors) == {MODEL, "gemma-2-27b", "qwen3-8b"}
    assert all(set(of_model) == {"float32", "bfloat16"} for of_model in errors.values())
    pairs = (pair for of_model in errors.values() for pair in of_model.items())
    assert all(error <= TOLERANCES[dtype] for dtype, error in pairs)


def test_a_section_that_fails_is_reported_and_the_others_go_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(runner, "GRACE_S", 0.5)
    sections = ("memory", "ceiling", "sweep", "vocabulary")
    jobs = [
        runner.Job(model=MODEL, sections=("search", "prefill"), limit_s=4),
        runner.Job(model=MODEL, sections=sections, limit_s=100),
    ]
    results = runner.Results(tmp_path / "device.json", {"toy": True})
    runner.run_jobs(
        jobs,
        results,
        time.time() + 120,
        toy=True,
        step_sizes=[16],
        module="tests.support.faulty_worker",
    )
    entries = json.loads((tmp_path / "device.json").read_text())["sections"]
    assert [(e["section"], e["status"], e.get("reason")) for e in entries] == [
        ("search", "failed", "stopped: it was not done when the time was up"),
        ("prefill", "skipped", "no time left"),
        ("memory", "failed", "ValueError: planted"),
        ("ceiling", "failed", "its process ended with status -9: no message"),
        ("sweep", "done", None),
        ("vocabulary", "skipped", "does not fit"),
    ]
    assert results.failed == [f"{MODEL}: {name}" for name in ("search", "memory", "ceiling")]
    printed = capsys.readouterr().out
    assert "failed: ValueError: planted\n" in printed and "second line" not in printed
    assert [path.name for path in tmp_path.iterdir()] == ["device.json"]


def test_a_worker_that_does_not_start_fails_all_of_its_sections_at_once(tmp_path):
    results = runner.Results(None, {})
    job = runner.Job(model="no such model", sections=("memory", "sweep"), limit_s=60)
    runner.run_jobs([job], results, time.time() + 60, toy=True, step_sizes=[16])
    reasons = [entry["reason"] for entry in results.sections]
    assert reasons == ["its process ended with status 1: KeyError: 'no such model'"] * 2


def children(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def wait_for(condition) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_run_that_is_killed_leaves_what_it_knew_and_no_process(tmp_path):
    file = tmp_path / "device.json"
    process = bench(f"--json={file}", "--sections=memory,search", f"--models={MODEL}")
    wait_for(lambda: file.exists() and json.loads(file.read_text())["sections"])
    [worker] = children(process.pid)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    entries = json.loads(file.read_text())["sections"]
    assert [(e["section"], e["status"]) for e in entries] == [("memory", "done")]
    wait_for(lambda: not Path(f"/proc/{worker}").exists())
    assert [path.name for path in tmp_path.iterdir()] == ["device.json"]


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--models=llama-4", f"allowed: {', '.join(plan.MODELS)}"),
        ("--models=", "--models=''; allowed: "),
        ("--sections=swep", "allowed: memory, ceiling, sweep"),
        ("--step_sizes=0", "--step_sizes='0'; allowed: integers >= 1"),
        ("--step_sizes=1k", "--step_sizes='1k'; allowed: integers >= 1"),
        ("--minutes=0", "minutes"),
        ("--json=/dev/null/device.json", "/dev/null"),
    ],
)
def test_a_bad_flag_is_one_line_and_measures_nothing(flag, message, tmp_path):
    process = bench(flag, env={**os.environ, "PYTHONPATH": str(ROOT)})
    printed, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert message in printed + errors
    assert "Traceback" not in printed + errors and "==" not in printed


def wheel(folder: Path) -> None:
    """A wheel with one module, made by hand."""
    folder.mkdir()
    info = "lies_beside-1.0.dist-info"
    files = {
        "lies_beside.py": "",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: lies-beside\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / "lies_beside-1.0-py3-none-any.whl", "w") as archive:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, text)


def script(*arguments, **environment) -> subprocess.CompletedProcess:
    return subprocess.run(
        [SCRIPT, *arguments],
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_machine_without_a_network_is_set_up_from_wheels_that_lie_beside(tmp_path):
    wheel(tmp_path / "wheels")
    site = tmp_path / "site"
    done = script("run", tmp_path / "wheels", "--models=none", SITE=str(site))
    assert "--models='none'; allowed: llama-3.1-8b" in done.stdout + done.stderr  # it started
    assert (site / "lies_beside.py").exists()
    assert script("run", tmp_path).stderr == f"setup.sh: no wheels in {tmp_path}\n"
    for arguments in ([], ["run"], ["install", "wheels"]):
        assert (done := script(*arguments)).returncode == 2 and done.stderr.startswith("usage: ")


def test_the_script_passes_shellcheck():
    shellcheck = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, SCRIPT], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
