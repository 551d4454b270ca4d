"""Text of commands: misspelt names, comma-separated settings, and printing."""

import difflib
import io
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path

from engine.errors import AssayError


def nearest(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for the most similar known name; "" where none is similar."""
    close = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def pieces(text: str) -> tuple[str, ...]:
    """The pieces of a comma-separated setting, without empty ones."""
    return tuple(piece.strip() for piece in text.split(",") if piece.strip())


def escape_unencodable() -> None:
    r"""Prints what the terminal's encoding lacks, and lone surrogates, as `\xd7`, on both streams.

    The encoding is the user's: PYTHONIOENCODING=ascii, or a POSIX locale without UTF-8.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def one_line(error: Exception) -> str:
    """An error in one line, an unexpected one with its place.

    `python -X dev` prints the traceback of an unexpected one.
    """
    message = " ".join(str(error).split())
    if isinstance(error, AssayError):
        return message
    if sys.flags.dev_mode:
        traceback.print_exception(error)
    frames = traceback.extract_tb(error.__traceback__)
    last = ([frame for frame in frames if "site-packages" not in frame.filename] or frames)[-1]
    return f"{type(error).__name__} ({Path(last.filename).name}:{last.lineno}): {message}"[:600]


def show(text: str) -> None:
    """Prints a text; a reader that has closed the pipe is no error, and a full disk is one."""
    try:
        print(text, flush=True)
    except OSError as error:  # Python would complain again when it flushes at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise AssayError(f"standard output: {error.strerror}") from error


def say(line: str) -> None:
    """Prints a line of progress on standard error."""
    print(line, file=sys.stderr, flush=True)
