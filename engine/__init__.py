"""Assay's engine: rewards of every token, of lists of replies, and of searched sequences.

    >>> import engine
    >>> model = engine.load("out/demo/checkpoints/smollm2-135m-d16-rt-linear")
    >>> model.sweep("What, in one word, is the greatest thing ever?")  # polars frame
    >>> model.score("What, in one word, is the greatest thing ever?", ["Love", "War"])  # float32

Names are resolved on first use, so that `engine.runs.schema` can be read without jax.
"""

import importlib
import os
from typing import TYPE_CHECKING

# transformers warns where torch is missing; only its tokenizers are used here.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

if TYPE_CHECKING:
    from engine.api import RewardModel, load
    from engine.errors import AssayError
    from engine.language_api import ImplicitReward, LanguageModel, reward_of

__all__ = [
    "AssayError",
    "ImplicitReward",
    "LanguageModel",
    "RewardModel",
    "load",
    "reward_of",
]
_MODULES = {"AssayError": "errors"} | dict.fromkeys(
    ("ImplicitReward", "LanguageModel", "reward_of"), "language_api"
)


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(importlib.import_module(f"engine.{_MODULES.get(name, 'api')}"), name)
    raise AttributeError(f"module 'engine' has no attribute {name!r}")
