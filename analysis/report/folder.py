"""Report folders: written complete or not at all, and never over anything but a report."""

import contextlib
import fcntl
import glob
import json
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from engine.errors import AssayError

MARKER = "report.json"
_CONTENT = frozenset({"index.html", "figures", "tables", MARKER})
_KIND = "assay-report"
_LOCK = "writer.lock"  # Held while its writer lives; the kernel releases it, even after kill -9.


class ReportError(AssayError):
    """A report folder that must not be overwritten; the message is one line."""


def check_target(report: pathlib.Path, runs: Sequence[pathlib.Path]) -> None:
    """Checks that writing the folder `report` replaces nothing but an older report.

    Raises:
      ReportError: the folder holds something else, or a run.
    """
    if any(run.resolve().is_relative_to(report.resolve()) for run in runs):
        raise ReportError(f"{report}: holds a run of its own; choose another folder")
    if not report.exists():
        return
    if not report.is_dir():
        raise ReportError(f"{report}: a file, not a folder")
    entries = {path.name for path in report.iterdir()}
    if not entries:
        return
    if not _is_report(report / MARKER):
        raise ReportError(f"{report}: not a report of ours (no {MARKER}); not overwritten")
    if entries - _CONTENT:
        stray = min(entries - _CONTENT)
        raise ReportError(f"{report}: holds {stray!r}, which no report does; not overwritten")


@contextlib.contextmanager
def staged(report: pathlib.Path, about: Mapping[str, object]) -> Iterator[pathlib.Path]:
    """A temporary folder to write into, which replaces `report` at the end.

    After an error the older report is still there. `about` goes into the marker file. Folders left
    behind by killed writers are removed.
    """
    target = report.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_dead(target)
        work = pathlib.Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        lock = (work / "unlocked").open("w")
        _taken(lock)
        (work / "unlocked").rename(work / _LOCK)  # It is locked before anyone sees it.
    except OSError as error:
        raise ReportError(f"{report}: {error.strerror}; choose another folder") from error
    try:
        fresh = work / "new"
        fresh.mkdir()
        yield fresh
        text = json.dumps({"kind": _KIND, "version": 1, **about}, indent=2, sort_keys=True)
        (fresh / MARKER).write_text(text + "\n", encoding="utf-8")
        if target.exists():
            target.rename(work / "old")
        fresh.rename(target)
    finally:
        _clear(work, target)
        lock.close()


def _clear(work: pathlib.Path, target: pathlib.Path) -> None:
    """Removes a writer's folder; an older report that it had moved there goes back."""
    if (work / "old").exists() and not target.exists():
        (work / "old").rename(target)
    shutil.rmtree(work, ignore_errors=True)


def _remove_dead(target: pathlib.Path) -> None:
    """Clears the folders of writers of `target` that are dead."""
    for work in target.parent.glob(f".{glob.escape(target.name)}.*"):
        ours = re.fullmatch(r"[a-z0-9_]{8}", work.name.removeprefix(f".{target.name}."))
        if ours and (work / _LOCK).is_file():
            with contextlib.suppress(FileNotFoundError), (work / _LOCK).open() as lock:
                if _taken(lock):
                    _clear(work, target)


def _taken(lock: IO[str]) -> bool:
    """Takes a lock; False where another process holds it, or the file system has no locks."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_report(marker: pathlib.Path) -> bool:
    try:
        return bool(json.loads(marker.read_text(encoding="utf-8")).get("kind") == _KIND)
    except (OSError, ValueError, AttributeError):
        return False
