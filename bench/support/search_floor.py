"""The least time of a step of a search: its passes over the weights of a model, each once.

A pass reads every weight of a layer once, so a short one takes as long as that reading. A step has
at least three: the candidates, and the gradient of the parents forwards and backwards.
"""

import math

from engine import mesh as meshes
from engine.checkpoint.restore import parameters
from engine.planning import flops
from engine.planning.memory import Model
from engine.planning.work import SearchWork


def least_passes(model: Model, work: SearchWork) -> dict[str, tuple[float, int]]:
    """The passes of one attempt: operations on each device, and bytes of weights that it reads."""
    config, layers = model.config, _bytes(model, "decoder.layers.")
    forwards = flops.response(config, work.own, work.prefix)
    backwards = flops.gradient(config, work.length, work.own, work.prefix) - forwards
    first = [
        (2 * i + 1) * work.length // (2 * work.candidates) if work.packed else 0
        for i in range(work.candidates)
    ]  # the position in which each candidate differs from its parent
    scored = sum(flops.response(config, work.own - at, work.prefix + at) for at in first)
    merged = -(-work.merged // model.data) * forwards
    passes = {
        "gradient": (forwards, layers),
        "gradient, back": (backwards, layers + _bytes(model, "decoder.embedding")),
        "candidates": (scored / model.data, layers),
        "merged": (merged, layers),
    }
    return {name: (of / model.model, read) for name, (of, read) in passes.items() if of}


def _bytes(model: Model, prefix: str) -> int:
    """Bytes on each device of the parameters whose names begin with `prefix`."""
    return sum(
        model.item_bytes
        * math.prod(
            meshes.parameter_sharding(model.mesh, one.axes, one.shape).shard_shape(one.shape)
        )
        for name, one in parameters(model.held, model.heads[0]).items()
        if name.startswith(prefix)
    )
