"""Joining the processes of one command: flags, environment, or what a cluster tells jax."""

import os
import socket
import sys
import warnings
from typing import Any

from engine import processes
from engine.errors import AssayError

_ALLOWED = (
    "allowed: --coordinator=host:port --processes=n --process=i; JAX_COORDINATOR_ADDRESS, "
    "JAX_NUM_PROCESSES and JAX_PROCESS_ID; or a start by SLURM, Open MPI, a TPU pod or GKE"
)
FLAGS = {  # as `command.Flags`
    "multihost": (
        False,
        "Run as one of several processes that share the run folder: which one, the environment or "
        "the cluster says, or --coordinator, --processes and --process.",
    ),
    "coordinator": (None, "host:port of process 0; the port must be free."),
    "processes": (None, "Number of processes.", 1, None),
    "process": (None, "Index of this process, from 0.", 0, None),
    "join_timeout": (300, "Seconds within which all processes must start.", 1, None),
}


def join(name: str, given: Any) -> None:  # parsed FlagValues
    """Joins the processes if a flag or the environment says that there are several."""
    stated = (given.coordinator, given.processes, given.process)
    if not given.multihost and stated == (None, None, None):
        return
    coordinator, count, index = _from_environment(*stated)
    if count == 1:
        return
    if coordinator and index == 0:
        _check_free(int(coordinator.rpartition(":")[2]))
    try:
        processes.join(name, coordinator, count, index, given.join_timeout)
    except Exception as error:  # each kind of cluster has another type
        reason = " ".join(str(error).split()).rstrip(".")
        raise AssayError(f"--multihost: {type(error).__name__}: {reason}; {_ALLOWED}") from error
    _keep_libraries_off_standard_output()
    warnings.formatwarning = lambda message, *_: f"{name}: {processes.place()}: {message}\n"


def _from_environment(
    coordinator: str | None, count: int | None, index: int | None
) -> tuple[str | None, int | None, int | None]:
    """The flags, completed by the environment; what is still None, jax takes from the cluster."""
    coordinator = coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS") or None
    count = _number("JAX_NUM_PROCESSES") if count is None else count
    index = _number("JAX_PROCESS_ID") if index is None else index
    host, _, port = (coordinator or "host:1").rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 2**16:
        raise AssayError(f"coordinator {coordinator!r}; allowed: host:port")
    if index is not None and count is not None and not 0 <= index < count:
        raise AssayError(f"process {index} of {count}; allowed: 0 to {count - 1}")
    return coordinator, count, index


def _number(name: str) -> int | None:
    value = os.environ.get(name)
    if value and not (value.isascii() and value.isdigit()):
        raise AssayError(f"{name}={value!r}; allowed: an integer >= 0")
    return int(value) if value else None


def _check_free(port: int) -> None:
    """Raises AssayError if the coordinator's port is taken: jax would crash."""
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        raise AssayError(
            f"port {port}, the coordinator's: {os.strerror(error.errno or 0)}; "
            "choose a free port in --coordinator"
        ) from error


def _keep_libraries_off_standard_output() -> None:
    """Discards what C++ prints on standard output, such as gloo its connections."""
    output = os.dup(1)
    sys.stdout.flush()
    sys.stdout = os.fdopen(output, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
