"""Settings of a search, and the call that launch.gcg and launch.demo share."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from jax.sharding import Mesh
from ml_collections import ConfigDict

from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.search.run_folder import SearchResult, score_elsewhere, search_sequences
from engine.search.settings import SearchSettings
from launch.common.scoring import dtype_and_mesh


def settings(config: ConfigDict, models: Sequence[Checkpoint]) -> tuple[SearchSettings, Mesh]:
    """The settings of a search's config for some models, and its mesh."""
    dtype, mesh = dtype_and_mesh(config, models)
    fields = {field.name for field in dataclasses.fields(SearchSettings)}
    own = {name: value for name, value in config.items() if name in fields} | {
        "dtype": dtype,
        "allow": _texts("allow", config.allow),
        "deny": _texts("deny", config.deny),
        "fixed": _positions(config.fixed),
    }
    return SearchSettings(**own), mesh


def search(
    models: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    own: SearchSettings,
    mesh: Mesh,
    config: ConfigDict,
    judges: Sequence[Checkpoint] = (),
) -> list[SearchResult]:
    """Searches, then scores the found sequences under other models.

    Args:
      models: models to search.
      prompts: prompt id -> text.
      run: run folder.
      own: settings of the search.
      mesh: devices.
      config: of which `joint` (one search for all prompts), `check_memory` and `transfer` are
        read.
      judges: models that score what was found, if `transfer` is set; by default those searched.

    Returns:
      Each sequence that was found, new or of an earlier run.
    """
    found = search_sequences(
        models, prompts, run, own, mesh, joint=config.joint, check_memory=config.check_memory
    )
    judges = judges or models
    if config.transfer and len(judges) > 1 and not config.joint:
        texts, check = [f.text for f in found], config.check_memory
        score_elsewhere(judges, prompts, run, texts, own, mesh, check_memory=check)
    return found


def _texts(name: str, path: str) -> tuple[str, ...]:
    if not path:
        return ()
    try:
        texts = tuple(filter(None, Path(path).read_text(encoding="utf-8").split("\n")))
    except UnicodeDecodeError as error:
        raise AssayError(
            f"{name}={path}: byte {error.start} is not UTF-8; allowed: UTF-8"
        ) from error
    except OSError as error:
        raise AssayError(f"{name}={path}: {error.strerror}") from error
    if not texts:
        raise AssayError(f"{name}={path}: empty; allowed: at least one text of a token, one a line")
    return texts


def _positions(value: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in value.split(",") if part.strip())
    except ValueError as error:
        raise AssayError(f"fixed={value!r}; allowed: positions, as 0,3") from error
