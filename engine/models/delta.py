"""The gated delta rule of Qwen 3.5: a layer with a state S [h, v] per head in place of attention.

At each position the state decays, forgets what it holds under the position's key in part, and gets
that key's new value: S ← e^g S, u = β (v - Sᵀk), S ← S + k uᵀ. The output is Sᵀq. Before that, q, k
and v pass a short causal convolution. Axis letters are those of `engine/types.py`.

Once the updates u of a prefix are known, its state at any position is a sum over its positions, as
in attention without a softmax. So a prefix keeps keys, updates and decays, and each candidate sums
over as many positions as it shares. Within a row, a chunk or a prompt, updates depend on those
before by a triangular system. `steps` computes position by position: the independent check.

Checked against `Qwen3_5GatedDeltaNet` of `transformers` 5.23.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from engine.types import Places, Updates

Read = Callable[[Float[Array, "C T n h"]], Float[Array, "C T n v"]]  # Sᵀ of queries or keys
Inputs = tuple[Float[Array, "C T _"], ...]  # of the convolution: of queries, keys and values
Result = tuple[Float[Array, "C T n v"], Float[Array, "C T n v"]]  # outputs, updates

CHUNK = 64  # positions of a prompt whose updates are solved for at once
_F32: Any = {"preferred_element_type": jnp.float32}  # Any: keywords of einsum


class Rule(NamedTuple):
    """What the rule reads at each position, in float32: q and k are normed, q is scaled."""

    q: Float[Array, "C T n h"]
    k: Float[Array, "C T n h"]
    v: Float[Array, "C T n v"]
    decay: Float[Array, "C T n"]  # g, the logarithm of what is left of the state
    beta: Float[Array, "C T n"]


def convolve(
    x: Float[Array, "C T E"], weight: Float[Array, "E t"], before: Callable[[int], Array]
) -> Float[Array, "C T E"]:
    """SiLU of a causal convolution by channel; `before(i)` is x at i positions before each."""
    taps = weight.astype(jnp.float32).T[::-1]  # the last one is that of the position itself
    added = taps[0] * x.astype(jnp.float32)
    for i, tap in enumerate(taps[1:], 1):
        added += tap * before(i).astype(jnp.float32)
    return jax.nn.silu(added).astype(x.dtype)


def shifted(x: Float[Array, "C T E"], positions: int) -> Float[Array, "C T E"]:
    """X at so many positions before each in a whole sequence; zeros before its beginning."""
    return jnp.pad(x, ((0, 0), (positions, 0), (0, 0)))[:, : x.shape[1]]


def behind_prefix(
    x: Float[Array, "C T E"], past: Float[Array, "P E"], places: Places, positions: int
) -> Float[Array, "C T E"]:
    """The same of rows behind a prefix: in the row if it is of the same reply, else in `past`."""
    reply = places.reply
    before = jnp.pad(reply, ((0, 0), (positions, 0)), constant_values=-1)[:, : reply.shape[1]]
    at = places.position - positions
    kept = jnp.where(at[..., None] >= 0, past[at.clip(min=0)], 0)
    return jnp.where((before == reply)[..., None], shifted(x, positions), kept)


def normed(x: Float[Array, "C T k h"]) -> Float[Array, "C T k h"]:
    """X divided by its length, in float32."""
    x = x.astype(jnp.float32)
    return x * jax.lax.rsqrt(jnp.square(x).sum(-1, keepdims=True) + 1e-6)


def steps(rule: Rule) -> Result:
    """Outputs and updates of whole sequences, position by position."""

    def step(state: Array, at: Rule) -> tuple[Array, tuple[Array, Array]]:
        state = state * jnp.exp(at.decay)[..., None, None]
        update = at.beta[..., None] * (at.v - jnp.einsum("Cnhv,Cnh->Cnv", state, at.k))
        state = state + jnp.einsum("Cnh,Cnv->Cnhv", at.k, update)
        return state, (jnp.einsum("Cnhv,Cnh->Cnv", state, at.q), update)

    by_position = jax.tree.map(lambda array: array.swapaxes(0, 1), rule)
    _, results = jax.lax.scan(step, _no_state(rule), by_position)
    outputs, updates = (array.swapaxes(0, 1) for array in results)
    return outputs, updates


def chunks(rule: Rule) -> Result:
    """Outputs and updates of whole sequences, a chunk of positions after the other."""
    rows, positions = rule.decay.shape[:2]
    count = -(-positions // CHUNK)

    def cut(x: Array) -> Array:
        x = jnp.pad(x, [(0, 0), (0, count * CHUNK - positions)] + [(0, 0)] * (x.ndim - 2))
        return x.reshape(rows, count, CHUNK, *x.shape[2:]).swapaxes(0, 1)

    see = jnp.tril(jnp.ones((rows, CHUNK, CHUNK), bool))

    def step(state: Array, chunk: Rule) -> tuple[Array, Result]:
        since = jnp.einsum("CTS,CSn->CTn", see.astype(jnp.float32), chunk.decay)
        read = functools.partial(jnp.einsum, "Cnhv,CTnh->CTnv", state)
        outputs, updates = within(chunk, since, see, read)
        left = jnp.exp(since[:, -1:] - since)[..., None]  # of each position's, at the end
        added = jnp.einsum("CTnh,CTnv->Cnhv", chunk.k * left, updates)
        return state * jnp.exp(since[:, -1])[..., None, None] + added, (outputs, updates)

    _, results = jax.lax.scan(step, _no_state(rule), jax.tree.map(cut, rule))
    outputs, updates = (
        array.swapaxes(0, 1).reshape(rows, count * CHUNK, *array.shape[3:])[:, :positions]
        for array in results
    )
    return outputs, updates


def behind(
    inputs: Inputs, rule: Rule, past: Updates, places: Places, see: Bool[Array, "C T S"]
) -> tuple[Float[Array, "C T n v"], Updates]:
    """Outputs of rows behind a prefix, and what is kept of them, of one layer.

    Args:
      inputs: of the convolution.
      rule: of the positions of rows.
      past: what is kept of the prefix, without an axis for layers.
      places: of the positions.
      see: the positions of the row, itself among them, whose updates are in a position's state.
    """
    keys = per_value_head(past.keys, rule.decay.shape[-1])
    at_end = past.decay[(places.shared - 1).clip(min=0)]  # [C, T, n]
    since = jnp.einsum("CTn->nCT", at_end)[..., None] - past.decay.T[:, None, None]
    seen = jnp.arange(len(keys)) < places.shared[:, :, None]
    left = jnp.exp(jnp.where(seen, since, -jnp.inf))  # [n, C, T, P]

    def read(x: Float[Array, "C T n h"]) -> Float[Array, "C T n v"]:
        dots = jnp.einsum("CTnh,Pnh->nCTP", x.astype(keys.dtype), keys, **_F32)
        weights = (dots * left).astype(past.updates.dtype)
        return jnp.einsum("nCTP,Pnv->CTnv", weights, past.updates, **_F32)

    since_end = jnp.einsum("CTS,CSn->CTn", see.astype(jnp.float32), rule.decay)
    outputs, updates = within(rule, since_end, see, read)
    return outputs, kept(inputs, rule, updates, at_end + since_end)


def kept(
    inputs: Inputs, rule: Rule, updates: Float[Array, "C T n v"], decay: Float[Array, "C T n"]
) -> Updates:
    """What a layer keeps of positions, in the dtype of the inputs."""
    q, k, v = inputs
    heads = k.shape[-1] // rule.k.shape[-1]
    keys = rule.k[:, :, :: rule.k.shape[2] // heads]
    return Updates(
        inputs=(q, k, v),
        keys=keys.astype(k.dtype),
        updates=updates.astype(v.dtype),
        decay=decay,
    )


def until_end(decay: Float[Array, "C T n"]) -> Float[Array, "C T n"]:
    """Minus the sum of the decays behind each position: exact near the end, where it counts."""
    return decay - jnp.cumsum(decay[:, ::-1], axis=1)[:, ::-1]


def within(
    rule: Rule, since: Float[Array, "C T n"], see: Bool[Array, "C T S"], read: Read
) -> Result:
    """Outputs and updates of positions that see one another, and by `read` a state before them.

    `since` is the sum of the decays of those that each sees. Updates solve
    u_t = β_t (v_t - S₀ᵀk_t - Σ_s (k_t·k_s) u_s) over s before t, states and keys decayed to t.
    """
    by_head = jnp.einsum("CTn->CnT", since)
    between = jnp.where(see[:, None], by_head[..., None] - by_head[:, :, None], -jnp.inf)
    left, from_start = jnp.exp(between), jnp.exp(since)[..., None]  # [C, n, T, S], [C, T, n, 1]
    beta = jnp.einsum("CTn->CnT", rule.beta)[..., None]
    system = jnp.tril(beta * left * jnp.einsum("CTnh,CSnh->CnTS", rule.k, rule.k), -1)
    wanted = rule.beta[..., None] * (rule.v - from_start * read(rule.k))
    updates = jax.lax.linalg.triangular_solve(
        system, jnp.einsum("CTnv->CnTv", wanted), left_side=True, lower=True, unit_diagonal=True
    )
    weights = left * jnp.einsum("CTnh,CSnh->CnTS", rule.q, rule.k)
    outputs = from_start * read(rule.q) + jnp.einsum("CnTS,CnSv->CTnv", weights, updates)
    return outputs, jnp.einsum("CnTv->CTnv", updates)


def per_value_head(x: Float[Array, "*B k h"], heads: int) -> Float[Array, "*B n h"]:
    """Heads of queries or keys, repeated for the heads of values that each of them serves."""
    return jnp.repeat(x, heads // x.shape[-2], axis=-2)


def _no_state(rule: Rule) -> Float[Array, "C n h v"]:
    return jnp.zeros((rule.k.shape[0], *rule.k.shape[2:], rule.v.shape[-1]), jnp.float32)
