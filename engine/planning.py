"""What a model needs of memory: an account of bytes from its shapes, and the step that fits.

Tests compare the account with the memory that compiled programs take. A step depends on the model,
the kind of device and its free memory alone: not on the number of devices along the axis `data`,
and on no measured time. So equal machines give equal bytes.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh

from engine import mesh as meshes
from engine import processes
from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import parameters
from engine.display import in_words
from engine.errors import AssayError
from engine.models.encoder_config import EncoderConfig, NetworkConfig
from engine.models.heads import HeadConfig, OutputConfig
from engine.scoring.batches import SHORT, largest_step, whole_length

# Candidates per step that `auto` takes where memory allows: docs/decisions/start-and-memory.md.
STEPS = {"cpu": 1024, "gpu": 2048, "tpu": 1024}
# Of an encoder on a CPU, whose candidates are whole conversations: the caches hold such a step.
_ENCODER_STEP = 256
LEAST_STEP = 16  # candidates per step on each device
# What compilers, buffers of the reader and threads add to a process that has imported Assay, and
# what a tokenizer holds per token: measured on Linux for jax 0.10.2.
_PROCESS_BYTES, _TOKEN_BYTES = 200 * 2**20, 1100
_WAY_OUT = "--config.check_memory=false starts anyway"


class DeviceRoom(NamedTuple):
    """The devices that models are to be loaded on, and their free memory."""

    platform: str  # `cpu`, `gpu` or `tpu`
    data: int = 1  # devices along the mesh axis `data`
    model: int = 1  # devices along the mesh axis `model`
    usable: float = math.inf  # bytes of a device, or of the host of a CPU; infinite: not known

    @classmethod
    def of(cls, mesh: Mesh) -> "DeviceRoom":
        """This machine; of several processes, that of process 0."""
        platform = mesh.devices.flat[0].platform
        usable = processes.from_first("free memory", lambda: meshes.free_bytes(mesh, platform))
        platform = platform if platform in STEPS else "gpu"
        return cls(platform, mesh.shape["data"], mesh.shape["model"], usable)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepWork:
    """Sweeps of one model."""

    prefix: int = 64  # positions of a prompt, padding included
    own: int = 3  # positions of a candidate
    step_size: int | None = None  # candidates per step on each device; None: chosen
    self_check: int = 16  # conversations that the plain pass computes at once


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """A model, or several that share a decoder, on a mesh: what decides how much it costs."""

    name: str = ""  # for messages
    config: NetworkConfig  # of the deepest decoder
    heads: tuple[HeadConfig | OutputConfig, ...]  # one per model
    stored: str = "bfloat16"  # dtype of the file
    dtype: str = "float32"  # of the decoder when it computes
    platform: str = "cpu"  # or `gpu` or `tpu`
    data: int = 1  # devices along the mesh axis `data`
    model: int = 1  # devices along the mesh axis `model`
    usable: float = math.inf  # bytes that a program may take of a device, or of a CPU's host

    @classmethod
    def of(cls, group: Sequence[Checkpoint]) -> "Model":
        """Models that share a decoder, before they have a mesh; the deepest is the first."""
        cards = [checkpoint.card for checkpoint in group]
        heads, names = tuple(card.head for card in cards), ", ".join(card.slug for card in cards)
        dtype = cards[0].dtype  # or several, in the order of their names: the last is the widest
        stored = dtype.split(", ")[-1]
        return cls(name=names, config=cards[0].decoder, heads=heads, stored=stored)

    def on(self, room: DeviceRoom, dtype: str | None) -> "Model":
        """The model on a mesh; `dtype` None is what `--config.dtype=auto` takes.

        Raises AssayError for an axis `model` that does not divide the decoder.
        """
        half = self.stored if self.stored in ("bfloat16", "float16") else "bfloat16"
        dtype = dtype or ("float32" if room.platform == "cpu" else half)
        placed = dataclasses.replace(self, dtype=dtype, **room._asdict())
        meshes.check_mesh(placed.mesh, placed.config)
        return placed

    @property
    def held(self) -> NetworkConfig:
        """The decoder as the mesh holds it: key/value heads may be repeated."""
        return meshes.with_whole_kv_heads(self.mesh, self.config)

    @property
    def mesh(self) -> Any:  # the functions of `engine.mesh` name a mesh that has devices
        """The mesh, without devices."""
        return AbstractMesh((self.data, self.model), ("data", "model"))

    @property
    def language(self) -> bool:
        """Whether it is a language model."""
        return isinstance(self.heads[0], OutputConfig)

    @property
    def item_bytes(self) -> int:
        """Bytes of an element of the decoder."""
        return jnp.dtype(self.dtype).itemsize


@dataclasses.dataclass(frozen=True, kw_only=True)
class Account:
    """Bytes on each device, by purpose; the largest moment is their sum."""

    weights: int
    prefix: int  # keys and values of prompts, or what layers keep in place of them
    layer: int  # temporarily duplicated weights
    step: int  # activations of one step
    process: int  # of a CPU, whose memory it shares

    @property
    def total(self) -> int:
        """All of them."""
        return sum(dataclasses.astuple(self))


def account(model: Model, work: SweepWork) -> Account:
    """Bytes on each device during a sweep, a list or log-probabilities.

    Without `work.step_size` a step has `LEAST_STEP` candidates. The plain pass of the self-check
    counts where it needs more than a step; the prompt's pass never does.
    """
    c, b, on_cpu = model.held, model.item_bytes, model.platform == "cpu"
    rows = work.step_size or LEAST_STEP
    if model.language:
        rows = largest_step(rows, model.config.vocab_size)
    own = work.own if c.shares_prefix else SHORT  # an encoder's rows are whole, and as many fewer
    whole = _pass_bytes(model, work.self_check, 0, whole_length(work.prefix + own))
    step = max(_pass_bytes(model, rows, work.prefix, own), whole)
    # One layer more is there while the model is restored. XLA's CPU compiler widens a layer of
    # float16 at a time; of bfloat16, unless the CPU multiplies it, all at once. It copies a layer's
    # experts for the loop over their blocks.
    layer = weight_bytes(model, "L") // c.num_layers
    # Of each position: keys and values, or of a layer of the delta rule inputs, keys and updates.
    kept = 2 * c.deltas.count(False) * c.num_kv_heads * c.head_size * b
    keys, values = c.delta_key_heads * c.delta_key_size, c.delta_value_heads * c.delta_value_size
    kept += c.deltas.count(True) * (b * (3 * keys + 2 * values) + 4 * c.delta_value_heads)
    widened = {"bfloat16": c.num_layers, "float16": 1, "float32": int(c.experts > 0)}
    copied = widened[model.dtype] if on_cpu else 0
    times = 1 + on_cpu  # XLA's CPU compiler also copies it into the layout of its products
    return Account(
        weights=weight_bytes(model),
        prefix=times * work.prefix * kept // model.model * c.shares_prefix,
        layer=4 * layer // b * copied or max(0, layer - step),
        step=step,
        process=on_cpu * process_bytes(model),
    )


def weight_bytes(model: Model, axis: str = "") -> int:
    """Bytes of the parameters on each device, or of those with an axis of this letter.

    They are those of one decoder and all readouts, which are float32.
    """
    total = 0
    for number, head in enumerate(model.heads):
        for name, parameter in parameters(model.held, head).items():
            readout = name.startswith("readout.")
            if axis in parameter.axes and (readout or number == 0):
                sharding = meshes.parameter_sharding(model.mesh, parameter.axes, parameter.shape)
                item_bytes = 4 if readout else model.item_bytes
                total += math.prod(sharding.shard_shape(parameter.shape)) * item_bytes
    return total


def checkpoint_bytes(model: Model, axis: str = "") -> int:
    """`weight_bytes` of the first model on disk; a source of the same dtype has about as many."""
    stored = dataclasses.replace(model, heads=model.heads[:1], dtype=model.stored, data=1, model=1)
    return weight_bytes(stored, axis)


def host_bytes(model: Model) -> int:
    """Bytes of host memory to convert: two blocks (one is read while another is written)."""
    layer = checkpoint_bytes(model, "L") // model.config.num_layers
    return process_bytes(model) + layer + max(layer, checkpoint_bytes(model, "V"))


def process_bytes(model: Model) -> int:
    """Bytes of a process on a host beside its imports, weights and activations."""
    return _PROCESS_BYTES + _TOKEN_BYTES * model.config.vocab_size


def _pass_bytes(model: Model, rows: int, prefix: int, positions: int) -> int:
    """Bytes of activations of a pass over rows with `positions` tokens after a prefix.

    The largest moment of a layer is in the feed-forward (the residual stream in float32, twice if
    both halves read it, the normed one, gate, up, and on a CPU their product) or in the attention
    (the residual stream, queries, the row's keys and values, logits and exponentials, and mixed
    values in float32). A mixture also has its summed outputs, and rows of one expert at a time.
    """
    c, split = model.held, model.model
    on_cpu = model.platform == "cpu"
    b = 4 if on_cpu else model.item_bytes  # a CPU computes in float32
    heads, shared = c.num_heads // split * c.head_size, c.num_kv_heads // split * c.head_size
    inner = (1 + c.gated + on_cpu) * b * (c.ffn_width // split)
    if c.experts:
        inner = (inner + (4 + b) * c.width) * c.experts_per_token // c.experts
    ffn = 4 * (1 + c.parallel) * c.width + b * c.width + inner
    logits = (4 + b) * (c.num_heads // split) * (prefix + positions)
    if isinstance(c, EncoderConfig):  # relative positions are about twice as many as keys
        logits *= 1 + 2 * len(c.relative)
    attention = 4 * c.width + b * (heads + 2 * shared) + logits + 4 * heads
    largest = max(ffn, attention, _delta_bytes(c, prefix + positions) // split)
    step = rows * positions * (largest + (4 * c.width if c.experts else 0))
    if model.language:
        step += 2 * 4 * rows * c.vocab_size  # logits, and their softmax
    return step


def _delta_bytes(c: NetworkConfig, seen: int) -> int:
    """Bytes of activations of a position in a layer of the gated delta rule; 0 without any.

    Six times its queries, keys and values in float32 and eight weights of each position that it
    sees, as CPU compilers reserve them for candidates of two positions; longer ones take less. The
    plain pass's state is smaller.
    """
    sizes = 2 * c.delta_key_size + c.delta_value_size
    of_head = 6 * sizes + 8 * seen
    return any(c.deltas) * 4 * (4 * c.width + c.delta_value_heads * of_head)


def fits(model: Model, work: SweepWork, **changes: Any) -> bool:  # Any: of the work
    """Whether work with some changes fits; sweeps without a step, whether the least one does."""
    return account(model, dataclasses.replace(work, **changes)).total <= model.usable


def fitting_step(model: Model, work: SweepWork) -> int:
    """The step that a user named; else the largest that fits, or the least where none does."""
    whole = model.platform == "cpu" and not model.config.shares_prefix
    usual = _ENCODER_STEP if whole else STEPS[model.platform]
    step, is_given = work.step_size or usual, work.step_size is not None
    while not is_given and step > LEAST_STEP and not fits(model, work, step_size=step):
        step //= 2
    return step


def refusal(model: Model, work: SweepWork, *, searches: bool = False) -> str:
    """Why models do not fit on their devices, with settings that would; "" if they do.

    A search has no such settings.
    """
    needed, ways = account(model, work), []
    if needed.total <= model.usable:
        return ""
    if not searches:
        auto = dataclasses.replace(work, step_size=None)
        ways += [f"step_size={fitting_step(model, auto)}"] if fits(model, auto) else []
        ways += ["self_check=1"] if fits(model, work, self_check=1) else []
    would = " or ".join(ways) or f"{in_words(needed.total)} of free memory"
    return (
        f"{model.name}: needs {in_words(needed.total)} of memory on a device in {model.dtype} "
        f"(weights {in_words(needed.weights)}, a step {in_words(needed.step)}), "
        f"{in_words(model.usable)} are free; {would} would fit; {_WAY_OUT}"
    )


def admit(
    checkpoint: Checkpoint, mesh: Mesh, dtype: str, step_size: int | None, *, check: bool
) -> int:
    """The step of a model that is about to be loaded, for prompts that are not known yet.

    A `step_size` of None is chosen. Raises AssayError for a model that is too large, if `check`.
    """
    model = Model.of([checkpoint]).on(DeviceRoom.of(mesh), dtype)
    work = SweepWork(own=SHORT, step_size=step_size, self_check=1)
    step = fitting_step(model, work)
    if check and (reason := refusal(model, dataclasses.replace(work, own=1, step_size=step))):
        raise AssayError(reason)
    return step
