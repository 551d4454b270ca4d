"""Searches for the replies of a given length that a reward model rates highest and lowest.

Writes <run>/sequences. A step of 64 candidates of 8 tokens takes about a second of CPU time with a
135M-parameter model of 12 layers; `--config.direction=both` takes twice as long.
`--config=configs/search.py:paper` is the paper's search.

The last line gives each reply with its reward, and counts candidates that were rejected because
their text does not tokenise back to them. With --config.certify=True it says how many swaps of one
token are better.
"""

import dataclasses
import sys

from engine.search.run import search_sequences
from engine.settings import LoadingSettings, SearchCommandSettings, SearchSettings, SourceSettings
from launch.common import command, scoring, searching
from launch.common.config import CommandSettings


def search(given: command.Given) -> command.CommandResult:
    """Flags -> settings -> one call."""
    run, models, prompts = scoring.inputs(given)
    settings, mesh = searching.settings(given.config, models)
    how = {name: given.config[name] for name in ("certify", "check_memory")}
    with command.run_lock("search", run, wait=given.wait):
        results = search_sequences(models, prompts, run, settings, mesh, **how)
    facts = [dataclasses.asdict(result) for result in results]
    return command.CommandResult(searching.last_line(run, results), lambda: {"found": facts})


COMMAND = command.Command(
    "search",
    search,
    __doc__,
    scoring.FLAGS,
    "checkpoint",
    CommandSettings(
        SearchCommandSettings, SearchSettings, LoadingSettings, SourceSettings, prompts="greatest"
    ),
)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
