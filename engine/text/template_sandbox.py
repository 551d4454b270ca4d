"""Renders chat templates in a child process with limits on time and memory.

A chat template is a program that comes with a model. Jinja's sandbox keeps it away from files and
from Python's internals, but nothing inside a process stops `2 ** (2 ** 40)`, during which Python
handles no signals. The operating system stops the child, `python -m` this module. It reads and
writes one line of JSON per request.
"""

import atexit
import contextlib
import datetime
import functools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.errors import AssayError

CPU_SECONDS = 2  # for one request, of at most `_BATCH` conversations
LONGEST_TEXT = 1_000_000  # characters of a rendered conversation beside its messages
MEMORY_BYTES = 1 << 30
_BATCH = 128
_LONGEST_REASON = 200  # characters
_DATE_FORMS = ("%d %b %Y", "%d %B %Y", "%Y-%m-%d", "%B %d, %Y", "%b %d, %Y")

# Messages with `role`, `content`, and what else the template may read. Any: JSON values.
Conversation = Sequence[Mapping[str, Any]]
Variables = Mapping[str, object]  # what a template reads beside the messages: JSON values


_lock = threading.Lock()  # one request at a time


def render(
    template: str, conversations: Sequence[Conversation], variables: Variables, date: str | None
) -> list[str]:
    """Renders conversations by hostile Jinja source, which reads `variables` beside the messages.

    A template that asks for today's date prints `date`, and is refused where that is None.

    Raises:
      AssayError: the template raised an exception or exceeded a limit.
    """
    texts = []
    for start in range(0, len(conversations), _BATCH):
        batch = conversations[start : start + _BATCH]
        texts += _answered(template, batch, variables, date)
    return texts


def read_names(template: str) -> set[str]:
    """Names of variables that hostile Jinja source reads; raises as `render`."""
    return set(_answered(template))


def _answered(*request: object) -> list[str]:
    """What `_render`, or of a template alone `_read_names`, returns in the child.

    Raises as `render`.
    """
    sent = json.dumps(request).encode() + b"\n"
    with _lock:
        child = _child()
        assert child.stdin is not None and child.stdout is not None
        line = b""
        try:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(sent)
                child.stdin.flush()
            line = child.stdout.readline()
        finally:  # after an error, too, which leaves an answer unread
            if not line.endswith(b"\n"):
                _stop(child)
                _child.cache_clear()
    if not line.endswith(b"\n"):
        limit = f"stopped after {CPU_SECONDS} seconds of CPU time"
        ended = f"its process, of at most 1 GiB, ended with status {child.returncode}"
        raise AssayError(limit if child.returncode == -signal.SIGPROF else ended)
    texts, error = json.loads(line)
    if error:
        raise AssayError(error)
    return list(texts)


@functools.cache
def _child() -> subprocess.Popen[bytes]:
    """The child process, started by the first request, and again after it was stopped."""
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    child = subprocess.Popen(
        [sys.executable, "-P", "-W", "ignore", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )
    atexit.register(_stop, child)
    return child


def _stop(child: subprocess.Popen[bytes]) -> None:
    atexit.unregister(_stop)
    child.kill()
    child.communicate()


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
        try:
            request = json.loads(line)
            answered = _render if len(request) > 1 else _read_names
            answer = json.dumps([answered(*request), ""])
        except Exception as error:  # a template may raise anything, MemoryError included
            answer = json.dumps([None, _reason(error)])
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(answer.encode() + b"\n")
        sys.stdout.buffer.flush()


def parsed_date(text: str) -> datetime.date | None:
    """The date that a text is; None for another text."""
    for form in _DATE_FORMS:
        try:
            return datetime.datetime.strptime(text.strip(), form).date()
        except ValueError:
            continue
    return None


def spelled(date: datetime.date) -> str:
    """A date as Llama's templates print it: `26 Jul 2024`."""
    return date.strftime(_DATE_FORMS[0])


def fixed_now(date: str | None) -> Callable[[str], str]:
    """The function `strftime_now` of a template whose date is fixed: midnight of that date.

    Without a date it ends the template: today's would give other rewards tomorrow.
    """

    def strftime_now(form: str) -> str:
        day = None if date is None else parsed_date(date)
        if day is None:
            raise jinja2.TemplateError(
                f"it asks for today's date, but date={date!r}; allowed: a date such as '26 Jul "
                "2024' or '2024-07-26', fixed by `convert --config.date=…`"
            )
        return datetime.datetime.combine(day, datetime.time()).strftime(form)

    return strftime_now


class _Generation(Extension):
    """`{% generation %}`, which marks the assistant's turn for training; it renders its body."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Callable[[], str]) -> str:
        return caller()


def _tojson(value: object, ensure_ascii: bool = False, **options: object) -> str:
    """JSON without Jinja's escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)  # type: ignore[arg-type]  # a template may pass any option of json.dumps


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _render(
    template: str, conversations: Sequence[Conversation], variables: Variables, date: str | None
) -> list[str]:
    variables = {**variables, "strftime_now": fixed_now(date)}
    texts: list[str] = []
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # its signal ends the process
    compiled = _compiled(template)
    for messages in conversations:
        contents = [message[key] for message in messages for key in message if key != "role"]
        given = "".join(map(str, contents))  # before a template changes them
        texts.append(compiled.render(messages=messages, **variables))
        if (added := len(texts[-1]) - len(given)) > LONGEST_TEXT:
            reason = f"it adds {added:,} characters to its messages; allowed: {LONGEST_TEXT:,}"
            raise jinja2.TemplateError(reason)
        if any("\ud800" <= character <= "\udfff" for character in {*texts[-1]} - {*given}):
            raise jinja2.TemplateError("it adds lone surrogates; allowed: Unicode text")
    return texts


def _read_names(template: str) -> list[str]:
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # its signal ends the process
    return sorted(meta.find_undeclared_variables(_environment().parse(template)))


@functools.lru_cache(maxsize=16)
def _compiled(template: str) -> jinja2.Template:
    return _environment().from_string(template)


def _environment() -> jinja2.Environment:
    """The sandbox that published chat templates are written for.

    Its settings, functions, filters and tags are those of `transformers` 5.23, whose import alone
    takes over a second; a test compares the renderings.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    return environment


def _reason(error: Exception) -> str:
    """One line about what a template raised."""
    from_template = isinstance(error, jinja2.TemplateError)
    line = " ".join((str(error) if from_template else f"{type(error).__name__}: {error}").split())
    return line[:_LONGEST_REASON]


if __name__ == "__main__":
    _serve()
