"""Report folders: written complete or not at all, and never over anything but a report."""

import contextlib
import glob
import json
import pathlib
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence

from etils import epath

from engine.errors import AssayError
from engine.runs import storage

MARKER = "report.json"
# The verdict is of a comparison of two models alone.
_CONTENT = frozenset(
    {"index.html", "figures", "tables", MARKER, "verdict.json", "verdict.md", "card.png", "card.md"}
    | {"cards"}
)
_KIND = "assay-report"
_DAY_S = 24 * 3600


class ReportError(AssayError):
    """A report folder that must not be overwritten; the message is one line."""


def check_target(report: epath.Path, runs: Sequence[epath.Path]) -> None:
    """Checks that writing the folder `report` replaces nothing but an older report.

    Raises:
      ReportError: the folder holds something else, or a run.
    """
    if any(_resolved(run).is_relative_to(_resolved(report)) for run in runs):
        raise ReportError(f"{report}: holds a run of its own; choose another folder")
    if storage.is_file(report):
        raise ReportError(f"{report}: a file, not a folder")
    entries = set(storage.names(report))
    if not entries:
        return
    if not _is_report(report / MARKER):
        raise ReportError(f"{report}: not a report of ours (no {MARKER}); not overwritten")
    if entries - _CONTENT:
        stray = min(entries - _CONTENT)
        raise ReportError(f"{report}: holds {stray!r}, which no report does; not overwritten")


@contextlib.contextmanager
def staged(report: epath.Path, about: Mapping[str, object]) -> Iterator[pathlib.Path]:
    """A local folder to write into, which replaces `report` at the end.

    After an error the older report is still there. `about` goes into the marker file.

    Raises:
      ReportError: a file cannot be written, as on a full disk.
    """
    text = json.dumps({"kind": _KIND, "version": 1, **about}, indent=2, sort_keys=True)
    replacing = _uploaded if storage.is_remote(report) else _renamed
    try:
        with replacing(report) as fresh:
            yield fresh
            (fresh / MARKER).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        place, reason = error.filename or report, error.strerror or str(error) or "not written"
        if pathlib.Path(place).is_relative_to(
            report.parent
        ):  # perhaps a temporary folder beside it
            place, reason = report, f"{reason.splitlines()[0]}; choose another folder"
        raise ReportError(f"{place}: {reason.splitlines()[0]}") from error


@contextlib.contextmanager
def _uploaded(report: epath.Path) -> Iterator[pathlib.Path]:
    """A temporary folder, whose files replace those of a report in an object store at the end.

    A store cannot replace a folder at once. The marker comes first, so that an interrupted upload
    can be replaced. index.html comes last: it needs no other file, so its reader sees the whole
    older report or the whole new one.
    """
    with tempfile.TemporaryDirectory(prefix="assay-report-") as work:
        fresh = pathlib.Path(work)
        yield fresh
        storage.write_atomic(report / MARKER, (fresh / MARKER).read_bytes())
        for name in storage.names(report):
            if name not in (MARKER, "index.html"):  # of the older report
                storage.remove_folder(report / name)
        page = (fresh / "index.html").read_bytes()
        (fresh / "index.html").unlink()
        storage.upload(fresh, report)
        storage.write_atomic(report / "index.html", page)


@contextlib.contextmanager
def _renamed(report: epath.Path) -> Iterator[pathlib.Path]:
    """A temporary folder beside a local report, which replaces it at the end.

    What killed writers left behind is removed a day later.
    """
    target = _resolved(report)
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_left(target)
    work = pathlib.Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        fresh = work / "new"
        fresh.mkdir()
        yield fresh
        if target.exists():
            target.rename(work / "old")
        fresh.rename(target)
    finally:
        _put_back(work, target)
        shutil.rmtree(work, ignore_errors=True)


def _resolved(path: epath.Path) -> pathlib.Path:
    """A path in which two names of one folder are equal; of a store, its name is its identity."""
    return pathlib.Path(path) if storage.is_remote(path) else pathlib.Path(path).resolve()


def _put_back(work: pathlib.Path, target: pathlib.Path) -> None:
    """Moves the older report back that a writer had moved into its folder, if it wrote no other."""
    if (work / "old").exists() and not target.exists():
        (work / "old").rename(target)


def _remove_left(target: pathlib.Path) -> None:
    """Removes what writers of `target` left behind that were killed more than a day ago."""
    for work in target.parent.glob(f".{glob.escape(target.name)}.{'[a-z0-9_]' * 8}"):
        age = time.time() - work.stat().st_mtime
        if {path.name for path in work.iterdir()} <= {"new", "old"}:
            _put_back(work, target)
            if age > _DAY_S:
                shutil.rmtree(work, ignore_errors=True)


def _is_report(marker: epath.Path) -> bool:
    if not storage.is_file(marker):
        return False
    try:
        return bool(json.loads(storage.read(marker)).get("kind") == _KIND)
    except (ValueError, AttributeError):
        return False
