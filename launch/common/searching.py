"""Settings of a search, as launch.search and launch.demo read them."""

from collections.abc import Sequence

from jax.sharding import Mesh
from ml_collections import ConfigDict

from engine.checkpoint.card import Checkpoint
from engine.csv_files import lines_of
from engine.errors import AssayError
from engine.settings import SearchSettings
from launch.common import scoring


def settings(config: ConfigDict, models: Sequence[Checkpoint]) -> tuple[SearchSettings, Mesh]:
    """The settings of a search's config for some models, and its mesh."""
    chosen, mesh = scoring.resolved(SearchSettings, config, models)
    chosen |= {name: _texts(name, config[name]) for name in ("allow", "deny")}
    chosen["fixed"] = _positions(config.fixed)
    return SearchSettings.of(**chosen), mesh


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
