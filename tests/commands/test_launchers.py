"""What launch/cluster/ would run, where, with which environment; the shell scripts really run."""

import importlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml

from launch.__main__ import COMMANDS
from tests.support.sweeps import Run

pytestmark = pytest.mark.slow  # `make test` stays near five minutes

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "launch/cluster"
SCRIPTS = sorted([*CLUSTER.glob("*.sh"), *CLUSTER.glob("*.sbatch")])
FLAGS = ["sweep", "--checkpoint=/shared/a,/shared/b", "--run=/shared/run", "--prompt=What's up?"]


SMALL = ("--config.step_size=4", "--config.part_size=16", "--config.prompts=greatest,worst")


def bash(script, *arguments, path="/usr/bin:/bin", **environment):
    return subprocess.run(
        ["bash", script, *arguments],
        env={"PATH": str(path), "HOME": "/nonexistent", **environment},
        text=True,
        capture_output=True,
        timeout=120,
    )


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
        assert name in COMMANDS
        module = importlib.import_module(f"launch.{name}")
        kept = []
        monkeypatch.setattr("launch.common.command.joining.join", lambda *_: None)

        def body(given):
            kept.append(given)
            return ""

        monkeypatch.setattr(module, name, body)
        assert module.main(arguments) == 0, capsys.readouterr().err
        [given] = kept
        return given

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


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_pass_shellcheck(script):
    shellcheck = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("path", sorted(CLUSTER.iterdir()), ids=lambda path: path.name)
def test_each_is_at_most_a_page_and_explained(path):
    assert len(path.read_text().splitlines()) <= 75
    assert path.name in (ROOT / "docs/accelerators.md").read_text()


# SLURM


def directives():
    lines = (CLUSTER / "slurm.sbatch").read_text().splitlines()
    return dict(line[9:].partition("=")[::2] for line in lines if line.startswith("#SBATCH --"))


def test_slurm_gives_every_process_a_gpu_that_all_see():
    set_ = directives()
    assert set_["-ntasks-per-node"] == set_["-gpus-per-node"]
    assert not {"-gpus-per-task", "-gpu-bind"} & set(set_)


def test_slurm_signals_the_steps_in_time_and_may_queue_again():
    assert directives()["-signal"] == "USR1@90"  # B: would signal the script alone
    assert "-requeue" in directives()


def test_slurm_starts_one_step(parse):
    [words] = dry("slurm.sbatch", *FLAGS, SLURM_NNODES="2", SLURM_NTASKS_PER_NODE="8")
    assert words[:2] == ["srun", "assay"]
    assert words[2:] == [*FLAGS, "--wait", "--multihost"]
    given = parse(words[2:])
    assert given.multihost and given.wait and given.prompt == ["What's up?"]


def test_one_gpu_is_one_process():
    [words] = dry("slurm.sbatch", *FLAGS, SLURM_NNODES="1", SLURM_NTASKS_PER_NODE="1")
    assert words == ["srun", "assay", *FLAGS, "--wait"]


def test_an_array_is_shards(parse):
    array = {"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "8"}
    [words] = dry("slurm.sbatch", *FLAGS, **array)
    assert parse(words[2:]).shard == "3/8"
    [words] = dry("slurm.sbatch", *FLAGS, **array | {"SLURM_ARRAY_TASK_COUNT": "1"}, SHARDS="8")
    assert parse(words[2:]).shard == "3/8"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_an_array_is_refused_for_commands_without_shards(name):
    module = importlib.import_module(f"launch.{name}")
    done = bash(CLUSTER / "slurm.sbatch", name, DRY_RUN="1", SLURM_ARRAY_TASK_ID="1", SHARDS="2")
    if hasattr(module, "sharding"):
        assert (done.returncode, done.stderr) == (0, "")
        assert "--shard=1/2" in done.stdout
    else:
        message = f"slurm.sbatch: --array with {name}; allowed: sweep, score, logprobs\n"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


def test_a_container_is_an_option_of_srun():
    [words] = dry("slurm.sbatch", *FLAGS, CONTAINER="assay.sqsh", MOUNTS="/shared:/shared")
    assert words[1:4] == [
        "--container-image=assay.sqsh",
        "--container-mounts=/shared:/shared",
        "assay",
    ]


@pytest.mark.parametrize(
    ("status", "restarts", "queued"),
    [(0, 0, False), (1, 0, False), (2, 0, False), (3, 0, True), (143, 0, True), (143, 10, False)],
)
def test_slurm_queues_again_what_was_stopped(tmp_path, status, restarts, queued):
    fakes = tmp_path / "fakes"
    recorder(fakes, "scontrol")
    path = recorder(fakes, "srun", f"exit {status}")
    place = {"SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": str(restarts)}
    done = bash(CLUSTER / "slurm.sbatch", *FLAGS, path=path, **place)
    assert done.returncode == status
    assert calls(fakes)[1:] == ([["scontrol", "requeue", "77"]] if queued else [])


# As many processes as SLURM would start, on this machine.
SRUN = """
jobs=()
for (( i = 0; i < 2; i++ )); do
  SLURM_PROCID=$i SLURM_LOCALID=$i SLURM_NTASKS=2 SLURM_STEP_NODELIST=127.0.0.1 "$@" &
  jobs+=("$!")
done
trap 'kill -USR1 "${jobs[@]}"' USR1
worst=0
for job in "${jobs[@]}"; do
  status=0
  wait "$job" || status=$?
  while kill -0 "$job" 2>/dev/null; do status=0; wait "$job" || status=$?; done
  if (( status > worst )); then worst=$status; fi
done
exit "$worst"
"""


def slurm_job(folder, checkpoint, run):
    """The script under a fake SLURM whose steps are two real processes on one device each."""
    recorder(folder, "scontrol")
    recorder(folder, "srun", SRUN)
    path = recorder(folder, "assay", f'exec {shlex.quote(sys.executable)} -m launch "$@"')
    flags = ("sweep", f"--checkpoint={checkpoint.path}", f"--run={run}", *SMALL)
    return subprocess.Popen(
        ["bash", CLUSTER / "slurm.sbatch", *flags],
        env={
            **{name: value for name, value in os.environ.items() if "_CACHE_DIR" not in name},
            "ASSAY_CACHE": str(folder / "cache"),
            "PATH": path,
            "PYTHONPATH": str(ROOT),
            "XLA_FLAGS": "--xla_force_host_platform_device_count=1",
            "SLURM_JOB_ID": str(4096 - os.getpid() % 4096),
            "SLURM_NNODES": "1",
            "SLURM_NTASKS_PER_NODE": "2",
        },
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.slow
def test_a_slurm_job_that_is_told_to_stop_is_queued_again_and_goes_on(
    command, checkpoint, tmp_path
):
    model, fakes, run = checkpoint(), tmp_path / "fakes", Run(tmp_path / "run")
    job = slurm_job(fakes, model, run.folder)
    while not run.parts() and job.poll() is None:
        time.sleep(0.01)
    for step in subprocess.check_output(["pgrep", "-P", str(job.pid)], text=True).split():
        os.kill(int(step), signal.SIGUSR1)  # as --signal=USR1@90 does
    _, err = job.communicate(timeout=120)
    assert job.returncode == 143, err
    assert calls(fakes)[-1][:2] == ["scontrol", "requeue"]
    before = run.parts()
    assert 0 < len(before) < 36

    job = slurm_job(fakes, model, run.folder)
    _, err = job.communicate(timeout=300)
    assert job.returncode == 0, err
    after = run.parts()
    assert {path: after[path] for path in before} == before
    assert [call[0] for call in calls(fakes)].count("assay") == 4  # two jobs of two processes

    alone = Run(tmp_path / "alone")
    flags = (f"--checkpoint={model.path}", f"--run={alone.folder}", *SMALL)
    assert command("sweep", *flags).code == 0
    for prompt in ("greatest", "worst"):
        rewards = run.rewards("tiny", prompt)
        np.testing.assert_allclose(rewards, alone.rewards("tiny", prompt), rtol=1e-5, atol=1e-6)


# One host


def test_one_process_takes_all_gpus_by_default(parse):
    [words] = dry("one_host.sh", *FLAGS)
    assert words == ["assay", *FLAGS]


def test_one_process_per_gpu(parse):
    lines = dry("one_host.sh", *FLAGS, PROCESSES="4", PORT="7100")
    for index, words in enumerate(lines):
        assert words[:3] == ["env", f"CUDA_VISIBLE_DEVICES={index}", "assay"]
        given = parse(words[3:])
        assert given.coordinator == "127.0.0.1:7100"
        assert (given.processes, given.process) == (4, index)
    assert len(lines) == 4


def test_one_shard_per_gpu(parse):
    lines = dry("one_host.sh", *FLAGS, SHARDS="3")
    assert [words[1] for words in lines] == [f"CUDA_VISIBLE_DEVICES={i}" for i in range(3)]
    assert [parse(words[3:]).shard for words in lines] == ["1/3", "2/3", "3/3"]


@pytest.mark.parametrize(
    ("statuses", "worst"),
    [("0 0 0", 0), ("3 3 143", 143), ("3 2 2", 2), ("0 1 0", 1), ("3 137 3", 137), ("3 3 3", 3)],
)
def test_the_status_of_a_host_is_that_of_the_process_that_failed(tmp_path, statuses, worst):
    each = "".join(f"{i}) exit {status};;" for i, status in enumerate(statuses.split()))
    path = recorder(tmp_path, "assay", f"case $CUDA_VISIBLE_DEVICES in {each} esac")
    done = bash(CLUSTER / "one_host.sh", *FLAGS, path=path, PROCESSES="3")
    assert (done.returncode, done.stderr) == (worst, "")
    done = bash(CLUSTER / "one_host.sh", *FLAGS, path=path, SHARDS="3", LOGS=tmp_path)
    assert done.returncode == worst


TABLE = """\
tiny  1/1     288      1.5  complete
other-model  0/2       0      0.5  failed: /x: 12.3  failed: complete
sweep: 1 of 2 models failed: other-model; the others are complete
"""


def test_shards_end_with_one_table(tmp_path):
    logs = [f"model prompts\nloading:  0%\rloading: 50%\r   \r{TABLE}", "0%\r\nsweep: no model\n"]
    for index, log in enumerate([*logs, ""]):
        (tmp_path / f"log-{index}").write_text(log)
    says = f'cat "{tmp_path}/log-$CUDA_VISIBLE_DEVICES" >&2'
    path = recorder(tmp_path / "bin", "assay", says)
    done = bash(CLUSTER / "one_host.sh", *FLAGS, path=path, SHARDS="3", LOGS=tmp_path)
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"progress and errors: {tmp_path}/shard-*-of-3",
        f"{'model':<40} prompts   new rows  seconds  status",
        f"{'tiny':<40}     1/1        288      1.5  complete",
        f"{'other-model':<40}     0/2          0      0.5  failed: /x: 12.3  failed: complete",
        f"{tmp_path}/shard-2-of-3: sweep: no model",
        f"{tmp_path}/shard-3-of-3: ",
    ]


@pytest.mark.slow
def test_models_side_by_side_are_those_of_one_command(command, checkpoint, tmp_path):
    """Two shards run at once; a model that fails stops neither."""
    good = [checkpoint(), checkpoint("other", seed=1), checkpoint("wide", seed=2)]
    lost = tmp_path / "lost"
    shutil.copytree(checkpoint("lost", seed=5).path, lost)
    shutil.rmtree(lost / "params/layers/001")
    path = recorder(tmp_path / "bin", "assay", f'exec {shlex.quote(sys.executable)} -m launch "$@"')
    run, whole = tmp_path / "run", Run(tmp_path / "whole")
    done = subprocess.run(
        [
            *("bash", CLUSTER / "one_host.sh", "sweep", f"--run={run}", *SMALL),
            f"--checkpoint={lost}," + ",".join(str(model.path) for model in good),
        ],
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "SHARDS": "2"}
        | {"LOGS": str(tmp_path), "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled")},
        text=True,
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 1, done.stderr
    _, head, *rows = done.stderr.splitlines()
    assert head.split() == ["model", "prompts", "new", "rows", "seconds", "status"]
    table = {row.split()[0]: row.split(maxsplit=4)[1:] for row in rows}
    assert set(table) == {"lost", "tiny", "other", "wide"}
    assert all(
        [*table[m.card.slug][:2], table[m.card.slug][3]] == ["2/2", "576", "complete"] for m in good
    )
    assert table["lost"][3].startswith("failed: ") and "damaged checkpoint" in table["lost"][3]

    flags = ("--checkpoint=" + ",".join(str(model.path) for model in good), *SMALL)
    assert command("sweep", *flags, f"--run={whole.folder}").code == 0
    shards = [Run(run / f"shard-{k}-of-2") for k in (1, 2)]
    assert all(shard.parts() for shard in shards)
    found = {p: sha for shard in shards for p, sha in shard.hashes().items()}
    assert found == whole.hashes()


@pytest.mark.usefixtures("hanging_up_is_not_ignored")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_reaches_every_process_of_a_host(tmp_path, number):
    waits = f"trap 'touch {tmp_path}/ended-$CUDA_VISIBLE_DEVICES; exit 143' TERM\n"
    waits += f"touch {tmp_path}/began-$CUDA_VISIBLE_DEVICES\nwhile :; do sleep 0.05; done"
    path = recorder(tmp_path, "assay", waits)
    host = subprocess.Popen(
        ["bash", CLUSTER / "one_host.sh", *FLAGS], env={"PATH": path, "SHARDS": "3"}
    )
    while len(list(tmp_path.glob("began-*"))) < 3:
        time.sleep(0.01)
    host.send_signal(number)
    assert host.wait(timeout=60) == 143
    assert len(list(tmp_path.glob("ended-*"))) == 3


# TPU

SLICE = {"NAME": "sweep", "ZONE": "us-east5-b", "TYPE": "v6e-16", "SOURCE": "git+https://host/a"}


def test_a_slice_is_queued_for_installed_and_started_on_every_host(parse):
    create, describe, install, start, delete = dry("tpu_pod.sh", *FLAGS, **SLICE)
    resources = ["gcloud", "compute", "tpus", "queued-resources"]
    assert create[:6] == [*resources, "create", "sweep"]
    assert {"--accelerator-type=v6e-16", "--node-id=sweep", "--spot"} < set(create)
    assert describe[4:6] == ["describe", "sweep"]
    assert delete[4:] == ["delete", "sweep", "--force", "--quiet", "--zone=us-east5-b"]
    for words in (install, start):
        assert words[:6] == ["gcloud", "compute", "tpus", "tpu-vm", "ssh", "sweep"]
        assert words[6:8] == ["--zone=us-east5-b", "--worker=all"]
    assert "'assay[tpu,gcs] @ git+https://host/a'" in install[8]
    program, *arguments = shlex.split(start[8].removeprefix("--command="))
    assert program == "$HOME/assay/bin/assay"
    assert arguments == [*FLAGS, "--multihost", "--wait"]
    assert parse(arguments).wait


GCLOUD = """
count() {{ grep -c "$1" {calls} || true; }}
case "$*" in
  *describe*) if (( $(count queued-resources.*create) > $(count delete) )); then echo ACTIVE; fi;;
  *bin/assay*--multihost*) exit "$(cut -d' ' -f"$(count bin/assay.*multihost)" <<<"{statuses}")";;
esac
"""


@pytest.mark.parametrize(
    ("statuses", "starts", "status"),
    [("0", 1, 0), ("143 255 0", 3, 0), ("143 2", 2, 2), ("1", 1, 1)],
)
def test_a_slice_that_stops_is_started_again(tmp_path, statuses, starts, status):
    fake = GCLOUD.format(calls=shlex.quote(str(tmp_path / "calls")), statuses=statuses)
    path = recorder(tmp_path, "gcloud", fake)
    done = bash(CLUSTER / "tpu_pod.sh", *FLAGS, path=path, POLL="0", **SLICE)
    assert (done.returncode, done.stderr) == (status, "")
    made = calls(tmp_path)
    assert len([c for c in made if "--multihost" in c[-1] and "ssh" in c]) == starts
    assert made[-1][4] == "delete"


def test_a_preempted_slice_is_queued_for_again(tmp_path):
    """The fake slice is suspended when the command has run for the first time."""
    fake = f"""
    cd {shlex.quote(str(tmp_path))}
    case "$*" in
      *describe*)
        if [[ -e suspended ]]; then echo SUSPENDED; elif [[ -e made ]]; then echo ACTIVE; fi;;
      *"queued-resources create"*) touch made;;
      *"queued-resources delete"*) rm -f made suspended;;
      *bin/assay*--multihost*) if [[ ! -e ran ]]; then touch ran suspended; exit 143; fi;;
    esac
    """
    path = recorder(tmp_path, "gcloud", fake)
    done = bash(CLUSTER / "tpu_pod.sh", *FLAGS, path=path, POLL="0", **SLICE)
    assert (done.returncode, done.stderr) == (0, "")
    verbs = [call[4] for call in calls(tmp_path) if call[4] in ("delete", "ssh")]
    assert verbs == ["ssh", "ssh", "delete", "ssh", "ssh", "delete"]


def test_a_request_that_is_refused_ends_at_once(tmp_path):
    path = recorder(tmp_path, "gcloud", "if [[ $4 == create ]]; then exit 7; fi")
    done = bash(CLUSTER / "tpu_pod.sh", *FLAGS, path=path, **SLICE)
    assert done.returncode == 7
    assert [call[4] for call in calls(tmp_path)] == ["describe", "create"]


# Kubernetes and SkyPilot


def test_the_jobset_starts_one_process_on_every_host(parse):
    jobset = yaml.safe_load((CLUSTER / "gke_jobset.yaml").read_text())
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    [hosts] = jobset["spec"]["replicatedJobs"]
    job = hosts["template"]["spec"]
    pod = job["template"]["spec"]
    [container] = pod["containers"]
    chips = container["resources"]["limits"]["google.com/tpu"]
    x, y = map(int, pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"].split("x"))
    assert job["parallelism"] == job["completions"] == x * y // chips
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert pod["restartPolicy"] == "Never"  # podFailurePolicy asks for it
    [rule] = job["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["containerName"] == container["name"]
    assert rule["onExitCodes"]["values"] == [1, 2]
    given = parse(container["args"])
    assert given.multihost
    assert x * y % given.config.mesh.model == 0


SKY = {"BUCKET": "gs://bucket", "SKYPILOT_NODE_IPS": "10.0.0.4\n10.0.0.5"}


@pytest.mark.parametrize("rank", [0, 1])
def test_skypilot_starts_one_process_on_every_machine(parse, tmp_path, rank):
    task = yaml.safe_load((CLUSTER / "skypilot.yaml").read_text())
    (tmp_path / "run.sh").write_text(task["run"])
    path = recorder(tmp_path, "assay")
    environment = {"ASSAY": "assay", **task["envs"], **SKY}
    ranks = {"SKYPILOT_NUM_NODES": str(task["num_nodes"]), "SKYPILOT_NODE_RANK": str(rank)}
    done = bash(tmp_path / "run.sh", path=path, **environment, **ranks)
    assert (done.returncode, done.stderr) == (0, "")
    [[_, *words]] = calls(tmp_path)
    given = parse(words)
    assert given.coordinator == "10.0.0.4:7007"
    assert (given.processes, given.process) == (task["num_nodes"], rank)
    assert given.run == "gs://bucket/runs/values"


def test_skypilot_starts_shards_on_single_machines(parse, tmp_path):
    task = yaml.safe_load((CLUSTER / "skypilot.yaml").read_text())
    (tmp_path / "run.sh").write_text(task["run"])
    path = recorder(tmp_path, "assay")
    alone = {"ASSAY": "assay", **SKY, "SKYPILOT_NUM_NODES": "1", "SHARD": "2/4"}
    assert bash(tmp_path / "run.sh", path=path, **alone).returncode == 0
    given = parse(calls(tmp_path)[0][1:])
    assert (given.shard, given.coordinator) == ("2/4", None)


# Containers


@pytest.mark.parametrize("kind", ["cuda", "tpu"])
def test_a_container_copies_what_exists_and_installs_known_extras(kind):
    text = (CLUSTER / f"Containerfile.{kind}").read_text().replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    copied = [source for words in lines if words[0] == "COPY" for source in words[1:-1]]
    assert all((ROOT / source).exists() for source in copied)
    packages = {
        name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]
    }
    assert packages | {"requirements.txt", "pyproject.toml"} <= set(copied)
    assert {project["project"]["readme"], *project["project"]["license-files"]} <= set(copied)
    [extras] = re.findall(r"'\.\[([\w,]+)\]'", text)
    assert extras == f"{kind},gcs,s3"
    assert set(extras.split(",")) <= set(project["project"]["optional-dependencies"])
    [[_, image]] = [words for words in lines if words[0] == "FROM"]
    assert re.fullmatch(r"docker\.io/library/python:3\.\d+\.\d+-slim-\w+", image)
    assert [words for words in lines if words[0] == "USER"] == [["USER", "1000"]]
    assert lines[-1] == ["ENTRYPOINT", '["assay"]']
