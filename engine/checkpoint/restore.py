"""Restores checkpoints onto a device mesh; models that share a decoder, as one group.

One block of parameters is in host memory at a time. Decoder tensors have the layout of
their source (`layouts`) and are transposed on the device; those of a readout have the model's
layout.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh, NamedSharding

from engine import mesh as meshes
from engine.checkpoint import layouts
from engine.checkpoint.arrays import read_block
from engine.checkpoint.card import EMBEDDING, READOUT, Card, Checkpoint, layer_block
from engine.models.encoder_config import EncoderConfig, NetworkConfig
from engine.models.heads import HeadConfig, OutputConfig
from engine.models.layer import FLOAT32
from engine.models.reward_model import RewardModels
from engine.types import Graph, Params, dimensions

if TYPE_CHECKING:
    from engine.models.language_model import LanguageModel

Variable = nnx.Variable[Any]  # Any: of any kind of array, real or abstract


@dataclasses.dataclass(frozen=True)
class Parameter:
    """Shape and axis letters of one parameter."""

    shape: tuple[int, ...]
    axes: str


@functools.cache
def parameters(config: NetworkConfig, head: HeadConfig | OutputConfig) -> dict[str, Parameter]:
    """Name on disk -> shape and axes, for every parameter of a model with one readout.

    Those of the layers are those of one stack, of all layers that have them.
    """
    params = _abstract(config, [head], jnp.dtype("float32"), platform="tpu")[1]
    by_name: dict[str, Parameter] = {}
    for path, p in nnx.to_flat_state(params):
        name, shape = _name(path), tuple(p.shape)
        if name in by_name:  # layers of two kinds have a stack each
            shape = (by_name[name].shape[0] + shape[0], *shape[1:])
        by_name[name] = Parameter(shape, p.get_metadata()["axes"])
    return by_name


def axis_sizes(config: NetworkConfig, head: HeadConfig | OutputConfig) -> dict[str, int]:
    """Axis letter -> size, for every letter in the parameters of a model."""
    sizes = {"1": 1, **config.sizes}
    for parameter in parameters(config, head).values():
        letters = dimensions(parameter.axes)
        sizes |= {a: n for a, n in zip(letters, parameter.shape, strict=True) if len(a) == 1}
    return sizes


def sharing_groups(checkpoints: Sequence[Checkpoint]) -> list[list[Checkpoint]]:
    """Groups checkpoints that can be scored in one pass of one decoder.

    Two models share a decoder if that of one equals that of the other, or its first layers, bit for
    bit, and if tokenizer, template and pad token agree. The groups are in the order in which their
    first model appears; the deepest model of a group is first in it.
    """
    groups: list[list[Checkpoint]] = []
    for checkpoint in sorted(checkpoints, key=lambda c: -c.card.decoder.num_layers):
        for group in groups:
            if _shares(group[0].card, checkpoint.card):
                group.append(checkpoint)
                break
        else:
            groups.append([checkpoint])
    order = {id(c): i for i, c in enumerate(checkpoints)}
    return sorted(groups, key=lambda group: min(order[id(c)] for c in group))


def restore(
    group: Sequence[Checkpoint], mesh: Mesh, dtype: jnp.dtype, *, objectives: str = "none"
) -> tuple[Graph, Params]:
    """Restores a group straight onto the mesh: one decoder, and one readout per model.

    `dtype` is that of the decoder's parameters; readouts are float32. `objectives` (one of
    `settings.OBJECTIVES`) are the columns of a result beside the reward.

    Returns:
      Graph and parameters of `RewardModels` or `LanguageModel`, as `nnx.split` gives them.

    Raises:
      AssayError: the mesh does not fit the model, or the checkpoint is damaged.
    """
    deepest = group[0]
    heads = [c.card.head for c in group]
    graph, params = abstract(deepest.card.decoder, heads, mesh, dtype, objectives=objectives)
    by_path = nnx.to_flat_state(params)
    embedding, stacks = {}, collections.defaultdict(dict)
    for path, parameter in by_path:
        if path[:2] == ("decoder", "stacks"):
            stacks[path[2]][_name(path)] = parameter
        elif path[0] == "decoder":
            embedding[_name(path)] = parameter
    _restore_block(deepest, EMBEDDING, embedding)
    for first, layers in stacks.items():
        _restore_stack(deepest, first, len(stacks), layers, mesh)
    for model, checkpoint in enumerate(group):
        readout = {_name(p): v for p, v in by_path if p[:2] == ("readouts", model)}
        _restore_block(checkpoint, READOUT, readout)
    return graph, params


def abstract(
    config: NetworkConfig,
    heads: Sequence[HeadConfig | OutputConfig],
    mesh: Mesh,
    dtype: jnp.dtype,
    *,
    objectives: str = "none",
) -> tuple[Graph, Params]:
    """What `restore` returns for such a model, with shapes and shardings in place of arrays.

    Nothing is allocated, so the mesh may be of devices that are not there.

    Raises:
      AssayError: the mesh does not fit the model.
    """
    meshes.check_mesh(mesh, config)
    whole = meshes.with_whole_kv_heads(mesh, config)
    sums = meshes.sum_dtype(mesh, dtype)
    platform = mesh.devices.flat[0].platform
    graph, params = _abstract(whole, heads, dtype, objectives, sums, platform=platform)
    for _, parameter in nnx.to_flat_state(params):
        shape = parameter.shape
        place = meshes.parameter_sharding(mesh, _axes(parameter), shape)
        parameter.set_value(jax.ShapeDtypeStruct(shape, parameter.dtype, sharding=place))
    return graph, params


def _read(
    checkpoint: Checkpoint, block: str, targets: Mapping[str, jax.ShapeDtypeStruct]
) -> dict[str, jax.Array]:
    card, folder = checkpoint.card, checkpoint.path / "params" / block
    wanted = card.block_hash(block) if checkpoint.verify else None
    return read_block(folder, targets, card.dtypes, wanted)


def _restore_block(checkpoint: Checkpoint, block: str, parameters: Mapping[str, Variable]) -> None:
    """Fills parameters that are stored in the model's layout."""
    targets = {name: parameter.get_value() for name, parameter in parameters.items()}
    for name, value in _read(checkpoint, block, targets).items():
        parameters[name].set_value(value)


def _restore_stack(
    checkpoint: Checkpoint, first: int, step: int, parameters: Mapping[str, Variable], mesh: Mesh
) -> None:
    """Fills a stack of each `step`-th layer from `first` on, with one more than it in memory."""
    config = checkpoint.card.decoder
    in_file = {r.parameter: r.layout for r in layouts.decoder_rules(config)}
    stacks = {name: _Stack(p, in_file[name], config, mesh) for name, p in parameters.items()}
    (height,) = {p.shape[0] for p in parameters.values()}
    for layer in range(height):
        targets = {name: stack.target for name, stack in stacks.items()}
        for name, value in _read(checkpoint, layer_block(first + layer * step), targets).items():
            stacks[name].fill(layer, value)
    for name, stack in stacks.items():
        parameters[name].set_value(stack.value)


class _Stack:
    """A stacked parameter on the mesh, filled in place from its layers in the file's layout.

    Where it has more key/value heads than the file, each head of the file is repeated.
    """

    def __init__(self, parameter: Variable, layout: str, config: NetworkConfig, mesh: Mesh):
        axes, dtype = _axes(parameter), parameter.dtype
        split, in_model = layouts.letters(layout), layouts.letters(axes).removeprefix("L")
        order = layouts.permutation(layout, in_model)
        whole_heads = meshes.with_whole_kv_heads(mesh, config).num_kv_heads
        copies = whole_heads // config.num_kv_heads if "K" in axes else 1
        self.target = jax.ShapeDtypeStruct(
            layouts.split_shape(layout, config.sizes),
            dtype,
            # Heads that are repeated cannot be split before.
            sharding=meshes.sharding(mesh, split if copies == 1 else ""),
        )
        whole = meshes.sharding(mesh, axes)
        self.value = _zeros_on_mesh(parameter.shape, dtype, whole)()
        self._place = _place(order, in_model.find("K"), copies, whole)

    def fill(self, layer: int, value: jax.Array) -> None:
        self.value = self._place(self.value, layer, value)


# Both are kept, so that parameters of one shape, and models loaded later, share what is compiled.
@functools.lru_cache(maxsize=128)
def _zeros_on_mesh(
    shape: tuple[int, ...], dtype: jnp.dtype, sharding: NamedSharding
) -> Callable[..., jax.Array]:
    return jax.jit(lambda: jnp.zeros(shape, dtype), out_shardings=sharding)


@functools.lru_cache(maxsize=128)
def _place(
    order: tuple[int, ...], heads: int, copies: int, sharding: NamedSharding
) -> Callable[..., jax.Array]:
    def place(stack: jax.Array, layer: int, value: jax.Array) -> jax.Array:
        value = value.transpose(order)
        if copies > 1:
            value = jnp.repeat(value, copies, axis=heads)
        value = value.reshape(stack.shape[1:])  # `D(NH)` has merged dimensions
        return jax.lax.dynamic_update_index_in_dim(stack, value, layer, 0)

    return jax.jit(place, donate_argnums=0, out_shardings=sharding)


def _axes(parameter: Variable) -> str:
    return parameter.get_metadata()["axes"]


def _shares(deep: Card, shallow: Card) -> bool:
    """Whether `shallow` can be scored in the passes of `deep`."""
    depth = shallow.decoder.num_layers
    return (
        deep.decoder.first(depth) == shallow.decoder
        and deep.embedding_hash == shallow.embedding_hash
        and deep.layer_hashes[:depth] == shallow.layer_hashes
        and deep.tokenizer_hash == shallow.tokenizer_hash
        and deep.policy == shallow.policy
        and deep.pad_token_id == shallow.pad_token_id
        and deep.pooling == shallow.pooling
    )


def _abstract(
    config: NetworkConfig,
    heads: Sequence[HeadConfig | OutputConfig],
    dtype: jnp.dtype,
    objectives: str = "none",
    sums: jnp.dtype = FLOAT32,
    *,
    platform: str,
) -> tuple[Graph, Params]:
    """Graph and shapes of a group's model, without allocating its parameters."""

    def build() -> "RewardModels | LanguageModel":
        rewarding = [head for head in heads if isinstance(head, HeadConfig)]
        if isinstance(config, EncoderConfig):
            from engine.models.encoder import EncoderRewardModels  # likewise

            kind = {"objectives": objectives, "platform": platform}
            return EncoderRewardModels(config, rewarding, dtype, **kind)
        if rewarding:
            return RewardModels(
                config, rewarding, dtype, objectives=objectives, sums=sums, platform=platform
            )
        from engine.models.language_model import LanguageModel  # a sweep does not load it

        (output,) = (head for head in heads if isinstance(head, OutputConfig))
        return LanguageModel(config, output, dtype, sums, platform=platform)

    graph, params = nnx.split(nnx.eval_shape(build))
    return graph, params


# Any: flax's type of a step in a path is not public.
def _name(path: tuple[Any, ...]) -> str:
    """Name on disk, where a checkpoint has one readout: ('readouts', 0, 'norm'): readout.norm.

    A stack of layers is called `layers` there.
    """
    if path[0] == "readouts":
        path = ("readout", *path[2:])
    if path[:2] == ("decoder", "stacks"):
        path = ("decoder", "layers", *path[3:])
    return ".".join(map(str, path))
