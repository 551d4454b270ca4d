"""What launch/cluster/ would run, where, with which environment; the shell scripts really run."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

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
def parse(monkeypatch, parsed):
    """Words of a command -> its parsed flags."""
    monkeypatch.setattr("launch.common.command.joining.join", lambda *_: None)
    return lambda words: parsed(*words)


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


def test_scripts_pass_shellcheck():
    shellcheck = Path(sys.executable).with_name("shellcheck")
    scripts = [*CLUSTER.glob("*.sh"), *CLUSTER.glob("*.sbatch")]
    done = subprocess.run([shellcheck, *scripts], capture_output=True, text=True)
    assert (len(scripts), done.returncode, done.stdout) == (2, 0, "")


def test_slurm_starts_one_step_and_ends_it_when_a_process_is_gone(parse):
    [words] = dry("slurm.sbatch", *FLAGS, SLURM_NNODES="2", SLURM_NTASKS_PER_NODE="8")
    assert words == ["srun", "--kill-on-bad-exit=1", "assay", *FLAGS, "--wait", "--multihost"]
    given = parse(words[3:])
    assert given.multihost and given.wait and given.prompt == ["What's up?"]
    one_gpu = {"SLURM_NNODES": "1", "SLURM_NTASKS_PER_NODE": "1"}
    [words] = dry("slurm.sbatch", *FLAGS, CONTAINER="assay.sqsh", MOUNTS="/a:/b", **one_gpu)
    options = ["--container-image=assay.sqsh", "--container-mounts=/a:/b"]
    assert words == ["srun", "--kill-on-bad-exit=1", *options, "assay", *FLAGS, "--wait"]


def test_an_array_is_shards_and_refused_for_commands_without_them():
    array = {"DRY_RUN": "1", "SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "8"}
    swept = bash(CLUSTER / "slurm.sbatch", "sweep", **array)
    assert shlex.split(swept.stdout)[-1] == "--shard=3/8"
    assert "--shard=3/9" in bash(CLUSTER / "slurm.sbatch", "sweep", **array, SHARDS="9").stdout
    done = bash(CLUSTER / "slurm.sbatch", "search", **array)
    message = "slurm.sbatch: --array with search; allowed: sweep, score, logprobs\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


@pytest.mark.parametrize(
    ("status", "restarts", "queued"), [(2, 0, False), (3, 0, True), (143, 10, False)]
)
def test_slurm_queues_again_what_was_stopped(tmp_path, status, restarts, queued):
    recorder(tmp_path, "scontrol")
    path = recorder(tmp_path, "srun", f"exit {status}")
    place = {"SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": str(restarts)}
    done = bash(CLUSTER / "slurm.sbatch", *FLAGS, path=path, **place)
    assert done.returncode == status
    assert calls(tmp_path)[1:] == ([["scontrol", "requeue", "77"]] if queued else [])


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
    assert "'assay-rewards[tpu,stores] @ git+https://host/a'" in install[8]
    program, *arguments = shlex.split(start[8].removeprefix("--command="))
    assert program == "$HOME/assay/bin/assay"
    assert arguments == [*FLAGS, "--multihost", "--wait"]
    assert parse(arguments).wait


# 137: the slice is preempted meanwhile, and has to be deleted before it is queued for again.
@pytest.mark.parametrize(
    ("create", "statuses", "status", "verbs"),
    [
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
