"""Settings of a search, and the call that launch.search and launch.demo share."""

from collections.abc import Mapping, Sequence

from jax.sharding import Mesh
from ml_collections import ConfigDict

from engine.checkpoint.card import REWARD, Checkpoint
from engine.errors import AssayError
from engine.search.run_folder import SearchResult, score_elsewhere, search_sequences
from engine.settings import SearchSettings
from engine.sweep import setup
from launch.common import sources
from launch.common.scoring import dtype_and_mesh, given_fields
from launch.common.text import lines_of, pieces


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
    judges: Sequence[Checkpoint] = (),
) -> list[SearchResult]:
    """Searches, then scores the found sequences under other models.

    Of `config`, `joint` and `universal` (one search for all prompts, or all models and prompts),
    `judges`, `check_memory` and `transfer` are read. If `transfer` is set, what was found is scored
    by `judges`, by default the models that were searched, and by those of `config.judges`.

    Returns:
      Each sequence that was found, new or of an earlier run.
    """
    extra_judges = _extra_judges([*models, *judges], config)
    if extra_judges:  # before the search: slugs given twice, or that stand for others in the run
        setup.open_run(run, [*models, *extra_judges], prompts, chosen, mesh)
    check = config.check_memory
    if config.universal and config.joint:
        raise AssayError(f"joint=True with universal={config.universal!r}; allowed: one of both")
    found = search_sequences(
        models,
        prompts,
        run,
        chosen,
        mesh,
        joint=config.joint,
        rule=config.universal,
        check_memory=check,
    )
    judges = [*(judges or models), *extra_judges]
    if config.transfer and len(judges) * len(prompts) > 1 and not config.joint:
        texts = [f.text for f in found]
        score_elsewhere(judges, prompts, run, texts, chosen, mesh, check_memory=check)
    return found


def _extra_judges(known: Sequence[Checkpoint], config: ConfigDict) -> list[Checkpoint]:
    """The models of `judges` that do not score anyway.

    Raises AssayError for a model that is no reward model, or settings with which none would score.
    """
    paths = pieces(config.judges)
    for name, needed in (("transfer", True), ("joint", False)):
        if paths and config[name] != needed:
            raise AssayError(
                f"judges={config.judges!r} with {name}={config[name]}, so that none of them would "
                f"score what is found; allowed: {name}={needed}"
            )
    hashes = {model.card.checkpoint_hash for model in known}
    others = sources.plain_checkpoints(paths, config)
    for other in others:
        other.expect(REWARD)
    return [other for other in others if other.card.checkpoint_hash not in hashes]


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
