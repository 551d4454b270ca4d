"""Bytes that a model needs on a device, in host memory and on disk: an account from its shapes.

Tests compare it with the memory that compiled programs take.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
from jax.sharding import AbstractMesh

from engine import mesh as meshes
from engine.checkpoint.restore import parameters
from engine.models.config import DecoderConfig
from engine.models.heads import HeadConfig
from engine.models.language_model import OutputConfig
from engine.planning import flops
from engine.planning.work import BLOCK_PARENTS, SearchWork, SweepWork
from engine.scoring.batches import PREFIX_MULTIPLE, largest_step, rows_of_step

GIB = 2**30
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
# Tables [attempts, T, V] float32 in a step of a search: the gain (or its noise) and what orders it;
# with a gradient its slopes too, of a block and of all.
_TABLES, _GRADIENT_TABLES = 2, 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """A model, or several that share a decoder, on a mesh: what decides how much it costs."""

    name: str = ""  # for messages
    config: DecoderConfig  # of the deepest decoder
    heads: tuple[HeadConfig | OutputConfig, ...]  # one per model
    stored: str = "bfloat16"  # dtype of the file
    dtype: str = "float32"  # of the decoder when it computes
    data: int = 1  # devices along the mesh axis `data`
    model: int = 1  # devices along the mesh axis `model`
    platform: str = CPU  # or `gpu` or `tpu`

    def on(self, platform: str, dtype: str | None, data: int = 1, model: int = 1) -> "Model":
        """The model on a mesh; `dtype` None is what `--config.dtype=auto` takes."""
        half = self.stored if self.stored in ("bfloat16", "float16") else "bfloat16"
        dtype = dtype or ("float32" if platform == CPU else half)
        return dataclasses.replace(self, platform=platform, dtype=dtype, data=data, model=model)

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
    layer: int  # weights of a layer, or of all, that the compiler holds a second time
    step: int  # activations of one step
    process: int  # of a CPU, whose memory the process shares: compilers, tokenizer, buffers
    code: int = 0  # of a search's program on an accelerator

    @property
    def total(self) -> int:
        """All of them."""
        return sum(dataclasses.astuple(self))


def account(model: Model, work: SweepWork | SearchWork) -> Account:
    """Bytes on each device during a sweep, a list, log-probabilities or a search.

    Without `work.step_size` a step has `LEAST_STEP` candidates.
    """
    if isinstance(work, SweepWork):
        step = work.step_size or LEAST_STEP
        return _of_scoring(model, work.prefix, work.own, step, work.self_check)
    if not work.enumerates:
        return _of_search(model, work)
    rows = rows_of_step(work.candidates, work.own, work.candidates)
    prefix, checked = work.prefix + work.length, 2 * work.together
    one = _of_scoring(model, prefix, work.own, rows, checked)
    return dataclasses.replace(one, prefix=one.prefix * work.together)


def fitting_step(model: Model, usable: float, work: SweepWork) -> tuple[int, Account]:
    """The largest step whose account fits, and the account; the least step where none does.

    A step that the user named is not changed.
    """
    step = work.step_size or STEPS[model.platform]
    while True:
        needed = account(model, dataclasses.replace(work, step_size=step))
        if needed.total <= usable or work.step_size or step <= LEAST_STEP:
            return step, needed
        step //= 2


def ways_to_fit(model: Model, usable: float, work: SweepWork | SearchWork) -> list[str]:
    """Settings each of which makes a model fit that does not, on the same devices."""
    ways, count = [], model.data * model.model
    if isinstance(work, SweepWork):
        step, least = fitting_step(model, usable, dataclasses.replace(work, step_size=None))
        if step < (work.step_size or 0) and least.total <= usable:
            ways.append(f"step_size={step}")
        unchecked = dataclasses.replace(work, self_check=1)
        if work.self_check > 1 and account(model, unchecked).total <= usable:
            ways.append("self_check=1")
    for split in splits(model.config, count):
        other = dataclasses.replace(model, data=count // split, model=split)
        if split > model.model and account(other, work).total <= usable:
            ways.append(f"mesh.model={split}")
            break
    for dtype in ("bfloat16", "float16"):
        if account(dataclasses.replace(model, dtype=dtype), work).total <= usable:
            ways.append(f"dtype={dtype}")
            break
    return ways


def splits(config: DecoderConfig, count: int) -> Iterator[int]:
    """Sizes of the axis `model` that divide the devices and the decoder, ascending."""
    sizes = range(1, count + 1)
    divided = (count, config.num_heads, config.ffn_width)
    return (size for size in sizes if not any(number % size for number in divided))


def weight_bytes(model: Model) -> int:
    """Bytes of the parameters on each device: one decoder and all readouts, which are float32."""
    total = 0
    for number, head in enumerate(model.heads):
        for name, one in parameters(model.held, head).items():
            readout = name.startswith("readout.")
            if readout or number == 0:
                sharding = meshes.parameter_sharding(model.mesh, one.axes, one.shape)
                size = math.prod(sharding.shard_shape(one.shape))
                total += size * (4 if readout else model.item_bytes)
    return total


def checkpoint_bytes(model: Model) -> int:
    """Bytes of a checkpoint's parameters on disk; a source of the same dtype has about as many."""
    embedding, layer, readout = _block_bytes(model)
    return embedding + model.config.num_layers * layer + readout


def host_bytes(model: Model) -> int:
    """Bytes of host memory to convert: two blocks (one is read while another is written)."""
    embedding, layer, readout = _block_bytes(model)
    return sum(sorted([embedding, layer, layer, readout])[-2:]) + process_bytes(model)


def process_bytes(model: Model) -> int:
    """Bytes of a process beside its imports, weights and activations."""
    return _PROCESS_BYTES + _TOKEN_BYTES * model.config.vocab_size


def in_words(size: float) -> str:
    """`7.0 GiB`, or `210 MiB`."""
    return f"{size / GIB:,.1f} GiB" if size >= GIB else f"{size / 2**20:,.0f} MiB"


def _block_bytes(model: Model) -> tuple[int, int, int]:
    """Bytes of the blocks of a checkpoint: the embedding, one layer, the readout."""
    item, sizes = jnp.dtype(model.stored).itemsize, [0, 0, 0]
    for name, parameter in parameters(model.config, model.heads[0]).items():
        size = math.prod(parameter.shape)
        if name.startswith("readout."):
            sizes[2] += 4 * size
        elif "L" in parameter.axes:
            sizes[1] += item * size // model.config.num_layers
        else:
            sizes[0] += item * size
    return sizes[0], sizes[1], sizes[2]


def _of_scoring(
    model: Model, prefix: int, positions: int, candidates: int, self_check: int
) -> Account:
    """Bytes where rewards or log-probabilities of candidates are computed.

    The prompt's pass and the plain pass of the self-check count where they need more than a step.
    """
    if model.language:
        candidates = largest_step(candidates, model.config.vocab_size)
    step = _pass_bytes(model, candidates, prefix, positions)
    return _account(model, prefix, max(step, _whole_bytes(model, prefix, positions, self_check)))


def _of_search(model: Model, work: SearchWork) -> Account:
    """Bytes of a search by the compiled step, with what compiling it takes.

    The self-check computes two conversations for each prompt: of the ids, and of their text.
    """
    # The prompt has room for the reply.
    prefix = -(-(work.prefix + work.length) // PREFIX_MULTIPLE) * PREFIX_MULTIPLE
    positions = work.block_rows * work.row_positions * work.together
    step = positions * _position_bytes(model, prefix, work.row_positions)
    if work.gradient:
        step = max(step, _gradient_bytes(model, work))
    step = max(step, _whole_bytes(model, work.prefix, work.own, 2 * work.together))
    needed = _account(model, prefix * work.together, step)
    needed = dataclasses.replace(needed, step=needed.step + _table_bytes(model, work))
    if model.platform == CPU:
        return dataclasses.replace(needed, process=needed.process + _SEARCH_BYTES)
    return dataclasses.replace(needed, code=_CODE_BYTES)


def _gradient_bytes(model: Model, work: SearchWork) -> int:
    """Bytes that the gradient of a block of parents keeps of every layer."""
    c, b = model.held, model.item_bytes
    kept = b * 3 * c.ffn_width // model.model + 12 * c.width
    saved = BLOCK_PARENTS * work.own * work.together * kept * c.num_layers
    if model.platform == CPU and b < 4:
        # XLA transposes and widens the embedding that slopes are multiplied by.
        saved += (b + 4) * c.vocab_size * c.width
    return saved


def _table_bytes(model: Model, work: SearchWork) -> int:
    """Bytes of a number for each position and token; attempts are computed in whole blocks."""
    vocab, attempts = model.held.vocab_size, -(-work.attempts // BLOCK_PARENTS) * BLOCK_PARENTS
    table = 4 * attempts * work.length * vocab
    if not work.gradient:
        return _TABLES * table
    tables = (_TABLES + _GRADIENT_TABLES) * table
    # Where candidates are drawn by position, devices along `model` keep the slopes of their tokens.
    if model.platform != CPU and work.packed and vocab % model.model == 0:
        tables //= model.model
    return tables


def _account(model: Model, prefix: int, step: int) -> Account:
    on_cpu, c = model.platform == CPU, model.held
    keys = 2 * c.num_layers * prefix * c.num_kv_heads * c.head_size * model.item_bytes
    one = flops.layer_weights(c) // model.model
    layer = 0
    if model.platform == "tpu":
        step = max(0, step - _VECTOR_MEMORY)
    if on_cpu:
        # XLA's CPU compiler copies a layer out of the stack. Of bfloat16, it converts all layers to
        # float32 before the loop over them begins; of float16, one at a time.
        layer = one * 4 * (c.num_layers if model.dtype == "bfloat16" else 1)
    elif model.item_bytes * one > step:
        layer = model.item_bytes * one - step  # one layer more while the model is restored
    return Account(
        weights=weight_bytes(model),
        prefix=keys // model.model,
        layer=layer,
        step=step,
        process=process_bytes(model) if on_cpu else 0,
    )


def _whole_bytes(model: Model, prefix: int, positions: int, self_check: int) -> int:
    """Bytes of activations of the larger pass over whole sequences: the prompt, the self-check."""
    whole = -(-(prefix + positions) // PREFIX_MULTIPLE) * PREFIX_MULTIPLE
    return max(_pass_bytes(model, 1, 0, prefix), _pass_bytes(model, self_check, 0, whole))


def _pass_bytes(model: Model, rows: int, prefix: int, positions: int) -> int:
    """Bytes of activations of a pass over rows of so many positions behind a prefix."""
    step = rows * positions * _position_bytes(model, prefix, positions)
    if model.language:
        step += 2 * 4 * rows * model.config.vocab_size  # logits, and their softmax
    return step


def _position_bytes(model: Model, prefix: int, positions: int) -> int:
    """Bytes of activations of one position of a row at the largest moment of a layer.

    In the feed-forward: the residual stream in float32, the normed one, gate, up, and on a CPU
    their product. In the attention: the residual stream, queries, the row's keys and values, the
    logits and their exponentials, and the mixed values in float32.
    """
    c, split = model.held, model.model
    on_cpu = model.platform == CPU
    b = 4 if on_cpu else model.item_bytes  # a CPU computes in float32
    heads, shared = c.num_heads // split * c.head_size, c.num_kv_heads // split * c.head_size
    ffn = 4 * c.width + b * c.width + (3 if on_cpu else 2) * b * (c.ffn_width // split)
    logits = (4 + b) * (c.num_heads // split) * (prefix + positions)
    attention = 4 * c.width + b * (heads + 2 * shared) + logits + 4 * heads
    return max(ffn, attention)
