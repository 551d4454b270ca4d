"""Output that never fails: on a closed pipe (`| head`), or on characters it cannot encode."""

import io
import os
import sys


def escape_unencodable() -> None:
    r"""Prints what the terminal's encoding lacks, and lone surrogates, as `\xd7`, on both streams.

    The encoding is the user's: PYTHONIOENCODING=ascii, or a POSIX locale without UTF-8.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def show(text: str) -> None:
    """Prints a text; a reader that has closed the pipe is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:  # Python would complain again when it flushes at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
