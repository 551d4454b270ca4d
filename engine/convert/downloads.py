"""Files of a hub id, fetched by the hub's client, and one line for everything that can fail.

The client retries, resumes a lost connection, checks sizes, and shows a file in its cache only when
it is whole.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx2

from engine import processes
from engine.convert import safetensors
from engine.errors import AssayError

_QUERY = re.compile(r"\?\S*")  # of a URL, whose signature belongs in no message


def snapshot(source: str, revision: str | None, patterns: Sequence[str]) -> Path:
    """Downloads the files of a hub id that match the patterns, or finds them in the cache.

    `revision` is a commit, tag or branch; None: the main branch.

    Returns:
      The folder of the revision in the cache, which may hold other files too.

    Raises:
      AssayError: the files cannot be had; the message says why, and what to do.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()  # of small files
    with _downloading(source, revision):
        return Path(snapshot_download(source, revision=revision, allow_patterns=list(patterns)))


def download(source: str, commit: str, names: Sequence[str]) -> None:
    """Downloads large files into the folder that `snapshot` returned, one after another.

    Raises AssayError as `snapshot`.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils.tqdm import enable_progress_bars

    if processes.writes():
        enable_progress_bars()
    with _downloading(source, commit):
        for name in names:
            hf_hub_download(source, name, revision=commit)


def file_names(source: str, folder: Path) -> set[str]:
    """Names of the files of a commit, at the top of its repository; `folder` is from `snapshot`.

    In a cache that an older client has filled, and that nothing is added to: those in the folder.
    """
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    try:
        files = get_cached_repo_tree(source, revision=folder.name)
    except CachedRepoTreeNotFoundError:
        return safetensors.file_names(folder)
    return {file.path for file in files if "/" not in file.path}


@contextlib.contextmanager
def _downloading(source: str, revision: str | None) -> Iterator[None]:
    """One line for what fails."""
    try:
        yield
    except AssayError:
        raise
    except Exception as error:  # of the client, its HTTP and its disk: each becomes a line
        raise AssayError(f"{source}: {_reason(error, source, revision)}") from error


def _reason(error: Exception, source: str, revision: str | None) -> str:
    """What went wrong, where, and what to do, in one line."""
    from huggingface_hub import constants, errors

    page = f"{constants.ENDPOINT}/{source}"
    wanted = f"the revision {revision!r}" if revision else "the model"
    lacks = f"the hub's cache {constants.HF_HUB_CACHE} does not hold {wanted}"
    lines: dict[type[Exception], str] = {
        errors.HFValidationError: "allowed: an existing folder or a hub id owner/name",
        errors.OfflineModeIsEnabled: f"HF_HUB_OFFLINE is set, and {lacks}; unset it, or name an "
        "existing folder",
        errors.GatedRepoError: f"gated; accept the licence at {page} and log in with "
        "`hf auth login`",
        errors.RevisionNotFoundError: f"no revision {revision!r}; allowed: a commit, tag or branch "
        f"of {page}",
        errors.RepositoryNotFoundError: f"no such folder, and no repository {page}, unless a "
        "private one; allowed: an existing folder, a hub id owner/name, or after `hf auth login` a "
        "repository that the login may read",
        httpx2.ConnectError: f"{constants.ENDPOINT} cannot be reached, and {lacks}; check the "
        "network and HF_ENDPOINT, or name an existing folder",
    }
    cause: BaseException | None = error
    while cause is not None:
        for kind, line in lines.items():
            if isinstance(cause, kind):
                return line
        cause = cause.__cause__ or cause.__context__
    reason = _QUERY.sub("", " ".join(str(error).split()))[:300]
    return (
        f"the download failed ({type(error).__name__}: {reason}); run it again later, complete "
        "files are kept"
    )
