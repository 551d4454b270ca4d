"""The paper's ten models: which are at hand, and one of them scored in the paper's conventions."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from etils import epath
from ml_collections import ConfigDict

from configs import known_models
from configs.known_models import ModelSpec
from configs.prompts import ELO
from engine.errors import AssayError
from engine.settings import ConvertSettings, SweepSettings, check_choice
from engine.sweep.reward_jobs import sweep_rewards
from launch.common import scoring, sources

_ITEMS = "elo_greatest"  # prompt of the items


def score(
    spec: ModelSpec,
    source: str,
    root: epath.Path,
    config: ConfigDict,
    prompts: Mapping[str, str],
    items: tuple[str, Sequence[str]] | None,
) -> None:
    """Scores a model in the paper's conventions; it is converted where that was not done yet."""
    chosen = ConvertSettings(
        slug=spec.slug,
        bos="double",
        date=spec.date,
        head="urm-helpfulness" if spec.head == "urm" else "",
        softcap=False,
    )
    own = {"base": "", "cache": f"{root}/checkpoints", "convert": dataclasses.asdict(chosen)}
    how = ConfigDict({**config, **own}), config.verify
    [model] = sources.checkpoints([source], *how)
    settings, mesh = scoring.settings(SweepSettings, config, [model])
    if model.card.pad_token_id is None:
        settings = dataclasses.replace(settings, pooling="last")
    arguments = (str(root / "run"), settings, mesh)
    sweep_rewards([model], prompts, *arguments, scoring.show_extremes)
    if items is not None:
        word_prompts = {_ITEMS: ELO[_ITEMS]}
        sweep_rewards(
            [model], word_prompts, *arguments, on_outcomes=scoring.show_first_rows, items=items
        )


def at_hand(slugs: Sequence[str], folder: Path | None) -> dict[ModelSpec, str]:
    """The paper's models with their folder or hub id; without `slugs` all that have one.

    Raises AssayError for an unknown slug, and where a model of `slugs`, or all, have no folder.
    """
    known, models, lacking = known_models.MODELS, {}, []
    for slug in slugs or known:
        check_choice("models", slug, [*known])
        spec = known[slug]
        names = (spec.hub_id.replace("/", "--"), slug)
        places = [folder / name for name in names] if folder else [Path(spec.hub_id)]
        if present := [p for p in places if folder is None or (p / "config.json").is_file()]:
            models[spec] = str(present[0])
        else:
            lacking.append(spec.hub_id)
    if lacking and (slugs or not models):
        what = f"no folder of {', '.join(lacking)}"
        raise AssayError(f"--source-dir={folder}: {what}; name it owner--name or by the slug")
    return models
