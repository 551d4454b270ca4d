"""Settings of a search, as launch.search and launch.demo read them, and what is said of it."""

from collections.abc import Sequence

from jax.sharding import Mesh
from ml_collections import ConfigDict

from engine.checkpoint.card import Checkpoint
from engine.csv_files import lines_of
from engine.errors import AssayError
from engine.search.run import SearchResult
from engine.settings import SearchSettings
from launch.common import scoring

_NAMED = 4  # new sequences that the last line quotes


def settings(config: ConfigDict, models: Sequence[Checkpoint]) -> tuple[SearchSettings, Mesh]:
    """The settings of a search's config for some models, and its mesh."""
    chosen, mesh = scoring.resolved(SearchSettings, config, models)
    return SearchSettings.of(**chosen | {"allow": _texts("allow", config.allow)}), mesh


def last_line(run: str, results: Sequence[SearchResult]) -> str:
    """The last line of a search: the new sequences with their rewards and certificates."""
    new = [result for result in results if result.new]
    more = f" and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
    sequences = ", ".join(map(_sequence, new[:_NAMED])) or "complete already"
    return f"{run}/sequences: {len(new)} new; {sequences}{more}"


def _sequence(result: SearchResult) -> str:
    notes, certificate = [], result.certificate
    if certificate is not None and certificate.better:
        notes.append(
            f"{certificate.better:,} of its {certificate.swaps:,} swaps of one token are better, "
            f"the best {certificate.best_text!r} with {certificate.best_reward:.4g}"
        )
    elif certificate is not None:
        notes.append(f"none of its {certificate.swaps:,} swaps of one token is better")
    if result.rejected:
        notes.append(f"{result.rejected} candidates rejected for their text")
    line = f"{result.direction} {result.reward:.4g} {result.text!r}"
    return f"{line} ({', '.join(notes)})" if notes else line


def _texts(name: str, path: str) -> tuple[str, ...]:
    if not path:
        return ()
    texts = tuple(filter(None, lines_of(name, path)))
    if not texts:
        raise AssayError(f"{name}={path}: empty; allowed: at least one text of a token, one a line")
    return texts
