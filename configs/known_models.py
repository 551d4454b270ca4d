"""Published models: identity, revision, template policy, expected size.

known_models.csv lists them. Its table `paper` (`MODELS`) holds the paper's ten reward models by
RewardBench rank, `next` (`NEXT`) other reward models of the same architectures, `language`
(`LANGUAGE_MODELS`) the ten language models of the paper's Tables A1-A5. A model that is not listed
can be converted too: its own config.json says what is needed.
"""

import csv
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """One published reward or language model."""

    hub_id: str
    nickname: str
    developer: str
    base: str
    size_b: float
    dtype: str  # of the published weights, as far as known; a conversion reports a difference
    architecture: str  # the class of its config.json, or another one of that decoder and kind
    rewardbench_rank: int | None = None
    revision: str | None = None
    # How the model was trained, or what its card says: one BOS, from the template or put in front
    # of it, or two (the GRMs). The paper's own pipeline always added a second BOS:
    # `--config.bos=double`.
    bos: str = "template"
    date: str = ""
    # Kind of the head (`HeadConfig.kind`), "" for a language model; a conversion that finds another
    # kind is refused.
    head: str = ""
    # Hub id of the reward model from whose weights it was trained, if any. Such models agree partly
    # for that reason.
    weights: str = ""
    # Which token's logit is the reward, of one that is published as a language model
    # (`engine.settings.ConvertSettings.reward`).
    reward: str = ""
    # Whether the main branch holds pickled weights alone, as far as known: one of the hub's
    # conversions is needed (`--revision=refs/pr/<number>`).
    pickled: bool = False
    # Bytes of all tensors in the repository, if stated somewhere; a conversion that reads another
    # number is refused.
    tensor_bytes: int | None = None
    rows: int | None = None  # of the embedding, where known; some have more than ids, for padding

    @property
    def slug(self) -> str:
        """The model's name in runs."""
        return self.hub_id.rsplit("/", 1)[1].lower()


# Columns that hold no text.
_CELLS: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(("rewardbench_rank", "tensor_bytes", "rows"), int),
    "size_b": float,
    "pickled": bool,
}


def _read() -> dict[str, dict[str, ModelSpec]]:
    """The entries of known_models.csv: table -> slug -> model."""
    tables: dict[str, dict[str, ModelSpec]] = {}
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            entries = tables.setdefault(row.pop("table"), {})
            # Any: fields of several types.
            cells: dict[str, Any] = {n: _CELLS.get(n, str)(cell) for n, cell in row.items() if cell}
            spec = ModelSpec(**cells)
            entries[spec.slug] = spec
    return tables


_TABLES = _read()
MODELS, NEXT, LANGUAGE_MODELS = (_TABLES[name] for name in ("paper", "next", "language"))
KNOWN = MODELS | NEXT | LANGUAGE_MODELS

# Reward models that benchmarks and training recipes name and that are not read -> why.
NOT_READ = {
    "OpenAssistant/reward-model-deberta-v3-large-v2": "an encoder: attends in both directions",
    "llm-blender/PairRM": "an encoder, and compares two replies",
    "RLHFlow/pair-preference-model-LLaMA3-8B": "compares two replies",
    "gaotang/RM-R1-DeepSeek-Distilled-Qwen-14B": "writes text before it rates",
    "nvidia/Llama-3.3-Nemotron-70B-Reward-Principle": "rates by a principle in a turn of its own",
    "ShikaiChen/LDL-Reward-Gemma-2-27B-v0.1": "its head is of label distributions",
    "RLHFlow/Decision-Tree-Reward-Llama-3.1-8B": "a decision tree compares five ratings of replies",
    "PKU-Alignment/beaver-7b-v1.0-reward": "normalises its scores; pickled",
}


def find(source: str) -> ModelSpec | None:
    """The entry of a hub id, or of a folder named after one; None if it is not listed.

    A folder has the name alone, or `owner--name`.
    """
    *owner, name = source.rstrip("/").split("/")
    spec = KNOWN.get(name.rpartition("--")[2].lower())
    if spec and "--" in name and name.lower() != spec.hub_id.replace("/", "--").lower():
        return None
    is_hub_id = len(owner) == 1 and not Path(source).is_dir()
    if spec and is_hub_id and source.lower() != spec.hub_id.lower():
        return None  # another owner's model of the same name
    return spec
