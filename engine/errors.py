"""The one error that users see; apart from `types`, so that reading a run needs no jax."""

import contextlib
import re
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


@contextlib.contextmanager
def malformed(place: object) -> Iterator[None]:
    """Makes an AssayError, with a place, of what malformed values raise in code that reads them."""
    try:
        yield
    except AssayError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, re.error) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise AssayError(
            f"{place}: a value of the wrong type or out of range ({reason})"
        ) from error
