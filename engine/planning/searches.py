"""The passes of a search's step over the weights of a model: their least and their expected time.

A pass reads every weight of a layer once, so a short one takes as long as that reading. A step has
at least three: the candidates, and the gradient of the parents forwards and backwards. The floor
takes all attempts, and all candidates, of a device in one pass each. The engine runs blocks of
them (`engine.search.passes`).
"""

import dataclasses

from engine.planning import flops, memory
from engine.planning.machines import Kind
from engine.planning.memory import Model
from engine.planning.work import BLOCK_PARENTS, BLOCK_ROWS, SearchWork

_PARTS = 2  # of a layer that devices along `model` add up: attention and feed-forward


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pass:
    """A pass over the weights, on the device that makes it most often.

    Attributes:
      name: what is computed.
      operations: of one run, on all devices along `model` together.
      positions: of all rows of one run.
      runs: in a step.
      embedding: whether it reads the whole embedding too.
    """

    name: str
    operations: float
    positions: int
    runs: int = 1
    embedding: bool = False


def least_passes(model: Model, work: SearchWork) -> list[Pass]:
    """The passes that a step cannot do without, each once."""
    parents, rows = -(-work.attempts // model.data), -(-work.attempts * work.rows // model.data)
    scored = work.attempts * _scored(model, work) / model.data
    found = [*_of_parents(model, work, parents, 1), _candidates(work, rows, scored, 1)]
    merged = -(-work.attempts * work.merged // model.data)
    return [*found, *_merged(model, work, merged, 1)]


def passes(model: Model, work: SearchWork) -> list[Pass]:
    """The passes that the engine makes."""
    turns = -(-work.parent_blocks // model.data)
    found = _of_parents(model, work, BLOCK_PARENTS, turns)
    if work.gradient and model.platform == memory.CPU:  # elsewhere the gradient's pass gives them
        found.append(_appended(model, work, BLOCK_PARENTS, turns))
    blocks = -(-work.blocks // model.data)
    scored = work.attempts * _scored(model, work) / work.blocks
    found.append(_candidates(work, work.block_rows, scored, blocks))
    blocks = -(-work.attempts * -(-work.merged // BLOCK_ROWS) // model.data)
    return [*found, *_merged(model, work, min(work.merged, BLOCK_ROWS), blocks)]


def pass_bytes(model: Model, one: Pass) -> int:
    """Bytes of weights that a device reads in one run of a pass."""
    embedding = memory.embedding_bytes(model) if one.embedding else 0
    return memory.layer_bytes(model) + embedding


def floor_seconds(model: Model, kind: Kind, work: SearchWork) -> float:
    """The least seconds of a step: operations at the peak, or reading the weights, in each pass."""
    peak = kind.peak(model.dtype)
    return sum(_seconds(model, kind, each, peak) for each in least_passes(model, work))


def step_seconds(model: Model, kind: Kind, work: SearchWork) -> float:
    """The expected seconds of a step, with sums over `model`."""
    sums = (each.runs * sums_seconds(model, kind, each.positions) for each in passes(model, work))
    return step_alone_seconds(model, kind, work) + sum(sums)


def step_alone_seconds(model: Model, kind: Kind, work: SearchWork) -> float:
    """The expected seconds of a step without its sums over `model`."""
    rate, small = kind.rate(model.dtype), model.config.num_layers * kind.layer_s
    reading = dataclasses.replace(kind, bytes_per_s=kind.read_share * kind.bytes_per_s)
    return sum(
        each.runs
        * (
            small
            + between_seconds(model, kind, each.positions)
            + _seconds(model, reading, each, rate)
        )
        for each in passes(model, work)
    )


def between_seconds(model: Model, kind: Kind, positions: int) -> float:
    """Seconds of a pass between its matmuls: norms, rotations, softmax and masks.

    Every device along `model` holds the whole residual stream, and its own queries.
    """
    config = model.config
    queries = config.num_heads * config.head_size / model.model
    return config.num_layers * positions * (config.width + queries) * kind.element_s


def pass_seconds(
    model: Model, kind: Kind, operations: float, rate: float, weights: int | None = None
) -> float:
    """Seconds of a pass: its operations, or reading the weights where that takes longer.

    Args:
      model: the model on its mesh.
      kind: of the devices.
      operations: on all devices along `model` together.
      rate: of one device, FLOP/s.
      weights: bytes that each device reads; None: those of all layers.
    """
    read = memory.layer_bytes(model) if weights is None else weights
    return max(operations / model.model / rate, read / kind.bytes_per_s)


def sums_seconds(model: Model, kind: Kind, positions: int) -> float:
    """Seconds in which devices along `model` add up their parts of each layer's results.

    A ring sends each byte to all but one device, twice; each sum takes at least `kind.link_s`.
    """
    if model.model == 1:
        return 0.0
    size = positions * model.config.width * (2 if model.dtype == "bfloat16" else 4)
    sent = 2 * size * (model.model - 1) / model.model
    return _PARTS * model.config.num_layers * (kind.link_s + sent / kind.link_bytes_per_s)


def _of_parents(model: Model, work: SearchWork, parents: int, runs: int) -> list[Pass]:
    """The gradient, forwards and backwards; without one, the parents behind the prompt."""
    if not work.gradient:
        return [_appended(model, work, parents, runs)]
    config, count = model.config, parents * work.together
    forwards = count * flops.response(config, work.own, work.prefix)
    whole = count * flops.gradient(config, work.length, work.own, work.prefix)
    positions = count * work.own
    return [
        Pass(name="gradient", operations=forwards, positions=positions, runs=runs),
        Pass(
            name="gradient, back",
            operations=whole - forwards,
            positions=positions,
            runs=runs,
            embedding=True,
        ),
    ]


def _appended(model: Model, work: SearchWork, parents: int, runs: int) -> Pass:
    count = parents * work.together
    operations = count * flops.extension(model.config, work.length, work.prefix)
    positions = count * work.length
    return Pass(name="parents", operations=operations, positions=positions, runs=runs)


def _candidates(work: SearchWork, rows: int, operations: float, runs: int) -> Pass:
    positions = rows * work.row_positions * work.together
    return Pass(name="candidates", operations=operations, positions=positions, runs=runs)


def _merged(model: Model, work: SearchWork, rows: int, runs: int) -> list[Pass]:
    """The pass of the merged replies, if there are some."""
    count = rows * work.together
    operations = count * flops.response(model.config, work.own, work.prefix)
    one = Pass(name="merged", operations=operations, positions=count * work.own, runs=runs)
    return [one] if count else []


def _scored(model: Model, work: SearchWork) -> float:
    """Operations of all candidates of one attempt."""
    each = (
        flops.response(model.config, work.own - first, work.prefix + first)
        for first in work.first_changes
    )
    return work.together * sum(each)


def _seconds(model: Model, kind: Kind, one: Pass, rate: float) -> float:
    return pass_seconds(model, kind, one.operations, rate, pass_bytes(model, one))
