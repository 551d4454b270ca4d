"""Scores the paper's ten reward models as the paper did, and writes one report.

Writes run/ and report/ below --root; the section "The paper's numbers" compares number by number.
Each model is converted into <root>/checkpoints, fetched first unless --source-dir is given. If one
fails, the others continue and the exit status is 1. A command that was stopped continues when it
is run again.
"""

import sys
from pathlib import Path

import analysis
from analysis import report
from engine.lists.files import list_name
from engine.runs import schema, storage
from engine.runs.folder import RunFolder
from engine.settings import PromptSettings, SweepSettings
from launch.common import command, paper_models, reporting, scoring
from launch.common.config import SCORING, CommandSettings
from launch.common.released_scores import has_human_ranks, people, read
from launch.common.reporting import ReportSettings
from launch.common.text import one_line, say

# What the paper's analysis counts; docs/reproduce-the-paper.md says what the default is.
OPTIONS = {
    "match_trim": "never",
    "frequency_join": "paper",
    "humans_matches": 0,
    "humans_in_median": True,
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
}


def reproduce(given: command.Given) -> command.CommandResult:
    """Flags -> the scores of each model, and the report."""
    root = storage.path_of(command.paths(given, "root")[0])
    folder, run, config = given["source-dir"].value, root / "run", given.config
    models = paper_models.at_hand(given.models, None if folder is None else Path(folder))
    page_settings, failures = reporting.settings_of(config.analyze), dict[str, str]()
    prompts = scoring.chosen_prompts(config.prompts, ())
    humans = people(read(Path(given.elo))) if given.elo else None
    listed = list_name(Path(given.elo)) if given.elo else ""
    items = None if humans is None else (listed, humans["item"].to_list())
    scoring.settings(SweepSettings, config, [])  # refuses a value before anything is written
    with command.run_lock("reproduce", str(run), wait=given.wait):
        allowed = "the same file as before, or another --root"
        known = humans is None or has_human_ranks(run, listed, humans, allowed)
        for number, (spec, source) in enumerate(models.items(), 1):
            say(f"[{number}/{len(models)}] {spec.nickname}")
            try:
                paper_models.score(spec, source, root, config, prompts, items)
            except Exception as error:  # whatever it is, the other models need not wait for it
                failures[spec.nickname] = one_line(error)
                say(f"{spec.nickname}: {one_line(error)}; going on with the other models")
        reasons = "; ".join(f"{name} ({why})" for name, why in failures.items())
        failed = f"{len(failures)} of {len(models)} models failed: {reasons}\n" * bool(failures)
        if len(failures) == len(models):
            return command.CommandResult(failed.strip(), exit_status=1)
        if humans is not None and not known:
            RunFolder.open(str(run)).save({schema.humans_path(listed): humans})
        scored = analysis.load(run, finished_only=True)
        page = report.write_report(scored, root / "report", reporting.metadata(), page_settings)
    facts = {"page": str(page), "failures": failures}
    return command.CommandResult(f"{failed}report: {page}", lambda: facts, int(bool(failed)))


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
