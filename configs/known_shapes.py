"""Shapes of the decoders of `configs/known_models.py`, as their config.json gives them.

`assay plan` reads them for a model that is named but not at hand, and benchmarks make models of
full size from them. Conversion reads the model's own file, and refuses one that says of a listed
model something else.

known_shapes.json has, of each base, the attributes of config.json that all its sizes share, and
those of each size in 10⁹ parameters.
"""

import json
from pathlib import Path

from configs.known_models import ModelSpec

_BASES = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def config_json(spec: ModelSpec) -> dict[str, object]:
    """What decides the decoder of a listed model: the attributes of its config.json, and its class.

    Special tokens are left out, and some published embeddings have one row more.
    """
    base = _BASES[spec.base]
    of_size = base["sizes"][f"{spec.size_b:g}"]
    return {**base["config"], **of_size, "architectures": [spec.architecture]}
