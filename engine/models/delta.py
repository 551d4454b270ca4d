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
from jaxtyping import Array, Bool, Float, Shaped

from engine.types import Places, Updates

Read = Callable[[Float[Array, "J C T n h"]], Float[Array, "J C T n v"]]  # Sᵀ of keys and queries
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
    x: Float[Array, "C T k I"], taps: Float[Array, "k I t"], before: Float[Array, "C T _ k I"]
) -> Float[Array, "C T k I"]:
    """SiLU of a causal convolution by channel; `before` is x at 1, 2, … positions before each."""
    # The last one is that of the position itself.
    taps = jnp.moveaxis(taps.astype(jnp.float32), -1, 0)[::-1]
    added = taps[0] * x.astype(jnp.float32) + (taps[1:] * before.astype(jnp.float32)).sum(2)
    return jax.nn.silu(added).astype(x.dtype)


def shifted(x: Shaped[Array, "C T *B"], taps: int) -> Shaped[Array, "C T _ *B"]:
    """X at 1 to `taps` - 1 positions before each of a whole sequence; zeros before its start."""
    padded = jnp.pad(x, [(0, 0), (taps - 1, 0)] + [(0, 0)] * (x.ndim - 2))
    positions = x.shape[1]
    return jnp.stack([padded[:, i : i + positions] for i in reversed(range(taps - 1))], axis=2)


def behind_prefix(
    x: Float[Array, "C T k I"], past: Float[Array, "P k I"], places: Places, taps: int
) -> Float[Array, "C T _ k I"]:
    """The same of rows behind a prefix: in the row if it is of the same reply, else in `past`."""
    reply = places.reply + 1  # 0 before the row
    in_row = shifted(reply, taps) == reply[..., None]
    at = places.position[..., None] - jnp.arange(1, taps)
    kept = past.at[at].get(mode="fill", fill_value=0, wrap_negative_indices=False)
    return jnp.where(in_row[..., None, None], shifted(x, taps), kept)


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

    by_position = jax.tree.map(lambda each: each.swapaxes(0, 1), rule)
    _, results = jax.lax.scan(step, _no_state(rule), by_position)
    outputs, updates = (each.swapaxes(0, 1) for each in results)
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
        read = functools.partial(jnp.einsum, "Cnhv,JCTnh->JCTnv", state)
        outputs, updates = within(chunk, since, see, read)
        left = jnp.exp(since[:, -1:] - since)[..., None]  # of each position's, at the end
        added = jnp.einsum("CTnh,CTnv->Cnhv", chunk.k * left, updates)
        return state * jnp.exp(since[:, -1])[..., None, None] + added, (outputs, updates)

    _, results = jax.lax.scan(step, _no_state(rule), jax.tree.map(cut, rule))
    outputs, updates = (
        each.swapaxes(0, 1).reshape(rows, count * CHUNK, *each.shape[3:])[:, :positions]
        for each in results
    )
    return outputs, updates


def behind(
    inputs: Float[Array, "C T k I"],
    rule: Rule,
    past: Updates,
    places: Places,
    see: Bool[Array, "C T S"],
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

    def read(x: Float[Array, "J C T n h"]) -> Float[Array, "J C T n v"]:
        dots = jnp.einsum("JCTnh,Pnh->nJCTP", x.astype(keys.dtype), keys, **_F32)
        weights = (dots * left[:, None]).astype(past.updates.dtype)
        return jnp.einsum("nJCTP,Pnv->JCTnv", weights, past.updates, **_F32)

    since_end = jnp.einsum("CTS,CSn->CTn", see.astype(jnp.float32), rule.decay)
    outputs, updates = within(rule, since_end, see, read)
    return outputs, kept(inputs, rule, updates, at_end + since_end)


def kept(
    inputs: Float[Array, "C T k I"],
    rule: Rule,
    updates: Float[Array, "C T n v"],
    decay: Float[Array, "C T n"],
) -> Updates:
    """What a layer keeps of positions, in the dtype of the inputs."""
    keys = rule.k[:, :, :: rule.k.shape[2] // inputs.shape[2]]
    keys, updates = (each.astype(inputs.dtype) for each in (keys, updates))
    return Updates(inputs=inputs, keys=keys, updates=updates, decay=decay)


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
    both = jnp.stack([rule.k, rule.q])
    of_keys, of_queries = from_start * read(both)
    by_keys, by_queries = left * jnp.einsum("JCTnh,CSnh->JCnTS", both, rule.k)
    system = jnp.tril(beta * by_keys, -1)
    wanted = rule.beta[..., None] * (rule.v - of_keys)
    updates = jax.lax.linalg.triangular_solve(
        system, jnp.einsum("CTnv->CnTv", wanted), left_side=True, lower=True, unit_diagonal=True
    )
    outputs = of_queries + jnp.einsum("CnTS,CnSv->CTnv", by_queries, updates)
    return outputs, jnp.einsum("CnTv->CTnv", updates)


def per_value_head(x: Float[Array, "*B k h"], heads: int) -> Float[Array, "*B n h"]:
    """Heads of queries or keys, repeated for the heads of values that each of them serves."""
    return jnp.repeat(x, heads // x.shape[-2], axis=-2)


def _no_state(rule: Rule) -> Float[Array, "C n h v"]:
    return jnp.zeros((rule.k.shape[0], *rule.k.shape[2:], rule.v.shape[-1]), jnp.float32)
