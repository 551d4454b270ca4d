"""Token sequences that a reward model rates highest and lowest.

    assay search --checkpoint=<dir>[,<dir>…] --run=<dir> [--config=configs/search.py:paper]

Writes run/sequences. A step of 64 candidates of 8 tokens takes about a second of CPU time with a
135M-parameter model of 12 layers; `--config.direction=both` takes twice as long.
"""

from typing import Any

from ml_collections import ConfigDict

from configs import common
from engine.settings import LoadingSettings, SearchCommandSettings, SearchSettings, SourceSettings

SETTINGS = (SearchCommandSettings, SearchSettings, LoadingSettings, SourceSettings)

# Settings that `--config=configs/search.py:<selection>` changes.
SELECTIONS: dict[str, dict[str, Any]] = {  # Any: settings are of several types
    "": {},
    # The paper's search: Faster-GCG, greedy over all pairs of position and token.
    "paper": {
        "method": "paper",
        "steps": 1000,
        "candidates": 512,
        "target": 30.0,
        "buffer": 256,
        "round_trip": False,
    },
}


def get_config(selection: str = "") -> ConfigDict:
    """Every setting of `launch.search`, for a selection."""
    if selection not in SELECTIONS:
        allowed = ", ".join(map(repr, SELECTIONS))
        raise ValueError(f"no selection {selection!r}; allowed: {allowed}")
    return common.config_of(*SETTINGS, **SELECTIONS[selection])
