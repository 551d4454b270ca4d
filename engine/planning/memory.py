"""Bytes that a model needs on a device, in host memory and on disk: an account from its shapes.

Tests compare it with the memory that compiled programs take.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
from jax.sharding import AbstractMesh

from engine import mesh as meshes
from engine.checkpoint.restore import parameters
from engine.models.config import DecoderConfig
from engine.models.heads import HeadConfig, OutputConfig
from engine.planning import flops
from engine.planning.machines import GIB, DeviceRoom
from engine.scoring.batches import PREFIX_MULTIPLE, largest_step, rows_of_step

CPU = "cpu"  # the platform on which host and device share memory
LEAST_STEP = 16  # candidates per step on each device
# Candidates per step that `auto` takes where memory allows: docs/decisions/step-and-memory.md.
STEPS = {"cpu": 1024, "gpu": 2048, "tpu": 1024}
# Measured on Linux for Python 3.11 and jax 0.10.2: what compilers, buffers of the reader and
# threads add to a process that has imported Assay, and what a tokenizer holds per token.
_PROCESS_BYTES, _TOKEN_BYTES = 200 * 2**20, 1100
_VECTOR_MEMORY = 128 * 2**20  # of a TPU: activations that it holds take no other memory
# What compiling the larger program of a search adds to a process, and its code on an accelerator.
_SEARCH_BYTES, _CODE_BYTES = 460 * 2**20, 13 * 2**20
# Tables [attempts, T, V] float32 in a step of a search: the gain (or its noise) and what orders it.
_TABLES = 2
BLOCK_ROWS = 32  # rows of packed candidates that a search scores at a time: 64 candidates
# Attempts whose parents a device runs through the model at once in a search. A parent is so short
# that reading the weights takes most of its time.
BLOCK_PARENTS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepWork:
    """Sweeps of one model."""

    prompts: int = 1  # vocabularies that are swept
    prefix: int  # positions of a prompt, padding included
    own: int  # positions of a candidate
    step_size: int | None = None  # candidates per step on each device; None: chosen
    self_check: int = 16  # conversations that the plain pass computes at once
    part_size: int = 16384  # rows of a part, whose end no step crosses


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchWork:
    """One search."""

    prefix: int  # positions of the longest prompt
    suffix: int  # positions behind the reply
    length: int  # tokens of the reply
    candidates: int  # of a step and attempt
    attempts: int  # that run side by side; two for both directions
    together: int = 1  # prompts that are judged by the mean of their rewards
    gradient: bool = True  # whether a step takes one
    merged: int = 0  # replies that join changes of the best candidates, scored whole
    packed: bool = True  # whether two candidates share a row (`engine.search.passes.pack`)
    enumerates: bool = False  # whether a step scores `candidates` whole replies, as `beam` does

    @property
    def own(self) -> int:
        """Positions of a whole candidate: reply and suffix."""
        return self.length + self.suffix

    @property
    def row_positions(self) -> int:
        """Positions of a row: a candidate, or a short and a long one."""
        return 2 * self.own - self.length + 1 if self.packed else self.own

    @property
    def rows(self) -> int:
        """Rows of a step and attempt: candidates, or pairs of them."""
        return -(-self.candidates // 2) if self.packed else self.candidates


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """A model, or several that share a decoder, on a mesh: what decides how much it costs."""

    name: str = ""  # for messages
    config: DecoderConfig  # of the deepest decoder
    heads: tuple[HeadConfig | OutputConfig, ...]  # one per model
    stored: str = "bfloat16"  # dtype of the file
    dtype: str = "float32"  # of the decoder when it computes
    platform: str = CPU  # or `gpu` or `tpu`
    data: int = 1  # devices along the mesh axis `data`
    model: int = 1  # devices along the mesh axis `model`
    usable: float = math.inf  # bytes that a program may take of a device, or of a CPU's host

    def on(self, room: DeviceRoom, dtype: str | None) -> "Model":
        """The model on a mesh; `dtype` None is what `--config.dtype=auto` takes.

        Raises AssayError for an axis `model` that does not divide the decoder.
        """
        half = self.stored if self.stored in ("bfloat16", "float16") else "bfloat16"
        dtype = dtype or ("float32" if room.platform == CPU else half)
        placed = dataclasses.replace(self, dtype=dtype, **room._asdict())
        meshes.check_mesh(placed.mesh, placed.config)
        return placed

    @property
    def held(self) -> DecoderConfig:
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
    prefix: int  # keys and values of prompts
    layer: int  # weights of a layer, or of all, that are there a second time
    step: int  # activations of one step
    # Of a CPU, whose memory the process shares: compilers, tokenizer, buffers. On an accelerator
    # the code of a search's program.
    process: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(dataclasses.astuple(self))


def account(model: Model, work: SweepWork | SearchWork) -> Account:
    """Bytes on each device during a sweep, a list, log-probabilities or a search.

    Without `work.step_size` a step has `LEAST_STEP` candidates. The prompt's pass and the plain
    pass of the self-check count where they need more than a step. A search counts what compiling
    its step takes, and tables of numbers for each position and token.
    """
    c, b, on_cpu = model.held, model.item_bytes, model.platform == CPU
    prefix, step, tables = _needed(model, work)
    keys = 2 * c.num_layers * prefix * c.num_kv_heads * c.head_size * b
    one = flops.layer_weights(c) // model.model
    if model.platform == "tpu":
        step = max(0, step - _VECTOR_MEMORY)
    # One layer more is there while the model is restored. XLA's CPU compiler widens a layer of
    # float16 at a time; of bfloat16, unless the CPU multiplies it, all at once. It copies a layer's
    # experts for the loop over their blocks.
    copied = {"bfloat16": 4 * one * c.num_layers, "float16": 4 * one}
    copied["float32"] = 4 * one if c.experts else 0
    process = process_bytes(model) if on_cpu else 0
    if isinstance(work, SearchWork) and not work.enumerates:
        process += _SEARCH_BYTES if on_cpu else _CODE_BYTES
    return Account(
        weights=weight_bytes(model),
        prefix=keys // model.model,
        layer=(on_cpu and copied.get(model.dtype)) or max(0, b * one - step),
        step=step + tables,
        process=process,
    )


def fitting_step(model: Model, work: SweepWork) -> tuple[int, Account]:
    """The largest step whose account fits, and the account; the least step where none does.

    A step that the user named is not changed.
    """
    step = work.step_size or STEPS[model.platform]
    while True:
        needed = account(model, dataclasses.replace(work, step_size=step))
        if needed.total <= model.usable or work.step_size or step <= LEAST_STEP:
            return step, needed
        step //= 2


def ways_to_fit(model: Model, work: SweepWork | SearchWork) -> list[str]:
    """Settings each of which makes a model fit that does not, on the same devices."""

    def fits(work: SweepWork | SearchWork = work, **changes: Any) -> bool:  # Any: of a Model
        return account(dataclasses.replace(model, **changes), work).total <= model.usable

    count, ways = model.data * model.model, []
    if isinstance(work, SweepWork):
        step, least = fitting_step(model, dataclasses.replace(work, step_size=None))
        ways += [f"step_size={step}"] if least.total <= model.usable else []
        ways += ["self_check=1"] if fits(dataclasses.replace(work, self_check=1)) else []
    larger = [split for split in splits(model.config, count) if split > model.model]
    ways += [f"mesh.model={n}" for n in larger if fits(data=count // n, model=n)][:1]
    ways += [f"dtype={dtype}" for dtype in ("bfloat16", "float16") if fits(dtype=dtype)][:1]
    return ways


def splits(config: DecoderConfig, count: int) -> Iterator[int]:
    """Sizes of the axis `model` that divide the devices and the decoder, ascending."""
    sizes = range(1, count + 1)
    divided = (count, config.num_heads, config.ffn_width)
    return (size for size in sizes if not any(number % size for number in divided))


def weight_bytes(model: Model) -> int:
    """Bytes of the parameters on each device: one decoder and all readouts, which are float32."""
    return _block_bytes(model).total()


def checkpoint_bytes(model: Model) -> int:
    """Bytes of a checkpoint's parameters on disk; a source of the same dtype has about as many."""
    return _block_bytes(_as_stored(model)).total()


def host_bytes(model: Model) -> int:
    """Bytes of host memory to convert: two blocks (one is read while another is written)."""
    blocks = _block_bytes(_as_stored(model))
    layer = blocks["layers"] // model.config.num_layers
    largest = sorted([blocks["embedding"], layer, layer, blocks["readout"]])[-2:]
    return sum(largest) + process_bytes(model)


def process_bytes(model: Model) -> int:
    """Bytes of a process beside its imports, weights and activations."""
    return _PROCESS_BYTES + _TOKEN_BYTES * model.config.vocab_size


def in_words(size: float) -> str:
    """`7.0 GiB`, or `210 MiB`."""
    return f"{size / GIB:,.1f} GiB" if size >= GIB else f"{size / 2**20:,.0f} MiB"


def _as_stored(model: Model) -> Model:
    """The first of the models as it lies on disk."""
    return dataclasses.replace(model, heads=model.heads[:1], dtype=model.stored, data=1, model=1)


def _block_bytes(model: Model) -> Counter[str]:
    """Bytes of the parameters on each device, by block: `embedding`, `layers`, `readout`."""
    blocks: Counter[str] = Counter()
    for number, head in enumerate(model.heads):
        for name, one in parameters(model.held, head).items():
            readout = name.startswith("readout.")
            block = "readout" if readout else "layers" if "L" in one.axes else "embedding"
            if readout or number == 0:
                sharding = meshes.parameter_sharding(model.mesh, one.axes, one.shape)
                size = math.prod(sharding.shard_shape(one.shape))
                blocks[block] += size * (4 if readout else model.item_bytes)
    return blocks


def _needed(model: Model, work: SweepWork | SearchWork) -> tuple[int, int, int]:
    """Positions of prompts that are kept, and bytes of a step's activations and of its tables.

    The self-check of a search computes two conversations per prompt: of the ids, and of the text.
    """
    if isinstance(work, SweepWork):
        candidates = work.step_size or LEAST_STEP
        if model.language:
            candidates = largest_step(candidates, model.config.vocab_size)
        step = _pass_bytes(model, candidates, work.prefix, work.own)
        whole = _whole_bytes(model, work.prefix, work.own, work.self_check)
        return work.prefix, max(step, whole), 0
    c, b, on_cpu = model.held, model.item_bytes, model.platform == CPU
    if work.enumerates:
        prefix, rows = work.prefix + work.length, work.candidates
        step = _pass_bytes(model, rows_of_step(rows, work.own, rows), prefix, work.own)
        whole = _whole_bytes(model, prefix, work.own, 2 * work.together)
        return prefix * work.together, max(step, whole), 0
    prefix = _padded(work.prefix + work.length)  # the prompt has room for the reply
    rows = min(BLOCK_ROWS, work.rows) * work.together
    step = _pass_bytes(model, rows, prefix, work.row_positions)
    parents = min(work.attempts, BLOCK_PARENTS)  # of a block; attempts are computed in whole ones
    attempts = -(-work.attempts // parents) * parents
    tables = _TABLES * 4 * attempts * work.length * c.vocab_size
    if work.gradient:
        # The gradient of a block of parents keeps activations of every layer.
        kept = b * (2 + c.gated) * c.ffn_width // model.model
        if c.experts:  # of each pair of a position and an expert, in blocks that may be half full
            kept = 2 * c.experts_per_token * (kept + 4 * c.width)
        kept += 12 * c.width
        saved = parents * work.own * work.together * kept * c.num_layers
        if on_cpu and b < 4:  # XLA transposes and widens the embedding that slopes multiply
            saved += (b + 4) * c.vocab_size * c.width
        step, tables = max(step, saved), tables * 2  # its slopes too, of a block and of all
        # Where candidates are drawn by position, devices along `model` keep their tokens' slopes.
        if not on_cpu and work.packed and c.vocab_size % model.model == 0:
            tables //= model.model
    step = max(step, _whole_bytes(model, work.prefix, work.own, 2 * work.together))
    return prefix * work.together, step, tables


def _padded(positions: int) -> int:
    return -(-positions // PREFIX_MULTIPLE) * PREFIX_MULTIPLE


def _whole_bytes(model: Model, prefix: int, positions: int, self_check: int) -> int:
    """Bytes of activations of the larger pass over whole sequences: the prompt, the self-check."""
    whole = _padded(prefix + positions)
    return max(_pass_bytes(model, 1, 0, prefix), _pass_bytes(model, self_check, 0, whole))


def _pass_bytes(model: Model, rows: int, prefix: int, positions: int) -> int:
    """Bytes of activations of a pass over rows of so many positions behind a prefix.

    The largest moment of a layer is in the feed-forward (the residual stream in float32, that of
    before the attention if it reads that, the normed one, gate if there is one, up, and on a CPU
    their product) or in the attention (the residual stream, queries, the row's keys and values, the
    logits and their exponentials, and the mixed values in float32). A mixture has the sum of its
    experts' outputs beside both, and rows of one expert at a time.
    """
    c, split = model.held, model.model
    on_cpu = model.platform == CPU
    b = 4 if on_cpu else model.item_bytes  # a CPU computes in float32
    heads, shared = c.num_heads // split * c.head_size, c.num_kv_heads // split * c.head_size
    inner = (1 + c.gated + on_cpu) * b * (c.ffn_width // split)
    if c.experts:
        inner = (inner + (4 + b) * c.width) * c.experts_per_token // c.experts
    ffn = 4 * (1 + c.parallel) * c.width + b * c.width + inner
    logits = (4 + b) * (c.num_heads // split) * (prefix + positions)
    attention = 4 * c.width + b * (heads + 2 * shared) + logits + 4 * heads
    step = rows * positions * (max(ffn, attention) + (4 * c.width if c.experts else 0))
    if model.language:
        step += 2 * 4 * rows * c.vocab_size  # logits, and their softmax
    return step
