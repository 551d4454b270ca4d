"""Bytes that a model needs on a device, in host memory and on disk: an account from its shapes.

docs/planning.md compares it with what compilers reserve and with what a process holds.
"""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
from jax.sharding import AbstractMesh

from engine import mesh as meshes
from engine.checkpoint.card import EMBEDDING, READOUT, layer_block
from engine.checkpoint.restore import Parameter, parameters
from engine.models.config import DecoderConfig
from engine.models.heads import HeadConfig
from engine.models.language_model import OutputConfig
from engine.planning import flops
from engine.planning.work import BLOCK_PARENTS, SELF_CHECK, SearchWork
from engine.scoring.language_passes import largest_step
from engine.scoring.reward_passes import PREFIX_MULTIPLE

GIB = 2**30
CPU = "cpu"  # the platform on which host and device share memory
# Measured on Linux for Python 3.11 and jax 0.10.2: what compilers, buffers of the reader and
# threads add to a process that has imported Assay, and what a tokenizer holds per token.
_PROCESS_BYTES = 200 * 2**20
_TOKEN_BYTES = 1100
# Of a TPU's activations, those that its vector memory holds take no HBM.
_VECTOR_MEMORY = 128 * 2**20
# What compiling the larger program of a search adds to a process, and its code on an accelerator.
_SEARCH_BYTES, _CODE_BYTES = 460 * 2**20, 13 * 2**20
# Tables [attempts, T, V] float32 in a step of a search: the gain (or its noise) and what orders it;
# with a gradient its slopes too, of a block and of all.
_TABLES, _GRADIENT_TABLES = 2, 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """What of one model, or of a group that shares a decoder, decides what it costs.

    Attributes:
      config: of the deepest decoder.
      heads: one per model.
      dtype: of the decoder when it computes.
      data: devices along the mesh axis `data`.
      model: devices along the mesh axis `model`.
      platform: `cpu`, `gpu` or `tpu`.
    """

    config: DecoderConfig
    heads: tuple[HeadConfig | OutputConfig, ...]
    dtype: str
    data: int = 1
    model: int = 1
    platform: str = CPU

    @property
    def held(self) -> DecoderConfig:
        """The decoder as the mesh holds it: key/value heads may be repeated."""
        return meshes.with_whole_kv_heads(self.mesh, self.config)

    # Any: the functions of `engine.mesh` name a mesh that has devices.
    @property
    def mesh(self) -> Any:
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
    def rest(self) -> int:
        """All but weights and step."""
        return self.prefix + self.layer + self.process + self.code

    @property
    def total(self) -> int:
        """All of them."""
        return self.weights + self.step + self.rest


def of_scoring(
    model: Model, *, prefix: int, own: int, candidates: int, self_check: int = SELF_CHECK
) -> Account:
    """Bytes of a sweep, of a list, or of log-probabilities.

    The prompt's own pass and the plain pass of the self-check count where they need more than a
    step does.

    Args:
      model: the model.
      prefix: positions of the prompt, padding included.
      own: positions of a candidate.
      candidates: of one step on one device.
      self_check: conversations that the plain pass computes together.
    """
    if model.language:
        candidates = largest_step(candidates, model.config.vocab_size)
    step = _pass_bytes(model, candidates, prefix, own)
    return _account(model, prefix, max(step, _whole_bytes(model, prefix, own, self_check)))


def of_search(model: Model, work: SearchWork) -> Account:
    """Bytes of a search by the compiled step.

    Args:
      model: the model.
      work: the search.
    """
    rows, own = work.block_rows, work.row_positions
    scores = rows * own * _position_bytes(model, _prefix(work), own) * work.together
    c, b = model.held, model.item_bytes
    # Attempts are computed in whole blocks.
    table = 4 * BLOCK_PARENTS * work.parent_blocks * work.length * c.vocab_size
    if not work.gradient:
        return _searched(model, work, scores, _TABLES * table)
    kept = b * 3 * c.ffn_width // model.model + 12 * c.width
    saved = BLOCK_PARENTS * work.own * work.together * kept * c.num_layers
    if model.platform == CPU and b < 4:
        # XLA transposes and widens the embedding that slopes are multiplied by.
        saved += (b + 4) * c.vocab_size * c.width
    tables = (_TABLES + _GRADIENT_TABLES) * table
    # Where candidates are drawn by position, devices along `model` keep the slopes of their tokens.
    if model.platform != CPU and work.packed and c.vocab_size % model.model == 0:
        tables //= model.model
    tables += 2 * work.momentum * table  # before and after the step, whole on every device
    return _searched(model, work, max(scores, saved), tables)


def _searched(model: Model, work: SearchWork, step: int, tables: int) -> Account:
    """The account of a step of a search, with what compiling it takes.

    The self-check computes two conversations for each prompt: of the ids, and of their text. A
    TPU's vector memory does not hold the tables.
    """
    checked = _whole_bytes(model, work.prefix, work.own, 2 * work.together)
    found = _account(model, _prefix(work) * work.together, max(step, checked))
    found = dataclasses.replace(found, step=found.step + tables)
    if model.platform == CPU:
        return dataclasses.replace(found, process=found.process + _SEARCH_BYTES)
    return dataclasses.replace(found, code=_CODE_BYTES)


def weight_bytes(model: Model) -> int:
    """Bytes of the parameters on each device; readouts are float32."""
    return _bytes_of(model, "")


def layer_bytes(model: Model) -> int:
    """Bytes of all layers' parameters on each device, which a pass reads at least once."""
    return _bytes_of(model, "decoder.layers.")


def embedding_bytes(model: Model) -> int:
    """Bytes of the embedding on each device."""
    return _bytes_of(model, "decoder.embedding")


def checkpoint_bytes(
    config: DecoderConfig, head: HeadConfig | OutputConfig, item_bytes: int
) -> int:
    """Bytes of a checkpoint's parameters on disk; a source of the same dtype has about as many."""
    return sum(
        math.prod(p.shape) * (4 if name.startswith("readout") else item_bytes)
        for name, p in parameters(config, head).items()
    )


def host_bytes(
    config: DecoderConfig, head: HeadConfig | OutputConfig, item_bytes: int, *, blocks: int
) -> int:
    """Bytes of host memory to convert or restore: some blocks, and the process around them.

    Args:
      config: the decoder's.
      head: of the model.
      item_bytes: of an element in the file.
      blocks: that are held at once: 2 by a conversion, which reads one while it writes another; 1
        by a restore.
    """
    sizes: dict[str, int] = {}
    for name, parameter in parameters(config, head).items():
        size = math.prod(parameter.shape)
        if name.startswith("readout."):
            sizes[READOUT] = sizes.get(READOUT, 0) + 4 * size
        elif "L" in parameter.axes:
            key = layer_block(0)
            sizes[key] = sizes.get(key, 0) + item_bytes * size // config.num_layers
        else:
            sizes[EMBEDDING] = sizes.get(EMBEDDING, 0) + item_bytes * size
    largest = sorted([*sizes.values(), sizes[layer_block(0)]])[-blocks:]
    return sum(largest) + process_bytes(config)


def process_bytes(config: DecoderConfig) -> int:
    """Bytes of a process beside its imports, weights and activations."""
    return _PROCESS_BYTES + _TOKEN_BYTES * config.vocab_size


def in_words(size: float) -> str:
    """`7.0 GiB`, or `210 MiB`."""
    return f"{size / GIB:,.1f} GiB" if size >= GIB else f"{size / 2**20:,.0f} MiB"


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
        process=process_bytes(c) if on_cpu else 0,
    )


def _prefix(work: SearchWork) -> int:
    """Positions of a prompt with room for the reply, padding included."""
    return -(-(work.prefix + work.length) // PREFIX_MULTIPLE) * PREFIX_MULTIPLE


def _whole_bytes(model: Model, prefix: int, own: int, self_check: int) -> int:
    """Bytes of activations of the larger pass over whole sequences: the prompt, the self-check."""
    whole = -(-(prefix + own) // PREFIX_MULTIPLE) * PREFIX_MULTIPLE
    return max(_pass_bytes(model, 1, 0, prefix), _pass_bytes(model, self_check, 0, whole))


def _pass_bytes(model: Model, rows: int, prefix: int, own: int) -> int:
    """Bytes of activations of a pass over rows with `own` positions each, behind a prefix."""
    step = rows * own * _position_bytes(model, prefix, own)
    if model.language:
        step += 2 * 4 * rows * model.config.vocab_size  # logits, and their softmax
    return step


def _position_bytes(model: Model, prefix: int, own: int) -> int:
    """Bytes of activations of one own position at the largest moment of a layer.

    In the feed-forward: the residual stream in float32, the normed one, gate, up, and on a CPU
    their product. In the attention: the residual stream, queries, own keys and values, the logits
    and their exponentials, and the mixed values in float32.
    """
    c, split = model.held, model.model
    on_cpu = model.platform == CPU
    b = 4 if on_cpu else model.item_bytes  # a CPU computes in float32
    heads, shared = c.num_heads // split * c.head_size, c.num_kv_heads // split * c.head_size
    ffn = 4 * c.width + b * c.width + (3 if on_cpu else 2) * b * (c.ffn_width // split)
    logits = (4 + b) * (c.num_heads // split) * (prefix + own)
    attention = 4 * c.width + b * (heads + 2 * shared) + logits + 4 * heads
    return max(ffn, attention)


def _bytes_of(model: Model, prefix: str) -> int:
    """Bytes on each device of the parameters whose names begin with `prefix`."""
    every = _parameters(model)
    return sum(_on_device(model, name, one) for name, one in every if name.startswith(prefix))


def _parameters(model: Model) -> list[tuple[str, Parameter]]:
    """Name and shape of every parameter: one decoder, and all readouts."""
    found: list[tuple[str, Parameter]] = []
    for number, head in enumerate(model.heads):
        for name, parameter in parameters(model.held, head).items():
            if number == 0 or name.startswith("readout."):
                found.append((name, parameter))
    return found


def _on_device(model: Model, name: str, parameter: Parameter) -> int:
    sharding = meshes.parameter_sharding(model.mesh, parameter.axes, parameter.shape)
    size = math.prod(sharding.shard_shape(parameter.shape))
    return size * (4 if name.startswith("readout.") else model.item_bytes)
