"""Renders chat templates in a child process with limits on time, memory and output.

A chat template is a program that comes with a model. Jinja's sandbox keeps it away from files and
from Python's internals, but nothing inside a process stops `'x' * 10**10` or `2 ** (2 ** 40)`,
during which Python handles no signals. The operating system can stop a process at any time. One
child serves all templates of this process: it starts in a tenth of a second, answers a request in a
tenth of a millisecond, and is replaced after it was stopped.

Parent and child exchange lines of JSON. The child is `python -m engine.text.template_sandbox`.
"""

import atexit
import contextlib
import functools
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from engine.errors import AssayError
from engine.text.template_environment import chat_environment, fixed_now
from engine.text.template_trace import Frame, trace

CPU_SECONDS = 2  # for one request, of at most `_BATCH` conversations
MEMORY_BYTES = 1 << 30
ADDED_CHARACTERS = 100_000  # by which a rendered conversation may exceed its messages
_BATCH = 128
_LONGEST_REASON = 200  # characters

Conversation = Sequence[Mapping[str, str]]  # messages with `role` and `content`


def render(
    template: str,
    conversations: Sequence[Conversation],
    variables: Mapping[str, object],
    date: str | None,
) -> list[str]:
    """Renders conversations as text.

    Args:
      template: Jinja source; hostile input.
      conversations: the conversations.
      variables: other variables that the template reads; JSON values.
      date: what a template that asks for today's date prints; None: such a template is refused.

    Returns:
      One text per conversation.

    Raises:
      AssayError: the template raised an exception or exceeded a limit.
    """
    texts: list[str] = []
    for start in range(0, len(conversations), _BATCH):
        batch = conversations[start : start + _BATCH]
        texts += _child.ask(
            {
                "task": "render",
                "template": template,
                "conversations": batch,
                "variables": variables,
                "date": date,
            }
        )
    return texts


def find_frame(
    template: str, conversation: Conversation, variables: Mapping[str, object], date: str | None
) -> Frame | None:
    """Finds the text around the last message, as `template_trace.trace` does.

    Raises:
      AssayError: the template exceeded a limit.
    """
    fields = _child.ask(
        {
            "task": "trace",
            "template": template,
            "messages": conversation,
            "variables": variables,
            "date": date,
        }
    )
    return None if fields is None else Frame(**fields)


def asks_date(template: str, conversation: Conversation, variables: Mapping[str, object]) -> bool:
    """Whether a template asks for today's date.

    Raises:
      AssayError: the template raised an exception or exceeded a limit.
    """
    asks: bool = _child.ask(
        {
            "task": "asks_date",
            "template": template,
            "messages": conversation,
            "variables": variables,
        }
    )
    return asks


class _Child:
    """The child process: started by the first request, and again after it was stopped."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    # Any: what JSON holds.
    def ask(self, request: Mapping[str, object]) -> Any:
        """The child's answer to one request.

        Raises:
          AssayError: the template raised an exception or exceeded a limit.
        """
        with self._lock:
            process = self._process = self._process or _start()
            whole = False
            try:
                line = _exchange(process, json.dumps(request).encode())
                whole = line.endswith(b"\n")
            finally:  # also on KeyboardInterrupt, which leaves an answer unread
                if not whole:
                    self.stop()
        if not whole:
            raise AssayError(_reason_of_end(process.returncode))
        answer = json.loads(line)
        if "error" in answer:
            raise AssayError(answer["error"])
        return answer["result"]

    def stop(self) -> None:
        """Ends the child, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.poll()  # keep the exit status of a child that has ended by itself
            process.kill()
            with contextlib.suppress(BrokenPipeError), process:
                pass


_child = _Child()
atexit.register(_child.stop)


def _start() -> subprocess.Popen[bytes]:
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-W", "ignore", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )


def _exchange(process: subprocess.Popen[bytes], request: bytes) -> bytes:
    """The line that the child answers; empty or cut off if the child ended."""
    assert process.stdin is not None and process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(request + b"\n")
        process.stdin.flush()
    line = process.stdout.readline()
    if not line.endswith(b"\n"):
        process.wait()
    return line


def _reason_of_end(status: int) -> str:
    if status == -signal.SIGPROF:
        return f"stopped after {CPU_SECONDS} seconds of CPU time"
    return f"its rendering process ended with status {status}"


def _serve() -> None:
    """The child: answers requests until its input ends."""
    import resource

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, with which it ends
    # A process inherits what its parent ignores and blocks, and libtpu makes it ignore this signal.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    with contextlib.suppress(ValueError, OSError):  # a lower limit is in force, or none can be set
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # its signal ends the process
        try:
            answer = json.dumps({"result": _answer(**json.loads(line))})
        except Exception as error:  # a template may raise anything, MemoryError included
            answer = json.dumps({"error": _reason(error)})
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(answer.encode() + b"\n")
        sys.stdout.buffer.flush()


# Any, below: what JSON holds.
def _answer(
    task: str, template: str, variables: Mapping[str, Any], date: str | None = None, **given: Any
) -> Any:
    variables = {**variables, "strftime_now": fixed_now(date)}
    if task == "render":
        compiled = _compiled(template)
        return [_rendered(compiled, messages, variables) for messages in given["conversations"]]
    if task == "asks_date":
        calls = itertools.count()
        variables |= {"strftime_now": lambda form: str(next(calls))}
        _rendered(_compiled(template), given["messages"], variables)
        return next(calls) > 0
    frame = trace(template, given["messages"], **variables)
    if frame is None:
        return None
    _check_text(frame.render(""), given["messages"])
    return vars(frame)


def _rendered(
    template: jinja2.Template, messages: Conversation, variables: Mapping[str, Any]
) -> str:
    text = template.render(messages=messages, **variables)
    _check_text(text, messages)
    return text


def _check_text(text: str, messages: Conversation) -> None:
    added = len(text) - sum(len(message["content"]) for message in messages)
    if added > ADDED_CHARACTERS:
        raise AssayError(
            f"it adds {added:,} characters to its messages; allowed: {ADDED_CHARACTERS:,}"
        )
    given = {character for message in messages for character in message["content"]}
    if any("\ud800" <= character <= "\udfff" for character in set(text) - given):
        raise AssayError("it adds lone surrogates; allowed: Unicode text")


@functools.lru_cache(maxsize=16)
def _compiled(template: str) -> jinja2.Template:
    return chat_environment().from_string(template)


def _reason(error: Exception) -> str:
    """One line about what a template raised."""
    if isinstance(error, MemoryError):
        return f"it needs more than {MEMORY_BYTES >> 30} GiB of memory"
    said = isinstance(error, jinja2.TemplateError | AssayError)
    text = str(error) if said else f"{type(error).__name__}: {error}"
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_REASON else line[:_LONGEST_REASON] + "…"


if __name__ == "__main__":
    _serve()
