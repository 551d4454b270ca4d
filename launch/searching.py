"""Settings and the call that launch.gcg and launch.demo share."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from jax.sharding import Mesh
from ml_collections import ConfigDict

from engine.api import default_dtype
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.mesh import build_mesh
from engine.search.run_folder import Found, score_elsewhere, search_sequences
from engine.search.settings import SearchSettings


def settings(config: ConfigDict, models: Sequence[Checkpoint]) -> tuple[SearchSettings, Mesh]:
    """The settings of a search's config for some models, and its mesh."""
    mesh = build_mesh(config.mesh.model)
    platform, auto = mesh.devices.flat[0].platform, config.dtype == "auto"
    fields = {field.name for field in dataclasses.fields(SearchSettings)}
    own = {name: value for name, value in config.items() if name in fields} | {
        "dtype": default_dtype(platform, models) if auto else config.dtype,
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
) -> list[Found]:
    """Searches, and scores what was found under the other models: `judges`, or those searched."""
    found = search_sequences(models, prompts, run, own, mesh, joint=config.joint)
    judges = judges or models
    if config.transfer and len(judges) > 1 and not config.joint:
        score_elsewhere(judges, prompts, run, [f.text for f in found], own, mesh)
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
