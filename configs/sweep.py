"""Settings of a sweep as a file: copy it, change it, and name the copy.

    assay sweep <model> --run=<dir> --config=mine.py
    assay sweep <model> --run=<dir> --config=configs/sweep.py:elo

What follows the colon is get_config()'s argument. `assay help sweep` says what all settings mean;
`assay score` and other commands take such files too.
"""

from typing import Any


# Any: settings are of several types.
def get_config(prompts: str = "paper") -> dict[str, Any]:
    """The settings that differ from the command's own, under a set of prompts."""
    return {"prompts": prompts, "mesh": {"model": 1}}
