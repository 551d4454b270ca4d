"""Torch in one thread, and the line of `make test-device` that says what is tested."""

import os

import jax
import pytest
import torch

from tests.support.tolerances import TOLERANCES


def pytest_configure() -> None:
    """Takes the device that PARITY_DEVICE names; ends where it is not there."""
    wanted = os.environ.get("PARITY_DEVICE", "")
    if wanted not in ("", "cpu", "accelerator"):
        pytest.exit(f"DEVICE={wanted!r}; allowed: 'cpu', 'accelerator'", returncode=1)
    if wanted == "cpu":
        jax.config.update("jax_platforms", "cpu")
    if wanted == "accelerator" and jax.default_backend() == "cpu":
        pytest.exit(
            "parity tests: no accelerator, JAX sees only the CPU (docs/accelerators.md: which "
            "package it needs); DEVICE=cpu runs them there",
            returncode=1,
        )


def pytest_report_header() -> str:
    """Which device is tested, and how far rewards may be from torch's, which runs on the CPU."""
    if "PARITY_DEVICE" not in os.environ:
        return ""
    device = jax.devices()[0]
    allowed = ", ".join(f"{dtype} {tolerance:.1e}" for dtype, tolerance in TOLERANCES.items())
    return (
        f"parity tests on {device.device_kind} ({device.platform}), jax {jax.__version__}; rewards "
        f"may differ from torch's by, in standard deviations: {allowed}"
    )


@pytest.fixture(scope="package", autouse=True)
def _one_thread_in_torch():
    """Models are tiny: torch's threads would wait for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
