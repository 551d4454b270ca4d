"""Scores the paper's ten reward models in its conventions, and writes one report.

Each model is converted into <root>/checkpoints, fetched first where --source-dir is not given. One
that fails does not stop the others; the exit status is then 1. A call that was stopped goes on.
"""

import dataclasses
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ml_collections import ConfigDict

import analysis
from analysis import report
from configs import known_models
from configs.known_models import ModelSpec
from configs.prompts import ELO
from engine.errors import AssayError
from engine.lists.files import list_name
from engine.runs import schema, storage
from engine.runs.folder import RunFolder
from engine.settings import ConvertSettings, LogprobSettings, check_choice
from launch import pipeline
from launch.common import command, inputs, locking, reporting, scoring, sources
from launch.common.released_files import people, read
from launch.common.text import aligned
from launch.pipeline import Say

_ITEMS = "elo_greatest"  # prompt of the items
_FLAGS = {
    "root": (None, "Folder of everything that is written, new or of an earlier call."),
    "source-dir": (
        None,
        "Folder with a folder for each model, named owner--name or by its slug; nothing is "
        "downloaded then, and models without a folder are left out.",
    ),
    "elo": (None, "The EloEverything items: a CSV of the authors' release, with human ranks."),
    "models": ([], "Slugs of the paper's models; by default all that are at hand."),
    "plan": (False, "Print which models would be scored, and do nothing."),
}


@dataclasses.dataclass(kw_only=True)
class PaperModel(pipeline.Scored):
    """What the steps of one model take."""

    spec: ModelSpec
    source: str  # folder or hub id
    config: ConfigDict  # of configs/reproduce.py


def reproduce(given: command.Given) -> command.CommandResult:
    """Flags -> plan, or the steps of each model and the report."""
    root = storage.path_of(command.paths(given, "root")[0])
    folder, run, config = given["source-dir"].value, root / "run", given.config
    found = _at_hand(given.models, None if folder is None else Path(folder))
    if given.plan:
        rows = [(s.nickname, f"{s.size_b:g}B", source) for s, source in found.items()]
        return command.CommandResult("\n".join(aligned([("model", "size", "source"), *rows])))
    page_settings = reporting.settings_of(config.analyze)
    humans = people(read(Path(given.elo))) if given.elo else None
    listed = list_name(Path(given.elo)) if given.elo else ""
    settings, mesh = scoring.settings(config, [])
    make = partial(
        PaperModel,
        root=root,
        prompts=scoring.chosen_prompts(config.prompts, ()),
        items=None if humans is None else (listed, humans["item"].to_list()),
        word_prompts={_ITEMS: ELO[_ITEMS]},
        settings=settings,
        word_settings=settings,
        logprobs=LogprobSettings(form="chat", **scoring.shared_settings(config, [])[0]),
        mesh=mesh,
        config=config,
    )
    works = {spec.nickname: partial(make, spec=spec, source=at) for spec, at in found.items()}
    with locking.run_lock(given, str(run), "reproduce"):
        allowed = "the same file as before, or another --root"
        known = humans is None or inputs.has_human_ranks(run, listed, humans, allowed)
        failures = pipeline.run_each(STEPS, works)
        failed = [f"{name} ({why})" for name, why in failures.items() if why]
        said = f"{len(failed)} of {len(works)} models failed: {'; '.join(failed)}\n" * bool(failed)
        if len(failed) == len(works):
            return command.CommandResult(said.strip(), exit_status=1)
        if humans is not None and not known:
            RunFolder.open(str(run)).save({schema.humans_path(listed): humans})
        scored = analysis.load(run, finished_only=True)
        page = report.write_report(scored, root / "report", reporting.metadata(), page_settings)
    facts = {"page": str(page), "failures": failures}
    return command.CommandResult(f"{said}report: {page}", lambda: facts, 1 if failed else 0)


def convert(work: PaperModel, say: Say) -> None:
    """Opens the model in the paper's conventions; it is converted where that was not done yet."""
    spec, config = work.spec, work.config
    chosen = ConvertSettings(
        slug=spec.slug,
        bos="double",
        date=spec.date,
        head="urm-helpfulness" if spec.head == "urm" else "",
        softcap=False,
    )
    own = {"base": "", "cache": f"{work.root}/checkpoints", "convert": dataclasses.asdict(chosen)}
    verify = scoring.verify_setting(config)
    [model] = work.models = sources.checkpoints(
        [work.source], ConfigDict({**config, **own}), verify
    )
    settings, work.mesh = scoring.settings(config, [model])
    if model.card.pad_token_id is None:
        settings = dataclasses.replace(settings, pooling="last")
    work.settings = work.word_settings = settings


STEPS: Sequence[pipeline.Step[PaperModel]] = (convert, pipeline.sweep, pipeline.score)


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


COMMAND = command.Command("reproduce", reproduce, __doc__, (_FLAGS, locking.WAIT))
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
