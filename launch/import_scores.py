"""Imports numbers that others released, from CSV or Parquet files into a run, for `launch.analyze`.

    assay import_scores --source=elo.csv --layout=elo --run=<dir> --prompt=elo_greatest
    assay import_scores --source=reward_model_scores --layout=tokens --run=<dir>
    assay import_scores --source=words --layout=items --column=response --run=<dir>
    assay import_scores --source=scores.parquet --layout=long --items=words --run=<dir>
    assay import_scores --source=logprobs --layout=tokens --values=logprobs --run=<dir>

elo     elo_rank, elo_score, name, elo_matches, then a column per model: a list that people rated
tokens  token_id, token_name, token_decoded, then a column per prompt: a vocabulary; a file a model
items   a column of replies, then a column per prompt: a list; a file a model
long    model, prompt, item, reward in any order: a list; one row per number

A file of one model is named after it: `owner--name.csv` is the model owner/name. A column of a
prompt is named by the prompt's id in configs/prompts.py, by its name in the authors' release
(`greatest`, `best_ever_one`), or by its text. Everything is checked before anything is written. A
file may be imported again, and more files may be imported into the same run.
"""

import sys

from launch.common import command, locking
from launch.common.released_layouts import Choices
from launch.common.released_scores import import_scores as import_files

_FLAGS = {
    "source": (None, "Files (CSV or Parquet), or folders of them, comma-separated."),
    "layout": ("", "elo, tokens, items or long; see the top of this text."),
    "run": (None, "A run folder, new or to be added to."),
    "prompt": ("", "Text or id of the prompt, where the files do not say it."),
    "items": ("", "Name of the list (default: the folder's; of one file, the file's)."),
    "model": ("", "Id of the model, for one file of one model (default: the file's name)."),
    "column": ("", "Column of the replies (items: default the first; long: default item)."),
    "values": ("rewards", "rewards, logprobs (natural), or logits, which are normalised (tokens)."),
    "form": ("pretrained", "pretrained or chat: how the language models read the prompts."),
}


def import_scores(given: command.Given) -> str:
    """Flags -> choices -> one call."""
    source, run = (command.paths(given, flag)[0] for flag in ("source", "run"))
    of_files = set(_FLAGS) - {"source", "run"}
    choices = Choices(**{name: given[name].value for name in of_files})
    with locking.run_lock(given, run, "import_scores"):
        return import_files(source, run, choices, given.ignore)


COMMAND = command.Command(
    "import_scores",
    import_scores,
    __doc__,
    (_FLAGS, {"ignore": ([], "Columns to leave out.")}, locking.WAIT),
    config=False,
)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
