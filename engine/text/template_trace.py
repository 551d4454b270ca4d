"""What a chat template puts around a reply, found by running it once on a symbol.

A template is a program, and running it for every token of a vocabulary costs more than scoring
them on an accelerator. Most templates only put the reply somewhere, trimmed or not. `trace` proves
that: the symbol answers no question whose answer depends on the text, so a template that comes to
its end with it does the same for every reply.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, Self

import jinja2
from jinja2 import nodes
from jinja2.nativetypes import NativeCodeGenerator
from jinja2.sandbox import ImmutableSandboxedEnvironment


@dataclasses.dataclass(frozen=True)
class Frame:
    """What a template puts around every reply to one prompt."""

    before: str
    after: str
    trims: bool

    def render(self, reply: str) -> str:
        """The whole conversation."""
        return f"{self.before}{reply.strip() if self.trims else reply}{self.after}"


def trace(template: str, messages: Sequence[Mapping[str, str]], **variables: Any) -> Frame | None:
    """The frame of the last message's content; None where the template looks into the text.

    Args:
      template: Jinja source.
      messages: the conversation; the content of the last one does not matter.
      **variables: what else the template reads.
    """
    *earlier, last = messages
    symbolic = [*earlier, {**last, "content": _Symbol(Frame("", "", trims=False))}]
    try:
        rendered = _compiled(template).render(messages=symbolic, **variables)
    except Exception:  # a template may raise anything; it is then run for each reply instead
        return None
    return rendered._frame if isinstance(rendered, _Symbol) else None


class _Inspected(Exception):
    """The template asked the symbol something that depends on the text."""


class _Symbol:
    """Some text, unknown, with known text around it. Strings and its own trimming may touch it."""

    def __init__(self, frame: Frame):
        self._frame = frame  # the sandbox shows no template what begins with an underscore

    def strip(self) -> Self:
        if self._frame.before or self._frame.after:
            raise _Inspected  # what is trimmed then depends on the text
        return type(self)(Frame("", "", trims=True))

    def __add__(self, other: str) -> Self:
        after = self._frame.after + _plain(other)
        return type(self)(dataclasses.replace(self._frame, after=after))

    def __radd__(self, other: str) -> Self:
        before = _plain(other) + self._frame.before
        return type(self)(dataclasses.replace(self._frame, before=before))

    def __getattr__(self, name: str) -> NoReturn:
        raise _Inspected

    def _refuse(self, *_: object) -> Any:
        raise _Inspected

    __str__ = __repr__ = __format__ = __hash__ = __bool__ = __len__ = __iter__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __getitem__ = _refuse
    __int__ = __float__ = __index__ = __mul__ = __rmul__ = __mod__ = __rmod__ = __call__ = _refuse


# Tests of Jinja whose answer is the same for every string.
_OF_EVERY_STRING = {
    "string": True, "defined": True, "undefined": False, "none": False, "mapping": False,
    "number": False, "boolean": False, "iterable": True, "sequence": True,
}  # fmt: skip


@functools.cache
def _compiled(template: str) -> jinja2.Template:
    if _environment().parse(template).find(nodes.EvalContextModifier):
        raise _Inspected  # `autoescape` looks for < and &, which native code leaves to its reader
    return _environment().from_string(template)


@functools.cache
def _environment() -> jinja2.Environment:
    """As transformers sets Jinja up for chat templates; calling what it adds ends a trace."""
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    filters: dict[str, Any] = environment.filters
    filters |= {name: _guarded(function) for name, function in filters.items()}
    filters |= {"trim": _trim, "tojson": _unknown}
    # Names that exist, since a template may ask whether they do.
    environment.globals |= {"raise_exception": _unknown, "strftime_now": _unknown}
    tests: dict[str, Any] = environment.tests
    tests |= {name: _guarded(test, _OF_EVERY_STRING.get(name)) for name, test in tests.items()}
    return environment


def _joined(values: Iterable[Any]) -> Any:
    """Output of a template or a block of it: the symbol stays one."""
    total: Any = ""
    for value in values:
        total = total + (value if isinstance(value, _Symbol) else str(value))
    return total


class _Environment(ImmutableSandboxedEnvironment):
    # Native code hands values to `concat` as they are; other code makes strings of them first.
    code_generator_class = NativeCodeGenerator
    concat = staticmethod(_joined)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(argument, _Symbol):  # Jinja reads text as the name of an attribute too
            raise _Inspected
        return super().getitem(obj, argument)


def _guarded(function: Callable, answer: bool | None = None) -> Callable:
    """A filter or test that gives `answer` of a symbol, or ends the trace."""

    @functools.wraps(function)  # with Jinja's mark for functions that take a context
    def guarded(*args: Any, **named: Any) -> Any:
        if not any(isinstance(value, _Symbol) for value in (*args, *named.values())):
            return function(*args, **named)
        if answer is None or len(args) != 1 or named:
            raise _Inspected
        return answer

    return guarded


def _trim(value: Any, chars: str | None = None) -> Any:
    if isinstance(value, _Symbol) and chars is not None:
        raise _Inspected
    return value.strip() if isinstance(value, _Symbol) else str(value).strip(chars)


def _unknown(*_: object, **__: object) -> NoReturn:
    raise _Inspected


def _plain(text: object) -> str:
    # Another symbol: the reply stands twice. Jinja's `Markup`: it escapes what it is added to.
    if type(text) is not str:
        raise _Inspected
    return text
