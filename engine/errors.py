"""The one error that users see; apart from `types`, so that reading a run needs no jax."""

import contextlib
from collections.abc import Iterator


class AssayError(ValueError):
    """Bad input. The message is one line: what is wrong, where, and what is allowed."""


@contextlib.contextmanager
def prefixed(place: object) -> Iterator[None]:
    """Puts a place, such as a folder or a hub id, in front of the message of an AssayError."""
    try:
        yield
    except AssayError as error:
        raise AssayError(f"{place}: {error}") from error
