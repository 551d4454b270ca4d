"""Assay for notebooks and scripts: load a model, open a run.

    >>> import assay
    >>> model = assay.load("out/demo/checkpoints/smollm2-135m-d16-rt-linear")
    >>> model.sweep("What, in one word, is the greatest thing ever?")  # polars frame
    >>> run = assay.open_run("out/demo/run")
    >>> assay.report("out/demo/checkpoints/smollm2-135m-d16-rt-linear", out="out/report")["page"]

Its packages are called `engine`, `analysis`, `configs`, `launch` and `demo`. A file of one of these
names beside a script or a notebook stands in front of them; importing this module says so.
"""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis import Run, RunError
    from analysis import load as open_run
    from engine import AssayError, ImplicitReward, LanguageModel, RewardModel
    from engine.checkpoint.card import Checkpoint

__all__ = [
    "AssayError",
    "ImplicitReward",
    "LanguageModel",
    "RewardModel",
    "Run",
    "RunError",
    "analyze",
    "convert",
    "diff",
    "load",
    "logprobs",
    "open_run",
    "report",
    "reward_of",
    "score",
    "search",
    "serve",
    "sweep",
    "verify",
    "watch",
]
_OF_RUNS = {"open_run": "load", "Run": "Run", "RunError": "RunError"}


# Any: settings are of several types.
def load(
    model: "str | PathLike[str]",
    *,
    base: str = "",
    cache: str = "",
    convert: "Mapping[str, Any] | None" = None,
    **settings: Any,
) -> "RewardModel | LanguageModel":
    """Loads a checkpoint, a model's folder, an adapter or a hub id, as commands take them.

    Args:
      model: its folder or hub id; a path object is never looked up on the hub.
      base: of an adapter, in place of the one that it names.
      cache: folder of converted models, into which a model goes that is no checkpoint; "": the
        one that commands have (`assay cache`).
      convert: settings of the conversion, by name, as in `assay convert`.
      **settings: as in `engine.load`.

    Raises:
      AssayError: no such folder, a model that is not read, or settings that do not fit it.
    """
    import engine

    how = {"base": base, "cache": cache}
    [checkpoint] = _checkpoints([model], how, convert or {}, settings.get("verify", True))
    return engine.load(checkpoint, **settings)


def reward_of(
    policy: "str | PathLike[str]",
    reference: "str | PathLike[str]",
    *,
    cache: str = "",
    convert: "Mapping[str, Any] | None" = None,
    **settings: Any,
) -> "ImplicitReward":
    """Two language models as one reward model: `engine.reward_of` of what `load` takes."""
    import engine

    both = _checkpoints([policy, reference], {"cache": cache}, convert or {})
    return engine.reward_of(*both, **settings)


# Any: settings are of several types.
def _checkpoints(
    models: "Sequence[str | PathLike[str]]",
    how: "Mapping[str, Any]",
    convert: "Mapping[str, Any]",
    verify: bool = True,
) -> "list[Checkpoint]":
    """The checkpoints of what a caller names; `how` may have `base` and `cache`."""
    import dataclasses

    from configs import known_models
    from engine.errors import AssayError
    from engine.settings import ConvertSettings, SourceSettings
    from engine.sources import resolve

    for model in models:
        if not isinstance(model, str | PathLike):
            raise AssayError(f"model={model!r}; {resolve.RULE}")
        if not isinstance(model, str) and not Path(model).is_dir():
            raise AssayError(f"{model}: no such folder; {resolve.RULE}")
    if not isinstance(convert, Mapping):
        raise AssayError(f"convert={convert!r}; allowed: a dict of settings of `assay convert`")
    fields = {field.name: field for field in dataclasses.fields(ConvertSettings)}
    for name, value in {"base": "", "cache": "", **how, **convert}.items():
        if name in convert and name not in fields:
            raise AssayError(f"convert: no setting {name!r}; allowed: {', '.join(fields)}")
        kind = type(fields[name].default) if name in fields else str
        if type(value) is not kind:
            raise AssayError(f"{name}={value!r}; allowed: values of type {kind.__name__}")
    settings = SourceSettings(
        cache=how.get("cache", ""), base=how.get("base", ""), convert=ConvertSettings(**convert)
    )
    names = [fspath(model) for model in models]
    opened = resolve.resolve_all(names, settings, known_models.find, verify)
    return resolve.with_distinct_names(names, opened, known_models.find)


# Any: values of flags and settings, and what JSON holds.
def _command(name: str) -> Callable[..., dict[str, Any]]:
    """`assay <name>` as a function."""

    def call(
        *named: Any, config: "Mapping[str, Any] | str | PathLike[str] | None" = None, **flags: Any
    ) -> dict[str, Any]:
        found: dict[str, Any] = importlib.import_module(f"launch.{name}").COMMAND.call(
            *named, config=config or {}, **flags
        )
        return found

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""Does what `assay {name}` does; `assay help {name}` lists flags and settings.

    Args:
      *named: what the command takes without a flag, such as models.
      config: settings by name, those of a section as `"mesh.model"`; or a file of them.
      **flags: flags by name, with `_` for `-`; a list has several values.

    Returns:
      What the command prints with --json; its `exit_status` is 1 where a check has found something.
      `serve` returns when its page is ready: `address`, and a `server` with `close()`.

    Raises:
      AssayError: what the command would refuse.
    """
    return call


analyze, convert, diff, logprobs = map(_command, ("analyze", "convert", "diff", "logprobs"))
report, score, search, sweep = map(_command, ("report", "score", "search", "sweep"))
serve, verify, watch = map(_command, ("serve", "verify", "watch"))


def _refuse_others() -> None:
    """Raises ImportError where another file has the name of one of Assay's packages."""
    for name in ("engine", "analysis", "configs", "launch", "demo"):
        spec = importlib.util.find_spec(name)
        places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
        found = Path(next(filter(None, places), ""))
        if found.resolve() != Path(__file__).resolve().with_name(name) / "__init__.py":
            raise ImportError(
                f"{found} has the name of Assay's package {name!r} and is found first; allowed: "
                "another name for it, or Python started in another folder"
            )


_refuse_others()


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name in _OF_RUNS:
        return getattr(importlib.import_module("analysis"), _OF_RUNS[name])
    if name in __all__:
        return getattr(importlib.import_module("engine"), name)
    raise AttributeError(f"module 'assay' has no attribute {name!r}")
