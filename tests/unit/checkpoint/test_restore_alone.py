"""Of several processes, one that fails to load a model can say so: loading needs no other."""

import re
from typing import Any

import jax.numpy as jnp
import pytest

from engine.checkpoint import restore
from engine.mesh import build_mesh


@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("model", [2, 4])
def test_no_program_that_places_a_layer_waits_for_other_devices(
    checkpoint, monkeypatch, kv_heads, model
):
    """Whole heads, heads that are split, and heads that are repeated."""
    programs: list[str] = []
    make: Any = restore._place

    def recorded(*shape):
        place = make(*shape)

        def call(*operands):
            programs.append(place.lower(*operands).compile().as_text())
            return place(*operands)

        return call

    monkeypatch.setattr(restore, "_place", recorded)
    checkpoint = checkpoint(num_key_value_heads=kv_heads)
    restore.restore([checkpoint], build_mesh(model), jnp.dtype("float32"))
    assert len(programs) > 8
    together = r"all-gather|all-reduce|all-to-all|collective|reduce-scatter|send|recv"
    assert not [text for text in programs if re.search(rf"= \S+ ({together})", text)]
