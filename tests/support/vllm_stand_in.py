"""A stand-in for vLLM, which CI cannot install: it accepts what its documentation lists, no more.

Names are those of `vllm.LLM` and `LLM.classify` of vLLM 0.10 to 0.26, as far as `bench.device` may
use them: https://docs.vllm.ai/en/latest/api/vllm/entrypoints/pooling/offline/. Nothing is computed,
and rates of a run with it mean nothing.
"""

import json
from pathlib import Path


class LLM:
    """An engine that knows a model's folder."""

    def __init__(
        self,
        model: str,
        *,
        runner: str = "auto",
        convert: str = "auto",
        load_format: str = "auto",
        skip_tokenizer_init: bool = False,
        enable_prefix_caching: bool | None = None,
        dtype: str = "auto",
        max_model_len: int | None = None,
    ):
        config = json.loads((Path(model) / "config.json").read_text())
        # What becomes a classifier without being told to.
        (name,) = config["architectures"]
        if runner != "pooling" or not name.endswith("ForSequenceClassification"):
            raise ValueError(f"{name} with runner={runner!r} is no classifier")
        if load_format != "dummy" or not skip_tokenizer_init or convert != "auto":
            raise ValueError("the folder holds neither weights nor a tokenizer")
        if dtype not in ("auto", "half", "float16", "bfloat16", "float", "float32"):
            raise ValueError(f"dtype={dtype!r}")
        self._longest, self._tokens = max_model_len, config["vocab_size"]
        self._labels = config["num_labels"]

    def classify(self, prompts: list[dict[str, list[int]]], *, use_tqdm: bool = True) -> list:
        """As many results as prompts; each prompt is `{"prompt_token_ids": [...]}`."""
        for prompt in prompts:
            (ids,) = prompt.values()
            if set(prompt) != {"prompt_token_ids"} or not 0 < len(ids) <= self._longest:
                raise ValueError(f"not a prompt of token ids: {prompt}")
            if not all(0 <= token < self._tokens for token in ids):
                raise ValueError(f"ids beyond the vocabulary of {self._tokens}")
        return [[0.0] * self._labels for _ in prompts]
