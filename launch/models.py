"""Prints the decoders and heads that Assay reads, and the models that it knows by name.

The list is configs/known_models.py.
"""

import itertools
import sys
import textwrap

from configs import known_models
from engine.convert import gates, hf_encoders, hf_families
from engine.display import aligned
from launch.common import command

_TABLES = {
    "Reward models of the paper": known_models.MODELS,
    "Reward models of the same machinery": known_models.NEXT,
    "Language models of the paper (assay logprobs)": known_models.LANGUAGE_MODELS,
}
_HEADER = (
    ("rank", "nickname", "developer", "base", "size", "head", "BOS", "date", "tensor bytes"),
    ("    ", "hub id", "revision", "dtype"),
)
_LEGEND = """\
rank: RewardBench's. BOS, date: policy of the chat template. -: none.
tensor bytes: as the repository states them; assay plan computes others. dtype: as far as known.
revision: the commit that is fetched; unpinned: the newest one. pickled: safetensors are, if at
all, in a conversion of the hub's: --revision=refs/pr/<number>.
A conversion that finds another head, other shapes or other tensor bytes is refused."""
# Kind of a head -> the tensors by which it is recognised.
HEAD_KINDS = {
    "linear": "one row without bias: score, value_head, …",
    "affine": "one row with a bias, or normalize_reward",
    "objectives": "several rows, one of them --config.reward",
    "mlp": "score.{0,2} or v_head.summary.{0,2}",
    "urm": "score and weights.fc.{0,2,4}",
    "gated": "regression_layer and gating: ArmoRM, QRM",
    "logits": "lm_head or embedding, with --config.reward",
    "none": "the same: a language model, of which logprobs alone is computed",
}
_COMMIT = 12  # characters of a commit that are shown


def table() -> str:
    """What is read, then the tables of configs/known_models.py, the paper's ten first."""
    rows = [_HEADER, *(_row(spec) for specs in _TABLES.values() for spec in specs.values())]
    firsts, seconds = (aligned(lines) for lines in zip(*rows, strict=True))
    header, *models = map("\n".join, zip(firsts, seconds, strict=True))
    rest = iter(models)
    tables = [
        "\n".join([title, *itertools.islice(rest, len(entries))])
        for title, entries in _TABLES.items()
    ]
    not_read = "\n".join(["Not read, and why", *aligned([*known_models.NOT_READ.items()])])
    return "\n\n".join([_read(), header, *tables, not_read, _LEGEND])


def _read() -> str:
    """Which decoders and heads are read; what is computed is the same for all reward models."""
    decoders = (
        f"Decoders (model_type): {', '.join(hf_families.FAMILIES)}; gated heads on "
        f"{' and '.join(gates.PATTERNS)} alone. Of models with images ("
        f"{', '.join(hf_families.TEXTS)}) the text is read. With every decoder and head of a "
        "reward model: sweeps, lists, text mode, search and lens."
    )
    encoders = (
        f"Encoders (model_type): {', '.join(hf_encoders.FAMILIES)}; with a classifier of one row "
        "or several: sweeps, lists and text mode; no search and no lens."
    )
    read = [*textwrap.wrap(decoders, 100), *textwrap.wrap(encoders, 100)]
    return "\n".join([*read, "Heads", *aligned([*HEAD_KINDS.items()])])


def _row(spec: known_models.ModelSpec) -> tuple[tuple[str, ...], ...]:
    rank = "-" if spec.rewardbench_rank is None else str(spec.rewardbench_rank)
    size = "unknown" if spec.tensor_bytes is None else f"{spec.tensor_bytes:,}"
    model = (rank, spec.nickname, spec.developer, spec.base, f"{spec.size_b:g}B")
    policy = (spec.head or "-", spec.bos, spec.date or "-", size)
    revision = spec.revision[:_COMMIT] if spec.revision else "unpinned"
    revision += ", pickled" * spec.pickled
    return (*model, *policy), ("", spec.hub_id, revision, spec.dtype)


COMMAND = command.Command("models", lambda given: table(), __doc__)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
