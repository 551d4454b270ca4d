"""Prints the models that Assay knows by name.

The list is configs/known_models.py.
"""

import sys

from configs import known_models
from engine.display import aligned
from launch.common import command

_TABLES = {
    "Reward models of the paper": known_models.MODELS,
    "Reward models of the same machinery": known_models.NEXT,
    "Language models of the paper (assay logprobs)": known_models.LANGUAGE_MODELS,
}
_HEADER = ("rank", "nickname", "base", "size", "head", "BOS", "date", "revision", "hub id")
_LEGEND = """\
rank: RewardBench's. BOS, date: policy of the chat template. -: none. revision: the commit that is
fetched; unpinned: the newest one. pickled: safetensors are, if at all, in a conversion of the
hub's: --revision=refs/pr/<number>. A conversion that finds another head, other shapes or other
tensor bytes is refused."""
_COMMIT = 8  # characters of a commit that are shown


def table() -> str:
    """The tables of configs/known_models.py, the paper's ten first."""
    tables = [
        "\n".join([title, *aligned([_HEADER, *map(_row, entries.values())])])
        for title, entries in _TABLES.items()
    ]
    return "\n\n".join([*tables, _LEGEND])


def _row(spec: known_models.ModelSpec) -> tuple[str, ...]:
    rank = "-" if spec.rewardbench_rank is None else str(spec.rewardbench_rank)
    revision = spec.revision[:_COMMIT] if spec.revision else "unpinned"
    policy = (spec.head or "-", spec.bos, spec.date or "-", revision + ", pickled" * spec.pickled)
    return rank, spec.nickname, spec.base, f"{spec.size_b:g}B", *policy, spec.hub_id


COMMAND = command.Command("models", lambda given: table(), __doc__)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
