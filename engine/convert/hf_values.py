"""Checked access to the attributes of a parsed config.json."""

import math
from collections.abc import Mapping
from typing import Any

from engine.errors import AssayError

# A parsed JSON object; Any, since its values are of any type until they are checked.
Json = Mapping[str, Any]

MOST_LAYERS = 1000  # of a model: before anything is built for each of them
_LARGEST = 2**40  # no number in a config.json of a real model is larger


def number(hf: Json, name: str) -> int | float:
    """A number; raises AssayError where it is missing, null, or another value."""
    value = hf.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGEST:
        raise AssayError(f"config.json: {name}={short(value)}; allowed: a number")
    return value


def positive(hf: Json, name: str) -> float:
    """A finite number above 0; raises AssayError where it is missing, null, or another value."""
    value = float(number(hf, name))
    if not 0 < value < math.inf:
        raise AssayError(f"config.json: {name}={value}; allowed: numbers above 0")
    return value


def integer(hf: Json, name: str, default: int | None = None) -> int:
    """An integer, or `default` if it is missing or null; raises AssayError for another value."""
    value = hf.get(name) if hf.get(name) is not None else default
    if isinstance(value, bool) or not isinstance(value, int) or not abs(value) < _LARGEST:
        raise AssayError(f"config.json: {name}={short(value)}; allowed: an integer")
    return value


def boolean(hf: Json, name: str, default: bool) -> bool:
    """True or false, or `default` if it is missing; raises AssayError for another value."""
    value = hf.get(name, default)
    if not isinstance(value, bool):
        raise AssayError(f"config.json: {name}={value!r}; allowed: true, false")
    return value


def optional(hf: Json, name: str) -> float | None:
    """A number, or None if it is missing or null; raises AssayError for another value."""
    return None if hf.get(name) is None else float(number(hf, name))


def short(value: object) -> str:
    """A value in a message, cut where it is long."""
    text = repr(value)
    return text if len(text) < 60 else text[:50] + "…"
