"""Settings of a search as a file: the paper's.

assay search <model> --run=<dir> --config=configs/search.py:paper
"""

from typing import Any

# Settings that `--config=configs/search.py:<selection>` changes.
SELECTIONS: dict[str, dict[str, Any]] = {  # Any: settings are of several types
    "": {},
    # The paper's search: Faster-GCG, greedy over all pairs of position and token.
    "paper": {
        "method": "paper",
        "steps": 1000,
        "candidates": 512,
        "buffer": 256,
        "round_trip": False,
    },
}


def get_config(selection: str = "") -> dict[str, Any]:
    """The settings that differ from the command's own, for a selection."""
    if selection not in SELECTIONS:
        allowed = ", ".join(map(repr, SELECTIONS))
        raise ValueError(f"no selection {selection!r}; allowed: {allowed}")
    return SELECTIONS[selection]
