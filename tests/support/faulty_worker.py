"""A worker of `bench.device` with faults: one section raises, one ends the process, one hangs."""

import os
import signal
import time

from bench.device import worker
from bench.device.bench import Outcome, Skipped


def memory(bench) -> Outcome:
    raise ValueError("planted\nsecond line")


def ceiling(bench) -> Outcome:
    print("noise of a library", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it lives")


def sweep(bench) -> Outcome:
    return Outcome(text="measured", result={"rate": 1.0})


def vocabulary(bench) -> Outcome:
    raise Skipped("does not fit")


def search(bench) -> Outcome:
    time.sleep(600)
    raise AssertionError("it was not stopped")


FAULTS = {f.__name__: f for f in (memory, ceiling, sweep, vocabulary, search)}

if __name__ == "__main__":
    worker._function = FAULTS.__getitem__
    worker.main()
