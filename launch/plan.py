"""Prints how much memory a model needs, on this machine and on others, before it is fetched.

Nothing is loaded or written: memory follows from the model's shapes (docs/planning.md). The
settings are those of the planned sweep.
"""

import dataclasses
import sys

from engine.settings import Settings, setting
from launch.common import command, planned
from launch.common.config import CommandSettings

_FLAGS = {
    "source": (
        [],
        "Models, as arguments or comma-separated: names of `assay models`, hub ids (only "
        "config.json is downloaded), folders in Hugging Face format, config.json files or "
        "checkpoints.",
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """What `assay plan` takes beside fields of `SweepSettings`."""

    prefix: int = setting("Tokens of a prompt with its template.", 64)
    own: int = setting("Tokens of a candidate with its template.", 3)


def report(given: command.Given) -> command.CommandResult:
    """Flags -> settings -> a table of each model."""
    plans = [planned.planned(given.config, source) for source in command.paths(given, "source")]
    texts, facts = zip(*plans, strict=True)
    printed = facts[0] if len(facts) == 1 else {"models": facts}
    return command.CommandResult("\n\n".join(texts), lambda: printed)


COMMAND = command.Command(
    "plan",
    report,
    __doc__,
    [_FLAGS],
    "source",
    CommandSettings(PlanSettings, Settings, without=["check_memory", "part_size", "seed"]),
)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
