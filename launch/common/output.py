"""Standard output that may be closed by its reader, as by `| head`."""

import os
import sys


def show(text: str) -> None:
    """Prints a text; a reader that has closed the pipe is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:  # Python would complain again when it flushes at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
