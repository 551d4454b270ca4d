"""Environment of the tests, the two reasons a test may be skipped for, and hypothesis profiles."""

import gc
import os
import tempfile
from pathlib import Path

import hypothesis
import jaxtyping
import pytest

# Before anything imports jax: sharding is tested on four host devices.
_FLAGS = ["--xla_force_host_platform_device_count=4"]
# Tests compile much and compute little, so compiling fast (half the time, measured) beats running
# fast. `make test-all` runs tests/demo, whose models are real, with COMPILE=as-users.
if os.environ.get("COMPILE") != "as-users":
    _FLAGS.append("--xla_cpu_parallel_codegen_split_count=1")
    # An option, not a flag: a jaxlib that no longer knows it goes on without it.
    _FLAGS.append("--xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters")
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *_FLAGS]).strip()
# What is compiled once is read from disk when it is traced again, by this process or by one that it
# starts. Every worker has a cache of its own, because jax does not write cache files atomically;
# linking finished files of other workers saved nothing (six minutes of CPU time either way).
_COMPILED = tempfile.TemporaryDirectory(prefix="assay-compiled-")
os.environ["JAX_COMPILATION_CACHE_DIR"] = _COMPILED.name
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
os.environ["HF_HUB_OFFLINE"] = "1"  # only npm may fetch (tests/support/published.py)
os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads warn when a test starts a process

# Shape annotations are checked while tests run: before anything imports engine.models.
jaxtyping.install_import_hook("engine.models", "beartype.beartype")

pytest_plugins = ["tests.support.fixtures"]

CI = os.environ.get("CI") == "true"
ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

# The only reasons for which a test may be skipped in CI.
NO_SHARED = "needs ../shared, which is not there"
NO_ACCELERATOR = "needs an accelerator, and there is none"

# Compilation makes single examples slow: no deadline, no complaint about slow data.
_COMMON = {
    "deadline": None,
    "max_examples": 25,
    "suppress_health_check": [hypothesis.HealthCheck.too_slow],
}
hypothesis.settings.register_profile("ci", derandomize=True, **_COMMON)
hypothesis.settings.register_profile("dev", **_COMMON)
hypothesis.settings.load_profile("ci" if CI else "dev")


def pytest_configure(config):
    config.addinivalue_line("markers", "needs_shared: reads files under ../shared")
    config.addinivalue_line("markers", "slow: only `make test-all` runs it")
    config.addinivalue_line("markers", "needs_accelerator: runs on a GPU or TPU only")


def pytest_collection_finish(session):
    """What was imported stays: the garbage collector need not look at it again, nor often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_runtest_setup(item):
    if item.get_closest_marker("needs_shared") and not SHARED.is_dir():
        pytest.skip(NO_SHARED)
    if item.get_closest_marker("needs_accelerator"):
        import jax  # here: most tests do not pay for it

        if jax.default_backend() == "cpu":
            pytest.skip(NO_ACCELERATOR)


@pytest.fixture
def shared() -> Path:
    """The folder ../shared, which holds reference data and is no part of the repository."""
    if not SHARED.is_dir():
        pytest.skip(NO_SHARED)
    return SHARED


def _unexcused_skips(reporter) -> list[str]:
    """`test: reason` of every skip, of a test or a whole module, for a reason not allowed."""
    lines = []
    for report in reporter.getreports("skipped"):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason not in (NO_SHARED, NO_ACCELERATOR):
            lines.append(f"{report.nodeid}: {reason}")
    return lines


def pytest_sessionfinish(session, exitstatus):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if CI and exitstatus == 0 and reporter and _unexcused_skips(reporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    lines = _unexcused_skips(terminalreporter) if CI else []
    if lines:
        terminalreporter.section("skipped without an excuse: a failure in CI", red=True)
        for line in lines:
            terminalreporter.write_line(line)
