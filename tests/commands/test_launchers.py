"""What launch/cluster/ would run, where, with which environment; the shell scripts really run."""

import importlib
import re
import shlex
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "launch/cluster"
FLAGS = ["sweep", "--checkpoint=/shared/a,/shared/b", "--run=/shared/run", "--prompt=What's up?"]


def bash(script, *arguments, path="/usr/bin:/bin", **environment):
    environment = {"PATH": path, "HOME": "/nonexistent", **environment}
    command = ["bash", script, *arguments]
    return subprocess.run(command, env=environment, text=True, capture_output=True, timeout=120)


def dry(name, *arguments, **environment):
    """The commands that a script prints, as words."""
    done = bash(CLUSTER / name, *arguments, DRY_RUN="1", **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return [shlex.split(line) for line in done.stdout.splitlines()]


@pytest.fixture
def parse(monkeypatch, capsys):
    """Words of a command -> its parsed flags: an unknown flag or a wrong value fails."""

    def parsed(words):
        name, *arguments = words
        module = importlib.import_module(f"launch.{name}")
        kept = {}
        monkeypatch.setattr("launch.common.command.joining.join", lambda *_: None)
        monkeypatch.setattr(module, name, lambda given: kept.setdefault("given", given) and "")
        assert module.main(arguments) == 0, capsys.readouterr().err
        return kept["given"]

    return parsed


def recorder(folder, name, body=""):
    """Puts a program on the path that records its arguments, and then runs `body`."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    record = f'printf "%s\\n" "{name} ${{*@Q}}" >> {shlex.quote(str(folder / "calls"))}\n'
    program.write_text("#!/usr/bin/env bash\n" + record + body)
    program.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


def calls(folder):
    return [shlex.split(line) for line in (folder / "calls").read_text().splitlines()]


def test_each_is_at_most_a_page_and_explained_and_scripts_pass_shellcheck():
    explained = (ROOT / "docs/accelerators.md").read_text()
    for path in CLUSTER.iterdir():
        assert len(path.read_text().splitlines()) <= 75
        assert path.name in explained
    shellcheck = Path(sys.executable).with_name("shellcheck")
    scripts = [*CLUSTER.glob("*.sh"), *CLUSTER.glob("*.sbatch")]
    done = subprocess.run([shellcheck, *scripts], capture_output=True, text=True)
    assert (len(scripts), done.returncode, done.stdout) == (3, 0, "")


SRUN = ["srun", "--kill-on-bad-exit=1"]


def test_slurm_gives_every_process_a_gpu_that_all_see_and_signals_them_in_time():
    lines = (CLUSTER / "slurm.sbatch").read_text().splitlines()
    given = dict(line[10:].partition("=")[::2] for line in lines if line.startswith("#SBATCH --"))
    assert given["ntasks-per-node"] == given["gpus-per-node"]
    assert not {"gpus-per-task", "gpu-bind"} & set(given)
    assert given["signal"] == "USR1@90" and "requeue" in given  # B: would signal the script alone


def test_slurm_starts_one_step_and_ends_it_when_a_process_is_gone(parse):
    [words] = dry("slurm.sbatch", *FLAGS, SLURM_NNODES="2", SLURM_NTASKS_PER_NODE="8")
    assert words == [*SRUN, "assay", *FLAGS, "--wait", "--multihost"]
    given = parse(words[3:])
    assert given.multihost and given.wait and given.prompt == ["What's up?"]
    one_gpu = {"SLURM_NNODES": "1", "SLURM_NTASKS_PER_NODE": "1"}
    [words] = dry("slurm.sbatch", *FLAGS, CONTAINER="assay.sqsh", MOUNTS="/a:/b", **one_gpu)
    options = ["--container-image=assay.sqsh", "--container-mounts=/a:/b"]
    assert words == [*SRUN, *options, "assay", *FLAGS, "--wait"]


def test_an_array_is_shards_and_refused_for_commands_without_them():
    array = {"DRY_RUN": "1", "SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "8"}
    swept = bash(CLUSTER / "slurm.sbatch", "sweep", **array)
    assert shlex.split(swept.stdout)[-1] == "--shard=3/8"
    assert "--shard=3/9" in bash(CLUSTER / "slurm.sbatch", "sweep", **array, SHARDS="9").stdout
    done = bash(CLUSTER / "slurm.sbatch", "search", **array)
    message = "slurm.sbatch: --array with search; allowed: sweep, score, logprobs\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


@pytest.mark.parametrize(
    ("status", "restarts", "queued"),
    [(0, 0, False), (2, 0, False), (3, 0, True), (143, 0, True), (143, 10, False)],
)
def test_slurm_queues_again_what_was_stopped(tmp_path, status, restarts, queued):
    recorder(tmp_path, "scontrol")
    path = recorder(tmp_path, "srun", f"exit {status}")
    place = {"SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": str(restarts)}
    done = bash(CLUSTER / "slurm.sbatch", *FLAGS, path=path, **place)
    assert done.returncode == status
    assert calls(tmp_path)[1:] == ([["scontrol", "requeue", "77"]] if queued else [])


def test_a_host_runs_one_process_or_one_per_gpu_or_one_shard_per_gpu(parse):
    assert dry("one_host.sh", *FLAGS) == [["assay", *FLAGS]]
    for index, words in enumerate(dry("one_host.sh", *FLAGS, PROCESSES="2", PORT="7100")):
        assert words[:3] == ["env", f"CUDA_VISIBLE_DEVICES={index}", "assay"]
        given = parse(words[3:])
        assert given.coordinator == "127.0.0.1:7100"
        assert (given.processes, given.process) == (2, index)
    lines = dry("one_host.sh", *FLAGS, SHARDS="2")
    assert [words[1] for words in lines] == [f"CUDA_VISIBLE_DEVICES={i}" for i in range(2)]
    assert [parse(words[3:]).shard for words in lines] == ["1/2", "2/2"]


@pytest.mark.parametrize(
    ("kind", "statuses", "worst"),
    [
        ("SHARDS", "0 1 0", 1),
        ("PROCESSES", "0 0 0", 0),
        ("PROCESSES", "3 3 143", 143),
        ("PROCESSES", "3 137 3", 137),
        ("PROCESSES", "3 3 3", 3),
    ],
)
def test_the_status_of_a_host_is_that_of_the_process_that_failed(tmp_path, kind, statuses, worst):
    each = "".join(f"{i}) exit {status};;" for i, status in enumerate(statuses.split()))
    path = recorder(tmp_path, "assay", f"case $CUDA_VISIBLE_DEVICES in {each} esac")
    done = bash(CLUSTER / "one_host.sh", *FLAGS, path=path, LOGS=tmp_path, **{kind: "3"})
    assert done.returncode == worst


def test_a_signal_reaches_every_process_of_a_host(tmp_path):
    waits = f"trap 'touch {tmp_path}/ended-$CUDA_VISIBLE_DEVICES; exit 143' TERM\n"
    waits += f"touch {tmp_path}/began-$CUDA_VISIBLE_DEVICES\nwhile :; do sleep 0.05; done"
    path = recorder(tmp_path, "assay", waits)
    command = ["bash", CLUSTER / "one_host.sh", *FLAGS]
    host = subprocess.Popen(command, env={"PATH": path, "SHARDS": "2"})
    while len(list(tmp_path.glob("began-*"))) < 2:
        time.sleep(0.01)
    host.terminate()
    assert host.wait(timeout=60) == 143
    assert len(list(tmp_path.glob("ended-*"))) == 2


SLICE = {"NAME": "sweep", "ZONE": "us-east5-b", "TYPE": "v6e-16", "SOURCE": "git+https://host/a"}
GCLOUD = """
cd {folder}
case "$*" in
  *describe*) if [[ -e suspended ]]; then echo SUSPENDED; elif [[ -e made ]]; then echo ACTIVE; fi;;
  *"queued-resources create"*) touch made; exit {create};;
  *"queued-resources delete"*) rm -f made suspended;;
  *bin/assay*--multihost*)
    status=$(cut -d' ' -f"$(grep -c bin/assay.*multihost calls)" <<<"{statuses}")
    if (( status == 137 )); then touch suspended; fi
    exit "$status";;
esac
"""


def test_a_slice_is_queued_for_installed_and_started_on_every_host(parse):
    create, describe, install, start, delete = dry("tpu_pod.sh", *FLAGS, **SLICE)
    assert create[2:6] == ["tpus", "queued-resources", "create", "sweep"]
    assert {"--accelerator-type=v6e-16", "--node-id=sweep", "--spot"} < set(create)
    assert describe[4:6] == ["describe", "sweep"]
    assert delete[4:] == ["delete", "sweep", "--force", "--quiet", "--zone=us-east5-b"]
    for words in (install, start):
        assert words[3:8] == ["tpu-vm", "ssh", "sweep", "--zone=us-east5-b", "--worker=all"]
    assert "'assay[tpu,gcs] @ git+https://host/a'" in install[8]
    program, *arguments = shlex.split(start[8].removeprefix("--command="))
    assert program == "$HOME/assay/bin/assay"
    assert arguments == [*FLAGS, "--multihost", "--wait"]
    assert parse(arguments).wait


# 137: the slice is preempted meanwhile, and has to be deleted before it is queued for again.
@pytest.mark.parametrize(
    ("create", "statuses", "status", "verbs"),
    [
        (0, "143 0", 0, "create ssh ssh ssh ssh delete"),
        (0, "255 2", 2, "create ssh ssh ssh ssh delete"),
        (0, "137 0", 0, "create ssh ssh delete create ssh ssh delete"),
        (7, "0", 7, "create"),
    ],
)
def test_a_slice_that_stops_is_started_again(tmp_path, create, statuses, status, verbs):
    folder = shlex.quote(str(tmp_path))
    fake = GCLOUD.format(folder=folder, create=create, statuses=statuses)
    path = recorder(tmp_path, "gcloud", fake)
    done = bash(CLUSTER / "tpu_pod.sh", *FLAGS, path=path, POLL="0", **SLICE)
    assert (done.returncode, done.stderr) == (status, "")
    assert [c[4] for c in calls(tmp_path) if c[4] != "describe"] == verbs.split()


def test_the_jobset_starts_one_process_on_every_host(parse):
    jobset = yaml.safe_load((CLUSTER / "gke_jobset.yaml").read_text())
    [hosts] = jobset["spec"]["replicatedJobs"]
    job = hosts["template"]["spec"]
    pod = job["template"]["spec"]
    [container] = pod["containers"]
    chips = container["resources"]["limits"]["google.com/tpu"]
    x, y = map(int, pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"].split("x"))
    assert job["parallelism"] == job["completions"] == x * y // chips
    [rule] = job["podFailurePolicy"]["rules"]  # which requires "Never"
    assert (pod["restartPolicy"], rule["onExitCodes"]["values"]) == ("Never", [1, 2])
    given = parse(container["args"])
    assert given.multihost
    assert x * y % given.config.mesh.model == 0


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"SKYPILOT_NODE_RANK": "1"}, ("10.0.0.4:7007", 2, 1, None)),
        ({"SKYPILOT_NUM_NODES": "1", "SHARD": "2/4"}, (None, None, None, "2/4")),
    ],
)
def test_skypilot_starts_one_process_on_every_machine_or_shards(parse, tmp_path, given, place):
    task = yaml.safe_load((CLUSTER / "skypilot.yaml").read_text())
    (tmp_path / "run.sh").write_text(task["run"])
    path = recorder(tmp_path, "assay")
    nodes = {"SKYPILOT_NODE_IPS": "10.0.0.4\n10.0.0.5", "SKYPILOT_NUM_NODES": "2"}
    environment = {**task["envs"], "ASSAY": "assay", **nodes, **given}
    assert bash(tmp_path / "run.sh", path=path, **environment).returncode == 0
    parsed = parse(calls(tmp_path)[0][1:])
    assert (parsed.coordinator, parsed.processes, parsed.process, parsed.shard) == place


@pytest.mark.parametrize("kind", ["cuda", "tpu"])
def test_a_container_copies_every_package_and_installs_known_extras(kind):
    text = (CLUSTER / f"Containerfile.{kind}").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    copied = [word for line in re.findall("COPY (.*) .*", text) for word in line.split()]
    packages = project["tool"]["setuptools"]["packages"]["find"]["include"]
    required = {name.rstrip("*") for name in packages} | {"requirements.txt", "pyproject.toml"}
    assert required | {project["project"]["readme"]} <= set(copied)
    assert all((ROOT / name).exists() for name in copied)
    assert f"'.[{kind},gcs,s3]'" in text
    assert {kind, "gcs", "s3"} <= set(project["project"]["optional-dependencies"])
