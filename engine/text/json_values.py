"""JSON values that a chat template is given beside texts."""

from collections.abc import Mapping
from typing import Any

from engine.errors import AssayError


# Any: JSON values.
def checked_json(value: Any) -> Any:
    """A JSON value; raises AssayError for lone surrogates, and for what JSON does not have."""
    if isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise AssayError("a lone surrogate; allowed: Unicode text")
    elif isinstance(value, Mapping):
        for key in value:
            checked_json(key)
            checked_json(value[key])
    elif isinstance(value, list):
        for each in value:
            checked_json(each)
    elif not isinstance(value, bool | int | float | None):
        raise AssayError(f"a value of type {type(value).__name__}; allowed: what JSON has")
    return value


# Any: JSON values.
def without_nulls(value: Any) -> Any:
    """A JSON value without keys that have no value, which columns of one type for all rows add."""
    if isinstance(value, Mapping):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value
