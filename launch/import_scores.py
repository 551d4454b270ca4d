"""Imports scores that others released, from CSV or Parquet files into a run, for `assay analyze`.

Two layouts:
    items   item (or name), then a column per model: a list of replies, under
            one prompt. With elo_rank, elo_score and elo_matches it is a list
            that people rated
    tokens  token_id, token_decoded, then a column per prompt: the vocabulary
            of one model

In both, columns step-<n> are the steps of a training run of one model under one prompt. A file of
one model is named after it: `owner--name.csv` is the model owner/name. A column of a prompt is
named by the prompt's id in configs/prompts.py, by its name in the authors' release
(`best_ever_one`), or by its text. Everything is checked before anything is written. A file may be
imported again, and more files may be imported into the same run.
"""

import sys

from launch.common import command
from launch.common.released_scores import Choices
from launch.common.released_scores import import_scores as import_files

_FLAGS = {
    "source": (None, "A file (CSV or Parquet), or a folder of them."),
    "layout": ("", "items or tokens; described below."),
    "run": (None, "Run folder, new or an earlier one to add to."),
    "prompt": ("", "Text or id of the prompt; by default the file's name."),
    "items": ("", "Name of the list; by default that of the file or folder."),
    "model": ("", "Id of the model, if the file has one; by default the file's name."),
    "values": (
        "rewards",
        "rewards, logprobs (natural), or logits (only tokens; they are normalised).",
    ),
    "form": ("pretrained", "pretrained or chat: how language models got the prompts."),
}


def import_scores(given: command.Given) -> str:
    """Flags -> choices -> one call."""
    source, run = (command.paths(given, flag)[0] for flag in ("source", "run"))
    of_files = set(_FLAGS) - {"source", "run"}
    choices = Choices(**{name: given[name].value for name in of_files})
    with command.run_lock("import_scores", run, wait=given.wait):
        return import_files(source, run, choices)


COMMAND = command.Command("import_scores", import_scores, __doc__, (_FLAGS, command.WAIT))
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
