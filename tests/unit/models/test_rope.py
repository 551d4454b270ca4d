"""Frequencies of the rotary embedding: published constants, and transformers' own functions."""

import numpy as np
import pytest
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from engine.convert.hf_config import decoder_config
from engine.errors import AssayError
from engine.models.config import Rope, inverse_frequencies
from tests.support import torch_models

LLAMA3 = Rope(
    theta=500_000.0,
    kind="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_positions=8192,
)

# (head size, factor) -> pair -> radians per position, as Llama 3.1 and 3.2 have them in float32.
PUBLISHED = {
    (128, 8.0): {
        1: 0.814617217,
        29: 0.00216657045,
        32: 0.000524846055,
        35: 9.5562129e-05,
        63: 3.06892588e-07,
    },
    (128, 32.0): {29: 0.00211840667, 32: 0.000429556692, 35: 2.38905322e-05, 63: 7.67231469e-08},
    (64, 32.0): {15: 0.00129054803, 16: 0.000429556692, 18: 1.94616387e-05, 31: 9.4183072e-08},
}
FLOAT32 = 5e-7  # relative: a few roundings of float32, in which the constants were computed


@pytest.mark.parametrize(("head_size", "factor"), PUBLISHED)
def test_llama3_frequencies_are_the_published_constants(head_size, factor):
    rope = Rope(**{**vars(LLAMA3), "factor": factor})
    frequencies = inverse_frequencies(rope, head_size)
    for pair, expected in PUBLISHED[head_size, factor].items():
        assert frequencies[pair] == pytest.approx(expected, rel=FLOAT32)


SCALINGS = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {**torch_models.LLAMA3_SCALING, "original_max_position_embeddings": 8192},
    "llama3 for 160 positions": torch_models.LLAMA3_SCALING,
}


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("head_size", [10, 64, 128])
@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
def test_frequencies_are_those_of_transformers(scaling, head_size, theta):
    config = LlamaConfig(
        head_dim=head_size,
        num_labels=1,
        rope_parameters={**SCALINGS[scaling], "rope_theta": theta},
    )
    kind = SCALINGS[scaling]["rope_type"]
    functions = {"default": LlamaRotaryEmbedding.compute_default_rope_parameters}
    expected, attention_scale = {**functions, **ROPE_INIT_FUNCTIONS}[kind](config)
    fields = {**config.to_dict(), "architectures": ["LlamaForSequenceClassification"]}
    rope = decoder_config(fields).rope
    np.testing.assert_allclose(inverse_frequencies(rope, head_size), expected, rtol=1e-6)
    assert attention_scale == 1.0


def test_llama3_scaling_keeps_blends_and_divides_within_the_positions_tested_here():
    rope = Rope(**{**vars(LLAMA3), "theta": 10_000.0, "original_positions": 64})
    plain = np.array(inverse_frequencies(Rope(theta=10_000.0), 12))
    kept = np.array(inverse_frequencies(rope, 12)) / plain
    assert kept[0] == 1
    assert 1 / 8 < kept[1] < 1
    np.testing.assert_allclose(kept[2:], 1 / 8)


def test_an_unknown_kind_of_rope_is_refused():
    with pytest.raises(AssayError, match=r"^rope\.kind='yarn'; allowed: 'default', 'linear', 'll"):
        inverse_frequencies(Rope(theta=1e4, kind="yarn"), 64)
