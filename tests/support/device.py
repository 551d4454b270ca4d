"""Runs the parity tests on this machine's accelerator, or on the CPU.

    python -m tests.support.device [cpu|accelerator] [arguments of pytest]

The first line says which device that is, and how far rewards may be from torch's, which always runs
on the CPU. Where an accelerator is asked for (the default) and JAX sees none, that line says so and
the exit code is 1. Programs are compiled as users' are.
"""

import os
import subprocess
import sys

from tests.support.tolerances import TOLERANCES

# In a process of its own: JAX takes most of an accelerator's memory where it looks at it.
_LOOK = "import jax; d = jax.devices()[0]; print(d.platform, jax.__version__, d.device_kind)"


def main(arguments: list[str]) -> None:
    """Says what the device is; the process then becomes pytest."""
    device, *rest = arguments or ["accelerator"]
    if device not in ("cpu", "accelerator"):
        raise SystemExit(f"DEVICE={device!r}; allowed: 'cpu', 'accelerator'")
    environment = {**os.environ, "COMPILE": "as-users"}
    if device == "cpu":
        environment["JAX_PLATFORMS"] = "cpu"
    looked = subprocess.run(
        [sys.executable, "-c", _LOOK], env=environment, capture_output=True, text=True, check=False
    )
    if looked.returncode:
        reason = (looked.stderr.strip().splitlines() or ["no message"])[-1]
        raise SystemExit(f"parity tests: JAX does not start: {reason}")
    platform, version, kind = looked.stdout.strip().splitlines()[-1].split(maxsplit=2)
    if device == "accelerator" and platform == "cpu":
        raise SystemExit(
            "parity tests: no accelerator, JAX sees only the CPU (docs/accelerators.md: which "
            "package it needs); DEVICE=cpu runs them there"
        )
    allowed = ", ".join(f"{dtype} {tolerance:.1e}" for dtype, tolerance in TOLERANCES.items())
    print(
        f"parity tests on {kind} ({platform}), jax {version}; rewards may differ from torch's by, "
        f"in standard deviations: {allowed}",
        flush=True,
    )
    command = [sys.executable, "-m", "pytest", "-q", "tests/parity", *rest]
    os.execve(sys.executable, command, environment)


if __name__ == "__main__":
    main(sys.argv[1:])
