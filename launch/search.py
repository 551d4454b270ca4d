"""Searches for the replies of a given length that a reward model rates highest and lowest.

Writes <run>/sequences. A step of 64 candidates of 8 tokens takes about a second of CPU time with a
135M-parameter model of 12 layers; `--config.direction=both` takes twice as long.
`--config=configs/search.py:paper` is the paper's search.

The last line gives each reply with its reward and, if the run holds a sweep under the prompt, the
percentile of that reward among single tokens; it also counts candidates that were rejected because
their text does not tokenise back to them. With --config.certify=True it says how many swaps of one
token are better.
"""

import dataclasses
import sys
from collections.abc import Sequence

import numpy as np
from etils import epath

from engine.errors import AssayError
from engine.runs import schema, storage
from engine.runs.folder import RunFolder
from engine.runs.result import Certificate, Result, RunError
from engine.search.run import SearchResult, search_sequences
from engine.settings import LoadingSettings, SearchCommandSettings, SearchSettings, SourceSettings
from launch.common import command, scoring, searching
from launch.common.config import CommandSettings

_NAMED = 4  # new sequences that the last line quotes


def search(given: command.Given) -> command.CommandResult:
    """Flags -> settings -> one call."""
    run, models, prompts = scoring.inputs(given)
    config = given.config
    settings, mesh = searching.settings(config, models)
    with command.run_lock("search", run, wait=given.wait):
        how = {name: config[name] for name in ("joint", "certify", "check_memory")}
        every = search_sequences(models, prompts, run, settings, mesh, **how)
    new = [one for one in every if one.new]
    what = (
        ", ".join(_result_lines(new[:_NAMED], storage.path_of(run))) if new else "complete already"
    )
    more = f" and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
    found = [dataclasses.asdict(one) for one in every]
    said = f"{run}/sequences: {len(new)} new; {what}{more}"
    return command.CommandResult(said, lambda: {"found": found})


def _result_lines(results: Sequence[SearchResult], run: epath.Path) -> list[str]:
    try:
        swept = RunFolder.read(run).results
    except RunError:  # another command is writing it: no percentile then
        swept = {}
    lines = []
    for one in results:
        line, notes = f"{one.direction} {one.reward:.4g} {one.text!r}", []
        if one.certificate is not None:
            notes.append(_swaps(one.certificate))
        singles = swept.get(schema.scores_path(one.model, one.prompt_id))
        if singles and (percentile := _percentile(singles, one.reward)) is not None:
            notes.append(f"percentile {percentile:.2f}")
        if one.rejected:
            notes.append(f"{one.rejected} candidates rejected for their text")
        lines.append(f"{line} ({', '.join(notes)})" if notes else line)
    return lines


def _swaps(said: Certificate) -> str:
    """What a certificate says, in words."""
    if not said.better:
        return f"none of its {said.swaps:,} swaps of one token is better"
    return (
        f"{said.better:,} of its {said.swaps:,} swaps of one token are better, the best "
        f"{said.best_text!r} with {said.best_reward:.4g}"
    )


def _percentile(swept: Result, reward: float) -> float | None:
    """Percentage of single tokens with a lower reward, equal ones counted half.

    None where the sweep is not complete, or has a damaged part.
    """
    if not swept.complete:
        return None
    try:
        each = swept.frames()
    except (AssayError, OSError):
        return None
    rewards = np.sort(np.concatenate([frame["reward"].to_numpy() for frame in each]))
    ends = [np.searchsorted(rewards, np.float32(reward), side) for side in ("left", "right")]
    return 100 * (float(sum(ends)) / (2 * len(rewards)))


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
