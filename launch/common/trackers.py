"""Numbers and words of steps, written to a tracker of experiments that is installed."""

import importlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.errors import AssayError

Tracker = Callable[[Mapping[str, Any]], object]  # takes a line of watch.jsonl; Any: what JSON holds
TRACKERS = ("trackio", "wandb", "tensorboard")
_WORDS = ("top", "bottom", "appended")


def tracker(name: str, out: str) -> Tracker:
    """What writes a step to the tracker of a name; "" for none.

    Raises AssayError for another name, or a tracker that is not installed.
    """
    if not name:
        return lambda record: None
    if name not in TRACKERS:
        raise AssayError(f"log={name!r}; allowed: {', '.join(TRACKERS)}")
    try:
        library = importlib.import_module(name)
        if name == "tensorboard":
            return _events(out)
    except ImportError as error:
        raise AssayError(f"log={name!r}: no package {error.name}; pip install {name}") from error
    run = library.init(project="assay-watch", name=Path(out).name)
    log = getattr(run, "log", library.log)

    def write(record: Mapping[str, Any]) -> None:
        log(numbers(record) | words(record), step=record["step"])

    return write


def numbers(record: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a step by name, those of kinds and edits too."""
    flat = dict(record) | {f"kind/{k}": v for k, v in record["kinds"].items()}
    flat |= {f"probe/{k}": v for k, v in (record["probes"] or {}).items()}
    kept = {k: v for k, v in flat.items() if isinstance(v, float | int) and k != "step"}
    return {f"assay/{key}": value for key, value in kept.items()}


def words(record: Mapping[str, Any]) -> dict[str, str]:
    """The highest and lowest words of a step as texts."""
    return {f"assay/{key}": ", ".join(record[key]) for key in _WORDS if record[key]}


def _events(out: str) -> Tracker:
    """Writes event files of tensorboard into <out>/events; TensorFlow is not needed."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb
    from tensorboard.plugins.text.summary_v2 import text_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(Path(out) / "events"))

    def write(record: Mapping[str, Any]) -> None:
        summaries = [scalar_pb(*item) for item in numbers(record).items()]
        summaries += [text_pb(*item) for item in words(record).items()]
        for summary in summaries:
            writer.add_event(Event(wall_time=time.time(), step=record["step"], summary=summary))
        writer.flush()

    return write
