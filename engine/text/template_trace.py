"""Traces a chat template: finds the fixed text that it puts around a reply.

Running a template for every token of a vocabulary costs more than scoring the tokens. Most
templates only insert the reply, trimmed or not. `trace` proves that by running the template once
with a symbol in place of the reply. The symbol refuses every operation whose result depends on the
text, so a template that completes does the same for every reply.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, Self

import jinja2
from jinja2 import nodes
from jinja2.nativetypes import NativeCodeGenerator
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.text.template_environment import chat_environment


@dataclasses.dataclass(frozen=True)
class Frame:
    """The text before and after every reply, and whether the reply's white space is trimmed."""

    before: str
    after: str
    trims: bool

    def render(self, reply: str) -> str:
        """The whole conversation as text."""
        return f"{self.before}{reply.strip() if self.trims else reply}{self.after}"


def trace(
    template: str, messages: Sequence[Mapping[str, str]], **variables: object
) -> Frame | None:
    """Finds the frame around the last message, whose content is ignored.

    Returns:
      The frame, or None if the rendering may depend on the text of the last message in any other
      way.
    """
    *earlier, last = messages
    symbolic = [*earlier, {**last, "content": _Symbol(Frame("", "", trims=False))}]
    try:
        rendered = _compiled(template).render(messages=symbolic, **variables)
    except Exception:  # a template may raise anything; it is then run for each reply instead
        return None
    return rendered._frame if isinstance(rendered, _Symbol) else None


class _TextNeeded(Exception):
    """The template did something that depends on the text of the symbol."""


# Any, from here on: a value of a template is of any type, and may be the symbol.
def _refuse(*_: object, **__: object) -> Any:
    raise _TextNeeded


class _Symbol:
    """An unknown text with known text around it; only concatenation and trimming are allowed."""

    def __init__(self, frame: Frame):
        self._frame = frame  # the sandbox hides names that begin with an underscore

    def strip(self) -> Self:
        if self._frame.before or self._frame.after:
            raise _TextNeeded  # which characters are trimmed now depends on the text
        return type(self)(Frame("", "", trims=True))

    def __add__(self, other: str) -> Self:
        return type(self)(dataclasses.replace(self._frame, after=self._frame.after + _plain(other)))

    def __radd__(self, other: str) -> Self:
        before = _plain(other) + self._frame.before
        return type(self)(dataclasses.replace(self._frame, before=before))

    def __getattr__(self, name: str) -> NoReturn:
        raise _TextNeeded

    __str__ = __repr__ = __format__ = __hash__ = __bool__ = __len__ = __iter__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __getitem__ = _refuse
    __int__ = __float__ = __index__ = __mul__ = __rmul__ = __mod__ = __rmod__ = __call__ = _refuse


# Jinja tests that give the same answer for every string.
_TRUE_OF_STRINGS = ("string", "defined", "iterable", "sequence")
_FALSE_OF_STRINGS = ("undefined", "none", "mapping", "number", "boolean")
_ANSWERS = dict.fromkeys(_TRUE_OF_STRINGS, True) | dict.fromkeys(_FALSE_OF_STRINGS, False)


class _SymbolicEnvironment(ImmutableSandboxedEnvironment):
    # Native code passes values to `concat` unchanged; other code converts them to strings first.
    code_generator_class = NativeCodeGenerator

    @staticmethod
    def concat(values: Iterable[Any]) -> Any:
        total: Any = ""
        for value in values:
            total = total + (value if isinstance(value, _Symbol) else str(value))
        return total

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(argument, _Symbol):  # Jinja also takes a text as the name of an attribute
            raise _TextNeeded
        return super().getitem(obj, argument)


@functools.cache
def _compiled(template: str) -> jinja2.Template:
    if _environment().parse(template).find(nodes.EvalContextModifier):
        raise _TextNeeded  # `autoescape` replaces < and & in the text
    return _environment().from_string(template)


@functools.cache
def _environment() -> jinja2.Environment:
    """The environment of chat templates; functions that could see the symbol end the trace."""
    environment = chat_environment(_SymbolicEnvironment)
    filters: dict[str, Any] = environment.filters  # Any: Jinja types them by name
    filters |= {name: _guarded(function) for name, function in filters.items()}
    filters |= {"trim": _trim, "tojson": _refuse}
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _refuse}
    tests: dict[str, Any] = environment.tests
    tests |= {name: _guarded(test, _ANSWERS.get(name)) for name, test in tests.items()}
    return environment


def _guarded(function: Callable[..., Any], answer: bool | None = None) -> Callable[..., Any]:
    """A filter or test that returns `answer` for the symbol alone, or ends the trace."""

    @functools.wraps(function)  # keeps Jinja's mark on functions that take a context
    def guarded(*args: Any, **named: Any) -> Any:
        if not any(isinstance(value, _Symbol) for value in (*args, *named.values())):
            return function(*args, **named)
        if answer is None or len(args) != 1 or named:
            raise _TextNeeded
        return answer

    return guarded


def _trim(value: Any, chars: str | None = None) -> Any:
    if isinstance(value, _Symbol):
        return _refuse() if chars is not None else value.strip()
    return str(value).strip(chars)


def _plain(text: object) -> str:
    # A second symbol: the reply occurs twice. Jinja's `Markup`: it escapes the text added to it.
    if type(text) is not str:
        raise _TextNeeded
    return text
