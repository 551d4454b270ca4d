"""The count of operations against the matrix products that a step is made of."""

import pytest

from configs import known_models, known_shapes
from engine.convert.hf_config import decoder_config
from engine.planning import flops

SLUGS = ("skywork-reward-llama-3.1-8b", "grm-gemma2-2b-rewardmodel-ft", "gemma-2b")


@pytest.mark.parametrize("slug", SLUGS)
def test_a_response_is_its_matrix_products_and_its_attention(slug):
    config = decoder_config(known_shapes.config_json(known_models.KNOWN[slug]))
    own, before = 3, 64
    products = sum(
        2 * m * k * n * count for (m, k, n), count in flops.projections(config, own, 1).items()
    )
    keys = (config.num_layers - 1) * own * (before + (own + 1) / 2) + before + own
    attention = 4 * config.num_heads * config.head_size * keys
    assert flops.response(config, own, before) == pytest.approx(products + attention, rel=1e-12)


@pytest.mark.parametrize("slug", SLUGS)
def test_the_products_use_every_weight_of_a_layer(slug):
    config = decoder_config(known_shapes.config_json(known_models.KNOWN[slug]))
    used = sum(k * n * count for (_, k, n), count in flops.projections(config, 1, 1).items())
    assert used == config.num_layers * flops.layer_weights(config)
