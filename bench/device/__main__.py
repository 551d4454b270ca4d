"""How close Assay comes to the limit of one accelerator; no network and no checkpoint is needed.

    python -m bench.device [--minutes=8.8] [--models=llama-3.1-8b,…] [--sections=sweep,…]
                           [--step_sizes=1024,4096,8192] [--json=out/device.json] [--[no]toy]

Models have their published shapes and random bfloat16 weights, which are made on the device. The
most important measurements come first; each is printed, and the JSON file written again, as soon
as it is known. Beside each stands its floor: its arithmetic at the rate of the fastest measured
matrix products, or its bytes at the rate of a measured copy, whichever takes longer; of several
passes (a step of a search has three) their sum. A section that fails prints its reason, and the
others go on; the exit code is then 1. Without an accelerator all shapes are toys.
"""

import os
import sys
import time
from pathlib import Path

from absl import app, flags

from bench.device import runner, summary
from bench.device.plan import MINUTES, MODELS, jobs
from bench.device.worker import SECTIONS

_MINUTES = flags.DEFINE_float("minutes", MINUTES, "Time for everything.", lower_bound=0.1)
_MODELS = flags.DEFINE_list("models", list(MODELS), "Models, the most important first.")
_SECTIONS = flags.DEFINE_list("sections", list(SECTIONS), "What is measured.")
_STEP_SIZES = flags.DEFINE_list(
    "step_sizes", None, "Candidates a step; by default 1024,4096,8192, of toys 16,64."
)
_JSON = flags.DEFINE_string("json", "out/device.json", "File of the results; '' writes none.")
_TOY = flags.DEFINE_bool("toy", None, "Toy shapes; by default where there is no accelerator.")


def _known(flag: str, names: list[str], allowed: list[str]) -> None:
    unknown = [name for name in names if name not in allowed]
    if unknown or not names:
        raise app.UsageError(f"--{flag}={','.join(names)!r}; allowed: {', '.join(allowed)}")


def _step_sizes(toy: bool) -> list[int]:
    """The step sizes of the flag, or the default ones."""
    if _STEP_SIZES.value is None:
        return [16, 64] if toy else [1024, 4096, 8192]
    try:
        sizes = [int(text) for text in _STEP_SIZES.value]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        given = ",".join(_STEP_SIZES.value)
        raise app.UsageError(f"--step_sizes={given!r}; allowed: integers >= 1")
    return sizes


def main(_) -> None:
    """Runs the sections; exits with 1 if one failed."""
    _known("models", _MODELS.value, list(MODELS))
    _known("sections", _SECTIONS.value, list(SECTIONS))
    _step_sizes(toy=True)
    began = time.time()
    results = runner.Results(Path(_JSON.value) if _JSON.value else None, {})
    try:
        results.save()  # a folder that cannot be written is known now
        device = runner.describe()
    except (OSError, RuntimeError) as error:
        raise SystemExit(f"bench.device: {error}") from error
    toy = device["platform"] == "cpu" if _TOY.value is None else _TOY.value
    header = {
        "command": " ".join(["python -m bench.device", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(began)),
        "device": device,
        "toy": toy,
        "minutes": _MINUTES.value,
        "step_sizes": _step_sizes(toy),
    }
    results.header = header
    print(summary.heading(header), flush=True)
    runner.run_jobs(
        jobs(_MODELS.value, _SECTIONS.value, 60 * _MINUTES.value),
        results,
        began + 60 * _MINUTES.value,
        toy=toy,
        step_sizes=header["step_sizes"],
    )
    header["seconds"] = time.time() - began
    results.save()
    print(summary.summary(results))
    if results.failed:
        raise SystemExit(f"bench.device: failed: {', '.join(results.failed)}")


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    app.run(main)
