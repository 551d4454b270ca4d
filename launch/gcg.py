"""Searches the sequences that reward models rate highest and lowest. See configs/gcg.py.

Says of each found sequence which percentile of the model's single tokens its reward is, where the
run holds a sweep under that prompt, and how many candidates did not round-trip.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from absl import flags

import analysis
from analysis import sequences
from engine.runs import schema
from engine.search.run_folder import Found
from launch import cli, scoring, searching

_CONFIG = cli.config_file("gcg")
flags.adopt_module_key_flags(scoring)  # for --help
_NAMED = 4  # found sequences that the last line quotes


def main() -> str:
    """Flags -> settings -> one call."""
    config = _CONFIG.value
    run, models = scoring.run_folder(), scoring.checkpoints()
    prompts = cli.chosen_prompts(config.prompts, scoring.PROMPT.value)
    own, mesh = searching.settings(config, models)
    every = searching.search(models, prompts, run, own, mesh, config)
    found = [one for one in every if one.new]
    what = ", ".join(_said(found[:_NAMED], Path(run))) if found else "complete already"
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"{run}/sequences: {len(found)} new; {what}{more}"


def _said(found: Sequence[Found], run: Path) -> list[str]:
    swept = [(run / schema.scores_path(f.model, f.prompt)).is_dir() for f in found]
    singles = _single_tokens(run) if any(swept) else None
    lines = []
    for one in found:
        line, notes = f"{one.direction} {one.reward:.4g} {one.text!r}", []
        if singles and (one.model, one.prompt) in singles.results:
            rewards = np.sort(singles.rewards(one.model, one.prompt)[1])
            below = sequences.percentile(rewards, one.reward)
            notes += [] if below is None else [f"percentile {100 * below:.2f}"]
        if one.rejected:
            notes.append(f"{one.rejected} candidates rejected for their text")
        lines.append(f"{line} ({', '.join(notes)})" if notes else line)
    return lines


def _single_tokens(run: Path) -> analysis.Run | None:
    try:
        return analysis.load(run)
    except analysis.RunError:  # a sweep is under way, or was interrupted: no percentile then
        return None


if __name__ == "__main__":
    cli.run(main)
