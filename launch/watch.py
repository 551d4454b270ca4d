"""Scores a reward model while it is trained: every checkpoint that a trainer saves, on one page.

It finds the folders checkpoint-<step> (TRL, LLaMA-Factory, ms-swift) and global_step<step>_hf
(OpenRLHF) in a trainer's output folder, waits until each is whole, and scores it: the first and
every k-th (--config.every) over the whole vocabulary, the others over a panel of 3,000 tokens.
After each, <out>/watch.jsonl and <out>/report/index.html are written again (docs/watch.md). Ctrl-C
ends it; the same command goes on. Or it is given a run of `assay import_scores` whose models are
steps, and draws its page.

Exit status: 1 where a step broke a limit that was set (--config.limits.<name>).
"""

import sys

from engine.settings import PromptSettings, ReplyStartSettings
from launch.common import command, inputs, scoring
from launch.common.config import SCORING_ANY, CommandSettings
from launch.common.watching import WatchSettings, watched

_FLAGS = {
    "folder": ([], "A trainer's output folder, or a run of imported steps; also as argument."),
    "out": (None, "Folder to write; by default reports/watch-<name of the folder>."),
    "items": (None, "Pairs that every step scores: .csv, .jsonl or .parquet (docs/pairs.md)."),
    "once": (False, "Score what is there, and end."),
    "until": (None, "End when this step, or a later one, is scored.", 0, None),
    "log": ("", "Also write numbers and words to a tracker: trackio, wandb or tensorboard."),
}


COMMAND = command.Command(
    "watch",
    watched,
    __doc__,
    (_FLAGS, scoring.PROMPT, scoring.AFTER, inputs.PROBES, command.WAIT),
    "folder",
    CommandSettings(
        WatchSettings,
        PromptSettings,
        ReplyStartSettings,
        *SCORING_ANY,
        without=["objectives", "lens", "mesh"],
        prompts="greatest",
    ),
)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
