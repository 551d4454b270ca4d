"""Kills sweeps hundreds of times and counts what is lost.

    python -m bench.chaos [--kills=200] [--seed=0] [--places=local,s3] [--out=out/chaos]

A chain is one run folder: a command is killed, started again, killed again, until it ends by
itself. Signals (SIGKILL, SIGTERM) come while checkpoints are read, programs compiled, steps taken,
parts written and renamed, the manifest written, or at any time; to one process, or to one of two.
A chain ends well if every part has the bytes of an undisturbed run, and `assay verify` agrees. The
table counts rows lost, doubled or different (there must be none), device steps that were taken
again, and processes that ended otherwise than documented. Exit status 1 if anything is wrong.
Ctrl-C ends it after the chains that are done, with their table.

The models are tiny and random: what is tested is the bookkeeping, not the arithmetic.
"""

import collections
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

# Before jax is imported: each process has one device, and tokenizers start no threads here.
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from absl import app, flags
from tqdm import tqdm

import launch.score
import launch.search
import launch.sweep
import launch.verify
from bench.support import table
from bench.support.victims import PHASES, Ended, Plan, Steps, start, wait
from tests.support import folders, object_store, tiny
from tests.support.processes import free_port

_KILLS = flags.DEFINE_integer("kills", 200, "Kills, over all places and numbers of processes.")
_SEED = flags.DEFINE_integer("seed", 0, "Of the moments of the kills.")
_PLACES = flags.DEFINE_list("places", ["local", "s3"], "Where the run folder is: local, s3.")
_PROCESSES = flags.DEFINE_list("processes", ["1", "2"], "Processes of a command.")
_OUT = flags.DEFINE_string("out", "out/chaos", "Folder of models, runs and logs; overwritten.")

_CHAIN = 6  # kills of one run folder at most
# Moments of a phase that a command of this size passes; a later one is never reached.
_MOMENTS = {
    "restore": 40, "compile": 6, "step": 40, "write": 32, "rename": 32, "manifest": 4, "anytime": 1
}  # fmt: skip
_LONGEST_DELAY_S = {"compile": 0.3, "restore": 0.05, "step": 0.01, "write": 0.002, "anytime": 3.0}
_JOIN_S = 30  # seconds that a process waits for one that was killed before it joined
# Signal -> exit statuses of the other processes, and of the one that gets it.
_STATUS = {signal.SIGKILL: ((3,), (-9,)), signal.SIGTERM: ((143,), (143,))}


@dataclasses.dataclass(frozen=True)
class Command:
    """A command and its flags, without checkpoints and run."""

    name: str
    main: Callable[[Sequence[str]], int]
    flags: tuple[str, ...]


COMMANDS = (
    Command(
        "sweep",
        launch.sweep.main,
        ("--config.prompts=greatest,worst", "--config.part_size=40", "--config.step_size=16"),
    ),
    Command(
        "score",
        launch.score.main,
        ("--config.prompts=greatest", "--config.part_size=20", "--config.step_size=16"),
    ),
    Command(
        "search",
        launch.search.main,
        (
            "--config.prompts=greatest", "--config.steps=12", "--config.every=2",
            "--config.candidates=16", "--config.topk=16", "--config.length=4",
            "--config.restarts=1", "--config.buffer=2", "--config.transfer=false",
        ),
    ),
)  # fmt: skip


@dataclasses.dataclass
class Counts:
    """What happened in the chains of one row of the table."""

    kills: int = 0
    missed: int = 0  # plans whose moment never came
    steps_again: int = 0
    steps: int = 0  # of undisturbed runs
    different: int = 0  # parts that differ from an undisturbed run's, are missing or too many
    unsound: int = 0  # chains with which `assay verify` finds fault
    wrong_ends: int = 0  # processes that ended otherwise than documented
    slowest_end_s: float = 0.0  # from a signal's process to the end of the last process


class Lab:
    """Models, places and undisturbed runs."""

    def __init__(self, out: Path, store: object_store.Store | None):
        self.out, self.store = out, store
        self.steps = Steps(max(map(int, _PROCESSES.value)))
        self._numbers = iter(range(1, 10**6))
        self.models = [out / "models" / slug / "checkpoint" for slug in ("deep", "shallow")]
        self.items = out / "items.txt"
        self.whole: dict[tuple[str, int], tuple[Mapping[str, str], int]] = {}

    def prepare(self) -> None:
        """Makes the models, in a process of its own: this one must start no threads."""
        for old in ("models", "runs"):
            shutil.rmtree(self.out / old, ignore_errors=True)
        self.out.mkdir(parents=True, exist_ok=True)
        self.items.write_text("\n".join(f"reply {i} {'so ' * (i % 7)}" for i in range(150)))

        def make(argv: Sequence[str]) -> int:
            for folder, layers in zip(self.models, (3, 2), strict=True):
                source = tiny.write_model(folder.parent / "hf", num_hidden_layers=layers)
                folders.convert(source, folder, folder.parent.name)
            return 0

        log = self.out / "models.log"
        (ended,) = wait([start(make, [], log)], [log])
        if ended.status:
            sys.exit(f"chaos: the models could not be made\n{ended.log}")

    def folder(self, place: str) -> str:
        """A run folder that does not exist yet."""
        name = f"run-{next(self._numbers):04d}"
        if place == "s3":
            return f"s3://{object_store.BUCKET}/{name}"
        return str(self.out / "runs" / name)

    def run(
        self, command: Command, run: str, processes: int, plans: Mapping[int, Plan]
    ) -> list[Ended]:
        """Runs a command to its end, on one process or several; `plans` by process."""
        argv = [f"--checkpoint={','.join(map(str, self.models))}", f"--run={run}", *command.flags]
        if command.name == "score":
            argv.append(f"--items={self.items}")
        if processes > 1:
            argv += [f"--coordinator=127.0.0.1:{free_port()}", f"--processes={processes}"]
            argv += [f"--join_timeout={_JOIN_S}"]
        started, logs = [], []
        for index in range(processes):
            own = [*argv, f"--process={index}"] if processes > 1 else argv
            logs.append(self.out / f"process-{index}.log")
            step = functools.partial(self.steps.add, index)
            started.append(start(command.main, own, logs[-1], step, plans.get(index)))
        return wait(started, logs)

    def undisturbed(self, command: Command, processes: int) -> tuple[Mapping[str, str], int]:
        """Hashes of the files of an undisturbed run, and its number of device steps."""
        key = command.name, processes
        if key not in self.whole:
            run, before = self.folder("local"), self.steps.count()
            ended = self.run(command, run, processes, {})
            if any(one.status for one in ended):
                sys.exit(f"chaos: {command.name} fails undisturbed\n{ended[0].log}")
            self.whole[key] = self.hashes(run), self.steps.count() - before
        return self.whole[key]

    def hashes(self, run: str) -> dict[str, str]:
        """Path relative to the run -> sha256, of every part and sequence."""
        if run.startswith("s3://"):
            files = self.store.objects(run.rpartition("/")[2])
        else:
            paths = Path(run).rglob("*.parquet")
            files = {str(path.relative_to(run)): path.read_bytes() for path in paths}
        return {
            path: hashlib.sha256(data).hexdigest()
            for path, data in files.items()
            if path.endswith(".parquet")
        }

    def verified(self, run: str) -> Ended:
        """What `assay verify` says of a run."""
        log = self.out / "verify.log"
        return wait([start(launch.verify.main, [f"--run={run}"], log)], [log])[0]


def chain(
    lab: Lab,
    command: Command,
    place: str,
    processes: int,
    draw: random.Random,
    counts: Mapping[tuple[str, str], Counts],
) -> None:
    """Kills one run until it is whole, and compares it with an undisturbed one."""
    whole, steps = lab.undisturbed(command, processes)
    run, before, rows = lab.folder(place), lab.steps.count(), []
    for _ in range(_CHAIN):
        victim, plan = draw.randrange(processes), drawn(draw)
        ended = lab.run(command, run, processes, {victim: plan})
        row = counts[plan.phase, plan.number.name]
        if ended[victim].status == 0:
            row.missed += 1
            break
        rows.append(row)
        row.kills += 1
        row.slowest_end_s = max(row.slowest_end_s, *(one.seconds for one in ended))
        row.wrong_ends += _wrong_ends(ended, victim, plan, command)
    # A run that is whole is started once more: it has nothing to do, or what was killed last.
    last = lab.run(command, run, processes, {})
    mine = rows or [counts["anytime", "SIGKILL"]]
    if any(one.status for one in last):
        mine[-1].wrong_ends += 1
        print(f"{command.name} in {run} does not end:\n{last[0].log[-2000:]}", file=sys.stderr)
    found = lab.hashes(run)
    wrong = {path for path in {*whole, *found} if whole.get(path) != found.get(path)}
    if wrong:
        print(f"{command.name} in {run} differs: {sorted(wrong)[:4]}", file=sys.stderr)
    verdict = lab.verified(run)
    if verdict.status:
        print(f"{run}: {verdict.log[-2000:]}", file=sys.stderr)
    mine[-1].different += len(wrong)
    mine[-1].unsound += verdict.status != 0
    mine[-1].steps_again += lab.steps.count() - before - steps
    mine[-1].steps += steps


def drawn(draw: random.Random) -> Plan:
    """A random moment and signal."""
    phase = draw.choice(PHASES)
    return Plan(
        phase=phase,
        occurrence=draw.randint(1, _MOMENTS[phase]),
        delay_s=draw.uniform(0, _LONGEST_DELAY_S.get(phase, 0.0)),
        number=draw.choice([signal.SIGKILL, signal.SIGTERM]),
    )


def report(counts: Mapping[tuple[str, int, str, str], Counts]) -> str:
    """The table, with a row for each place, number of processes, phase and signal."""
    head = (
        "place, processes, moment, signal", "kills", "parts wrong", "runs unsound", "wrong ends",
        "steps again", "of steps", "slowest end, s",
    )  # fmt: skip
    rows = [head]
    for (place, processes, phase, name), row in sorted(counts.items()):
        if row == Counts(missed=row.missed):
            continue
        numbers = (row.kills, row.different, row.unsound, row.wrong_ends, row.steps_again)
        cells = [*map(str, numbers), str(row.steps), f"{row.slowest_end_s:.1f}"]
        rows.append((f"{place}, {processes}, {phase}, {name}", *cells))
    return table.aligned(rows)


def _wrong_ends(ended: Sequence[Ended], victim: int, plan: Plan, command: Command) -> int:
    """Processes that did not end as documented: their status, and one line that says why."""
    wrong, begins = 0, command.main.__module__.rpartition(".")[2] + ":"
    for index, one in enumerate(ended):
        killed = index == victim and plan.number == signal.SIGKILL
        lines = one.log.replace("\r", "\n").splitlines()
        told = killed or sum(line.startswith(begins) for line in lines) == 1
        fits = one.status in _STATUS[plan.number][index == victim]
        if fits and told and "Traceback" not in one.log:
            continue
        wrong += 1
        print(f"process {index}, {plan}: status {one.status}\n{one.log[-1500:]}", file=sys.stderr)
    return wrong


@contextlib.contextmanager
def store(wanted: bool) -> Iterator[object_store.Store | None]:
    """An S3 server in a process of its own, with its address and keys in the environment."""
    if not wanted:
        yield None
        return
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        url = f"http://127.0.0.1:{port}"
        os.environ.update({**object_store.KEYS, "AWS_ENDPOINT_URL": url})
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        found = object_store.Store(url)
        found.empty()
        try:
            yield found
        finally:
            server.terminate()


def main(_: Sequence[str]) -> None:
    """Runs chains until there were enough kills, then prints the table."""
    out, draw = Path(_OUT.value).absolute(), random.Random(_SEED.value)
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["ASSAY_CACHE"] = str(out / "compiled")
    counts: dict[tuple[str, int, str, str], Counts] = collections.defaultdict(Counts)
    kinds = [(place, int(n)) for place in _PLACES.value for n in _PROCESSES.value]
    with store("s3" in _PLACES.value) as server:
        lab = Lab(out, server)
        lab.prepare()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
        with contextlib.suppress(KeyboardInterrupt), tqdm(total=_KILLS.value, unit=" kills") as bar:
            for place, processes in itertools.cycle(kinds):
                own: dict[tuple[str, str], Counts] = collections.defaultdict(Counts)
                chain(lab, draw.choice(COMMANDS), place, processes, draw, own)
                for (phase, name), row in own.items():
                    _add(counts[place, processes, phase, name], row)
                    bar.update(row.kills)
                if bar.n >= _KILLS.value:
                    break
    print(table.machine(), report(counts), sep="\n\n")
    wrong = sum(row.different + row.unsound + row.wrong_ends for row in counts.values())
    print(f"\n{sum(row.kills for row in counts.values())} kills, {wrong} wrong")
    sys.exit(bool(wrong))


def _add(total: Counts, row: Counts) -> None:
    for field in dataclasses.fields(Counts):
        name = field.name
        join = max if name == "slowest_end_s" else int.__add__
        setattr(total, name, join(getattr(total, name), getattr(row, name)))


if __name__ == "__main__":
    app.run(main)
