"""Joining the processes of one command: flags, environment, or what a cluster tells jax."""

import dataclasses
import os
import socket
import warnings
from collections.abc import Mapping
from typing import Any

from absl import flags
from absl.flags import FlagValues

from engine import processes
from engine.errors import AssayError
from launch.common import native_output

_ALLOWED = (
    "allowed: --coordinator=host:port --processes=n --process=i; JAX_COORDINATOR_ADDRESS, "
    "JAX_NUM_PROCESSES and JAX_PROCESS_ID; or a start by SLURM, Open MPI, a TPU pod or GKE"
)
_SHUTDOWN_S = 30  # of jax, after all processes have finished their work
_CONTROL = 10_000  # between the coordinator's port and that of the control connections


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a process stands among those of its command."""

    coordinator: str  # host:port of jax's on process 0
    host: str
    port: int
    count: int
    index: int
    explicit: bool  # whether no cluster was asked


def define_flags(given: FlagValues) -> None:
    """Defines --multihost, --coordinator, --processes, --process and --join_timeout."""
    flags.DEFINE_bool(
        "multihost",
        False,
        "Run as one of several processes. The environment or the cluster says which one, or "
        "--coordinator, --processes and --process do. The run folder must be shared by all.",
        flag_values=given,
    )
    flags.DEFINE_string(
        "coordinator",
        None,
        "host:port of process 0; the port 10,000 above (or below) it must be free too.",
        flag_values=given,
    )
    flags.DEFINE_integer(
        "processes", None, "Number of processes.", lower_bound=1, flag_values=given
    )
    flags.DEFINE_integer(
        "process", None, "Index of this process, from 0.", lower_bound=0, flag_values=given
    )
    flags.DEFINE_integer(
        "join_timeout",
        300,
        "Seconds within which all processes must start.",
        lower_bound=1,
        flag_values=given,
    )


def join(name: str, given: Any) -> None:  # parsed FlagValues
    """Joins the processes if a flag asks for it: first our own connections, then jax.

    Raises:
      AssayError: something is missing or wrong, or a process did not connect in time.
    """
    own = (given.coordinator, given.processes, given.process)
    if not given.multihost and own == (None, None, None):
        return
    place = find_place(*own, os.environ, given.join_timeout)
    if place.count == 1:
        return
    control = place.port + (_CONTROL if place.port + _CONTROL < 2**16 else -_CONTROL)
    processes.join(place.host, control, place.count, place.index, given.join_timeout, name)
    if place.index == 0:
        _check_free(place.port)
    warnings.formatwarning = lambda message, *_: f"{name}: {processes.place()}: {message}\n"
    native_output.tame(follows=place.index > 0)
    import jax  # here: a wrong flag is refused at once

    jax.config.update("jax_enable_preemption_service", False)  # it would swallow SIGTERM
    jax.distributed.initialize(
        coordinator_address=place.coordinator,
        num_processes=place.count,
        process_id=place.index,
        initialization_timeout=given.join_timeout,
        shutdown_timeout_seconds=_SHUTDOWN_S,
        cluster_detection_method="deactivate" if place.explicit else None,
    )


def _check_free(port: int) -> None:
    """Raises AssayError if a port is taken: jax would crash."""
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        raise AssayError(
            f"port {port}, the coordinator's: {error.strerror}; "
            "allowed: a coordinator whose two ports are free"
        ) from error


def leave() -> None:
    """Ends jax's own connections after all processes have finished."""
    if processes.count() > 1:
        import jax

        jax.distributed.shutdown()


def find_place(
    coordinator: str | None,
    count: int | None,
    index: int | None,
    environment: Mapping[str, str],
    timeout_s: int,
) -> Place:
    """Completes the flags by the environment, and what is still missing by the cluster.

    Raises:
      AssayError: a value is missing or wrong.
    """
    coordinator = coordinator or environment.get("JAX_COORDINATOR_ADDRESS") or None
    count = _number("JAX_NUM_PROCESSES", environment) if count is None else count
    index = _number("JAX_PROCESS_ID", environment) if index is None else index
    explicit = None not in (coordinator, count, index)
    note = ""
    if not explicit:
        coordinator, count, index, note = _detect(coordinator, count, index, timeout_s)
    named = {"coordinator": coordinator, "number of processes": count, "process's index": index}
    if missing := [what for what, value in named.items() if value is None]:
        raise AssayError(f"--multihost: no {' and no '.join(missing)}{note}; {_ALLOWED}")
    assert coordinator is not None and count is not None and index is not None
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 2**16:
        raise AssayError(f"coordinator {coordinator!r}; allowed: host:port")
    if not 0 <= index < count:
        raise AssayError(f"process {index} of {count}; allowed: 0 to the number of processes - 1")
    return Place(coordinator, host.strip("[]"), int(port), count, index, explicit)


def _number(name: str, environment: Mapping[str, str]) -> int | None:
    value = environment.get(name)
    if not value:
        return None
    if not value.isascii() or not value.isdigit():
        raise AssayError(f"{name}={value!r}; allowed: an integer >= 0")
    return int(value)


def _detect(
    coordinator: str | None, count: int | None, index: int | None, timeout_s: int
) -> tuple[str | None, int | None, int | None, str]:
    """What jax knows of the cluster that started this process; and a note where it knows why not.

    jax has no public name for it; both versions that Assay supports have this one.
    """
    from jax._src.clusters import ClusterEnv

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = ClusterEnv.auto_detect_unset_distributed_params(
                coordinator, count, index, None, None, timeout_s
            )
        except Exception as error:  # each kind of cluster has its own
            raise AssayError(f"--multihost: {type(error).__name__}: {error}; {_ALLOWED}") from error
    note = f" ({str(caught[0].message).splitlines()[0]})" if caught else ""
    return *found[:3], note
