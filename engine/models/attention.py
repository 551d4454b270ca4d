"""Attention of candidates over a shared prefix and the row behind it: one softmax over both.

The two parts are not concatenated: their exponentials are summed. There are two forms, which
compute the same in other orders of axes; the axis letters are those of `engine/types.py`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from engine.types import KeyValues

Masks = tuple[Bool[Array, "C U P"], Bool[Array, "C U S"]]  # of the prefix, of the row
Logits = Callable[[Array], Array]  # scales dot products, and may cap them
Form = Callable[
    [Float[Array, "C U K G H"], KeyValues, KeyValues, Masks, Logits], Float[Array, "C U K G H"]
]

_F32: Any = {"preferred_element_type": jnp.float32}  # Any: keywords of einsum
# Positions of a row up to which products with them are sums: as matmuls, one per candidate and
# head, they are too small for a TPU.
_FEW = 4


def form(platform: str) -> Form:
    """The form for a CPU or for accelerators: (queries, row, past, masks, logits) -> mixed values.

    Keys and values of a row are [C, S, K, H], those of the prefix, `past`, are [P, K, H].
    """
    return heads_first if platform == "cpu" else candidates_last


def heads_first(
    queries: Float[Array, "C U K G H"],
    row: KeyValues,
    past: KeyValues,
    masks: Masks,
    logits: Logits,
) -> Float[Array, "C U K G H"]:
    """With K first, so that on a CPU every product is a batched matmul without a copy."""
    dtype, grouped = queries.dtype, jnp.einsum("CUKGH->KCUGH", queries)
    keys, values = (jnp.einsum("CSKH->KCSH", x) for x in (row.keys, row.values))
    past_keys, past_values = (jnp.einsum("PKH->KPH", x) for x in (past.keys, past.values))
    see_prefix, see_row = (mask[:, :, None] for mask in masks)
    on_prefix = logits(jnp.einsum("KCUGH,KPH->KCUGP", grouped, past_keys, **_F32))
    on_row = logits(jnp.einsum("KCUGH,KCSH->KCUGS", grouped, keys, **_F32))
    on_prefix, on_row, inverse = _exponentials(on_prefix, on_row, see_prefix, see_row, axis=-1)
    on_prefix, on_row = (weights.astype(values.dtype) for weights in (on_prefix, on_row))
    mixed = jnp.einsum("KCUGP,KPH->KCUGH", on_prefix, past_values, **_F32)
    mixed += jnp.einsum("KCUGS,KCSH->KCUGH", on_row, values, **_F32)
    return jnp.einsum("KCUGH->CUKGH", (mixed * inverse).astype(dtype))


def candidates_last(
    queries: Float[Array, "C U K G H"],
    row: KeyValues,
    past: KeyValues,
    masks: Masks,
    logits: Logits,
) -> Float[Array, "C U K G H"]:
    """With C as the last axis of logits and weights: a TPU's vectors are longer than other axes."""
    see_prefix, see_row = (jnp.einsum("CUS->USC", mask)[:, None] for mask in masks)
    on_prefix = logits(jnp.einsum("CUKGH,PKH->KUGPC", queries, past.keys, **_F32))
    on_row = logits(_row_dots(queries, row.keys))
    on_prefix, on_row, inverse = _exponentials(on_prefix, on_row, see_prefix, see_row, axis=-2)
    on_prefix = on_prefix.astype(row.values.dtype)
    mixed = jnp.einsum("KUGPC,PKH->CUKGH", on_prefix, past.values, **_F32)
    mixed += _row_sums(on_row, row.values)
    return (mixed * jnp.einsum("KUGIC->CUKGI", inverse)).astype(queries.dtype)


def _exponentials(
    on_prefix: Array, on_row: Array, see_prefix: Array, see_row: Array, *, axis: int
) -> tuple[Array, Array, Array]:
    """Exponentials of masked logits over the keys along `axis`, and the inverse of their sum."""
    on_prefix = jnp.where(see_prefix, on_prefix, -jnp.inf)
    on_row = jnp.where(see_row, on_row, -jnp.inf)  # never all masked: a query attends to itself
    largest = jnp.maximum(on_prefix.max(axis, keepdims=True), on_row.max(axis, keepdims=True))
    largest = jax.lax.stop_gradient(largest)
    on_prefix, on_row = jnp.exp(on_prefix - largest), jnp.exp(on_row - largest)
    # Not a quotient: XLA writes the gradient of a quotient by a broadcast in one way on a single
    # device, and in another on several, with other last bits.
    total = on_prefix.sum(axis, keepdims=True) + on_row.sum(axis, keepdims=True)
    return on_prefix, on_row, 1 / total


def _row_dots(
    queries: Float[Array, "C U K G H"], keys: Float[Array, "C S K H"]
) -> Float[Array, "K U G S C"]:
    """Dot products of each candidate's queries and keys, in float32."""
    if keys.shape[1] > _FEW:
        return jnp.einsum("CUKGH,CSKH->KUGSC", queries, keys, **_F32)
    queries, keys = queries.astype(jnp.float32), keys.astype(jnp.float32)
    dots = [(queries * key[:, None, :, None]).sum(-1) for key in keys.swapaxes(0, 1)]
    return jnp.einsum("SCUKG->KUGSC", jnp.stack(dots))


def _row_sums(
    weights: Float[Array, "K U G S C"], values: Float[Array, "C S K H"]
) -> Float[Array, "C U K G H"]:
    """Sums of each candidate's values by their weights, in float32."""
    if values.shape[1] > _FEW:
        return jnp.einsum("KUGSC,CSKH->CUKGH", weights.astype(values.dtype), values, **_F32)
    values, weights = values.astype(jnp.float32), jnp.einsum("KUGSC->SCUKG", weights)
    pairs = zip(weights, values.swapaxes(0, 1), strict=True)
    return sum(weight[..., None] * value[:, None, :, None] for weight, value in pairs)
