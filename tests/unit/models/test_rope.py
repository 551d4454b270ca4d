"""Frequencies of the rotary embedding: the published constants."""

import pytest

from engine.errors import AssayError
from engine.models.config import Rope, inverse_frequencies

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


def test_an_unknown_kind_of_rope_is_refused():
    with pytest.raises(AssayError, match=r"^rope\.kind='yarn'; allowed: 'default', 'linear', 'll"):
        inverse_frequencies(Rope(theta=1e4, kind="yarn"), 64)
