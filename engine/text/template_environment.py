"""The Jinja environment that published chat templates are written for.

Its settings, functions, filters and tags are those of `transformers` 5.23, whose import alone takes
over a second; a test compares the renderings. `strftime_now` prints a fixed date (`fixed_now`).
"""

import datetime
import json
from collections.abc import Callable
from typing import NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

# What the error says of a template that needs a date and has none.
ASKS_DATE = "it asks for today's date"
_DATE_FORMS = ("%d %b %Y", "%d %B %Y", "%Y-%m-%d", "%B %d, %Y", "%b %d, %Y")


def chat_environment() -> ImmutableSandboxedEnvironment:
    """An environment for chat templates: a sandbox, since they come from model repositories."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    return environment


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
                f"{ASKS_DATE}, but date={date!r}; allowed: a date such as '26 Jul 2024' or "
                "'2024-07-26', fixed by `convert --config.date=…`"
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
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)  # type: ignore[arg-type]


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
