"""Imports scores that others released, from CSV files into a run, for `launch.analyze`.

    assay import_scores --source=elo_greatest_single_thing.csv --layout=elo --run=<dir>
    assay import_scores --source=scores.csv --layout=tokens --model=org/name --run=<dir>

Layout `elo`: elo_rank, elo_score, name, elo_matches, then one column per model id. It becomes an
item list with its human scores. Layout `tokens`: token_id, token_name, token_decoded, then one
column per prompt; one file per model. Takes a second. A file may be imported again, and more files
may be imported into the same run.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags
from absl.flags import FlagValues

from configs import prompts
from engine.errors import AssayError
from launch.common import command, locking
from launch.common.released_scores import LAYOUTS, import_elo, import_tokens

_FLAGS = {
    "source": (None, "The CSV file."),
    "layout": (None, "elo or tokens; see the top of this text."),
    "run": (None, "A run folder, new or to be added to."),
    "prompt": (prompts.ELO["elo_greatest"], "Text of the prompt (layout elo)."),
    "items": ("", "Name of the item list (layout elo; default: the file's)."),
    "model": ("", "Id of the model (layout tokens; default: the file's name)."),
}


def main(argv: Sequence[str]) -> int:
    """Runs the command with its arguments; returns the exit status."""
    define = [define_flags]
    return command.run("import_scores", argv, import_scores, doc=__doc__, define=define)


def define_flags(given: FlagValues) -> None:
    """Defines the flags of `_FLAGS`, all of text, and --wait."""
    for name, (default, meaning) in _FLAGS.items():
        flags.DEFINE_string(name, default, meaning, flag_values=given)
    locking.define_wait(given)


def import_scores(given: command.Given) -> str:
    """Flags -> files -> one call, by layout."""
    if given.layout not in LAYOUTS:
        raise AssayError(f"--layout={given.layout!r}; allowed: {', '.join(map(repr, LAYOUTS))}")
    source = Path(command.paths(given, "source")[0])
    run = command.paths(given, "run")[0]
    with locking.held(given, run, "import_scores"):
        if given.layout == "elo":
            return import_elo(source, run, given.prompt, given.items)
        return import_tokens(source, run, given.model)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
