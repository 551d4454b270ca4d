"""Scores the paper's ten reward models as the paper did, and writes one report.

Writes run/ and report/ below --root; the section "The paper's numbers" compares number by number.
Each model is converted into <root>/checkpoints, fetched first unless --source-dir is given. If one
fails, the others continue and the exit status is 1. A command that was stopped continues when it
is run again.
"""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from etils import epath
from ml_collections import ConfigDict

import analysis
from analysis import report
from configs import known_models
from configs.known_models import ModelSpec
from configs.prompts import ELO
from engine.display import aligned
from engine.errors import AssayError
from engine.lists.files import list_name
from engine.runs import schema, storage
from engine.runs.folder import RunFolder
from engine.settings import ConvertSettings, PromptSettings, SweepSettings, check_choice
from engine.sweep.reward_jobs import sweep_rewards
from launch.common import command, reporting, scoring, sources
from launch.common.config import SCORING, CommandSettings
from launch.common.released_files import people, read
from launch.common.released_scores import has_human_ranks
from launch.common.reporting import ReportSettings
from launch.common.text import one_line, say

_ITEMS = "elo_greatest"  # prompt of the items
# What the paper's analysis counts; docs/reproduce-the-paper.md says what the default is.
OPTIONS = {
    "match_trim": "never",
    "frequency_join": "paper",
    "humans_matches": 0,
    "humans_in_median": True,
    "shared_ends": True,
}
_FLAGS = {
    "root": (None, "Folder for everything that is written, new or an earlier one."),
    "source-dir": (
        None,
        "Folder with one folder per model, named owner--name or by its slug. Nothing is downloaded "
        "then, and models without a folder are left out.",
    ),
    "elo": (None, "CSV of the EloEverything items with human ranks, from the authors' release."),
    "models": ([], "Slugs of the paper's models, comma-separated; by default all available."),
    "plan": (False, "Print which models would be scored, and do nothing else."),
}


def reproduce(given: command.Given) -> command.CommandResult:
    """Flags -> plan, or the scores of each model and the report."""
    root = storage.path_of(command.paths(given, "root")[0])
    folder, run, config = given["source-dir"].value, root / "run", given.config
    found = _at_hand(given.models, None if folder is None else Path(folder))
    if given.plan:
        rows = [(s.nickname, f"{s.size_b:g}B", source) for s, source in found.items()]
        return command.CommandResult("\n".join(aligned([("model", "size", "source"), *rows])))
    page_settings, failures = reporting.settings_of(config.analyze), {s.nickname: "" for s in found}
    prompts = scoring.chosen_prompts(config.prompts, ())
    humans = people(read(Path(given.elo))) if given.elo else None
    listed = list_name(Path(given.elo)) if given.elo else ""
    items = None if humans is None else (listed, humans["item"].to_list())
    scoring.settings(SweepSettings, config, [])  # refuses a value before anything is written
    with command.run_lock("reproduce", str(run), wait=given.wait):
        allowed = "the same file as before, or another --root"
        known = humans is None or has_human_ranks(run, listed, humans, allowed)
        for number, (spec, source) in enumerate(found.items(), 1):
            say(f"[{number}/{len(found)}] {spec.nickname}")
            try:
                _score(spec, source, root, config, prompts, items)
            except Exception as error:  # whatever it is, the other models need not wait for it
                failures[spec.nickname] = one_line(error)
                say(f"{spec.nickname}: {one_line(error)}; going on with the other models")
        failed = [f"{name} ({why})" for name, why in failures.items() if why]
        said = f"{len(failed)} of {len(found)} models failed: {'; '.join(failed)}\n" * bool(failed)
        if len(failed) == len(found):
            return command.CommandResult(said.strip(), exit_status=1)
        if humans is not None and not known:
            RunFolder.open(str(run)).save({schema.humans_path(listed): humans})
        scored = analysis.load(run, finished_only=True)
        page = report.write_report(scored, root / "report", reporting.metadata(), page_settings)
    facts = {"page": str(page), "failures": failures}
    return command.CommandResult(f"{said}report: {page}", lambda: facts, int(bool(failed)))


def _score(
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
    how = ConfigDict({**config, **own}), scoring.verify_setting(config)
    [model] = sources.checkpoints([source], *how)
    settings, mesh = scoring.settings(SweepSettings, config, [model])
    if model.card.pad_token_id is None:
        settings = dataclasses.replace(settings, pooling="last")
    where = (str(root / "run"), settings, mesh)
    sweep_rewards([model], prompts, *where, scoring.show_extremes)
    if items is not None:
        each = {_ITEMS: ELO[_ITEMS]}
        sweep_rewards([model], each, *where, on_outcomes=scoring.show_first_rows, items=items)


def _at_hand(slugs: Sequence[str], folder: Path | None) -> dict[ModelSpec, str]:
    """The paper's models with their folder or hub id; without `slugs` all that have one.

    Raises AssayError for an unknown slug, and where a model of `slugs`, or all, have no folder.
    """
    known, found, lacking = known_models.MODELS, {}, []
    for slug in slugs or known:
        check_choice("models", slug, [*known])
        spec = known[slug]
        names = (spec.hub_id.replace("/", "--"), slug)
        places = [folder / name for name in names] if folder else [Path(spec.hub_id)]
        if there := [p for p in places if folder is None or (p / "config.json").is_file()]:
            found[spec] = str(there[0])
        else:
            lacking.append(spec.hub_id)
    if lacking and (slugs or not found):
        what = f"no folder of {', '.join(lacking)}"
        raise AssayError(f"--source-dir={folder}: {what}; name it owner--name or by the slug")
    return found


COMMAND = command.Command(
    "reproduce",
    reproduce,
    __doc__,
    (_FLAGS, command.WAIT),
    settings=CommandSettings(
        ReportSettings,
        PromptSettings,
        *SCORING,
        without=["lens"],
        mode="text",
        pooling="first_pad",
        analyze={"options": OPTIONS},
    ),
)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
