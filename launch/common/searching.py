"""Settings of a search, and the call that launch.search and launch.demo share."""

from collections.abc import Mapping, Sequence

from jax.sharding import Mesh
from ml_collections import ConfigDict

from engine.checkpoint.card import Checkpoint
from engine.csv_files import lines_of
from engine.errors import AssayError
from engine.search.run import SearchResult, search_sequences
from engine.settings import SearchSettings
from launch.common.scoring import dtype_and_mesh, given_fields


def settings(config: ConfigDict, models: Sequence[Checkpoint]) -> tuple[SearchSettings, Mesh]:
    """The settings of a search's config for some models, and its mesh."""
    dtype, mesh = dtype_and_mesh(config, models)
    return in_dtype(config, dtype), mesh


def in_dtype(config: ConfigDict, dtype: str) -> SearchSettings:
    """The settings of a search's config, computed in this dtype."""
    chosen = given_fields(SearchSettings, config) | {
        "dtype": dtype,
        "allow": _texts("allow", config.allow),
        "deny": _texts("deny", config.deny),
        "fixed": _positions(config.fixed),
    }
    return SearchSettings.of(**chosen)


def search(
    models: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    chosen: SearchSettings,
    mesh: Mesh,
    config: ConfigDict,
) -> list[SearchResult]:
    """Searches; of `config`, `joint`, `certify` and `check_memory` are read.

    Returns:
      Each sequence that was found, new or of an earlier run.
    """
    return search_sequences(
        models,
        prompts,
        run,
        chosen,
        mesh,
        joint=config.joint,
        certify=config.certify,
        check_memory=config.check_memory,
    )


def _texts(name: str, path: str) -> tuple[str, ...]:
    if not path:
        return ()
    texts = tuple(filter(None, lines_of(name, path)))
    if not texts:
        raise AssayError(f"{name}={path}: empty; allowed: at least one text of a token, one a line")
    return texts


def _positions(value: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in value.split(",") if part.strip())
    except ValueError as error:
        raise AssayError(f"fixed={value!r}; allowed: positions, as 0,3") from error
