"""The only `jax.jit` on the scoring path: three compiled passes, and the host object around them.

Shapes are few: prefixes are padded to a multiple of `PREFIX_MULTIPLE` (padding is masked), and a
step has `step_size` candidates on every device, or fewer as the list alone decides. So a row is
computed by one program on one shape, on however many devices (docs/correctness.md).
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from engine import mesh as meshes
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.models.reward_model import RewardModels
from engine.programs import compiled_on_all
from engine.runs.result import SelfCheck
from engine.runs.schema import LARGEST, MEDIAN, lens_columns, tolerance
from engine.scoring.batches import (
    Bucket,
    pad_rows,
    padded,
    padded_length,
    rows_of_step,
    take_rows,
    whole,
)
from engine.scoring.rows import RewardRows
from engine.settings import DTYPES, check_choice
from engine.types import Candidates, Graph, Params, Prefix, PromptIds

# What candidates of a prompt share: of an encoder the ids alone.
Shared = Prefix | tuple[int, ...]
# Called after a step with its rows int [n] and their numbers float32 [W, n].
OnStep = Callable[[np.ndarray, np.ndarray], object]


@dataclasses.dataclass(frozen=True)
class RewardScorer:
    """Parameters on a mesh with the compiled passes: prompts and candidates in, rewards out."""

    graph: Graph
    params: Params
    mesh: Mesh
    step_size: int  # largest number of candidates per step on each device
    gate_patterns: tuple[tuple[int, ...], ...]  # per model: ids at which its gate reads, if any
    gated: tuple[tuple[str, ...], ...]  # per model: objectives that its gate weighs
    columns: tuple[tuple[str, ...], ...]  # column names per model; W in all
    # Compiled methods of `RewardModels`, which describes their shapes.
    prefill_step: Callable[..., Prefix] | None  # None of an encoder, which shares no prefix
    score_step: Callable[..., jax.Array]
    plain_step: Callable[..., jax.Array]

    @classmethod
    def build(
        cls, graph: Graph, params: Params, mesh: Mesh, *, step_size: int, lens: bool = False
    ) -> "RewardScorer":
        """Compiles nothing yet; each pass is compiled when it is first called.

        With `lens` each model's columns end with the reward after every layer.

        Raises:
          AssayError: a mesh that does not fit the model, or an empty step.
        """
        check_step(step_size)
        model = nnx.merge(graph, params)
        config = model.decoder.config
        meshes.check_mesh(mesh, config)
        heads = [readout.config for readout in model.readouts]
        score, plain = type(model).score_candidates, type(model).plain
        prefill, arguments, static = None, ("C",), list[bool]()  # of an encoder
        if config.shares_prefix:
            prefix = Prefix(
                key_values=meshes.kept_shardings(mesh, config, len(model.decoder.stacks)),
                gates=cast(Any, meshes.sharding(mesh, "R")),  # of each one
            )
            prefill, arguments = compiled(RewardModels.prefill, graph, prefix), ("", "C")
            static = [lens]
        layers = [lens_columns(head.depth) if lens else () for head in heads]
        return cls(
            graph=graph,
            params=params,
            mesh=mesh,
            step_size=step_size,
            gate_patterns=tuple(head.gate_pattern for head in heads),
            gated=tuple(head.objectives if head.gated else () for head in heads),
            columns=tuple((*a, *b) for a, b in zip(model.columns, layers, strict=True)),
            prefill_step=prefill,
            score_step=compiled_over_data(score, graph, mesh, arguments, "WC", *static),
            plain_step=compiled_over_data(plain, graph, mesh, ("C",) * 3, "WC", *static),
        )

    def with_step(self, step_size: int) -> "RewardScorer":
        """The same with steps of at most this size."""
        return dataclasses.replace(self, step_size=min(step_size, self.step_size))

    def prefill(self, prompt: PromptIds, room: int = 0) -> Shared:
        """Keys, values and gates of a prompt's prefix, padded to one of few lengths.

        There are at least `room` padding positions behind it. Of an encoder, the prefix's ids.
        """
        if self.prefill_step is None:
            return prompt.prefix
        ids = padded([prompt.prefix], 1, room)[0]
        gate_at = np.array([gate_position(prompt.prefix, p) for p in self.gate_patterns], np.int32)
        return self.prefill_step(self.params, *meshes.put(self.mesh, (ids, gate_at), "P"))

    def coefficients(self, prefix: Shared) -> list[dict[str, float] | None]:
        """Weights of each gated model's objectives under a prompt; None for a model without a gate.

        The reward is the sum of the objectives times their coefficients.
        """
        if not isinstance(prefix, Prefix):
            return [None for _ in self.gated]
        gates = [np.asarray(gate.addressable_data(0)).tolist() for gate in prefix.gates]
        return [
            dict(zip(names, gate, strict=True)) if names else None
            for names, gate in zip(self.gated, gates, strict=True)
        ]

    def rewards(
        self,
        prefix: Shared,
        candidates: Candidates,
        advance: Callable[[int], object] = lambda candidates: None,
    ) -> np.ndarray:
        """Rewards and objectives of candidates in order: float32 [W, C]; see `score`."""
        indices = np.arange(len(candidates))
        bucket = Bucket(candidates=candidates, rows=indices, row_candidate=indices)
        numbers = np.empty((sum(map(len, self.columns)), len(indices)), np.float32)
        in_steps(*self._pass(prefix, [bucket]), numbers, self.mesh, self.step_size, advance)
        return numbers

    def _pass(
        self, prefix: Shared | None, buckets: Sequence[Bucket]
    ) -> tuple[Callable[..., jax.Array], Sequence[Bucket]]:
        """The compiled pass behind a prefix, and the candidates that it takes."""
        if self.prefill_step is None:
            ids = cast(Sequence[int], prefix or ())
            step = functools.partial(self.score_step, self.params)
            return step, [whole(bucket, ids) for bucket in buckets]
        return functools.partial(self.score_step, self.params, prefix), buckets

    def plain_rewards(
        self, sequences: list[list[int]], read_at: Sequence[int] | None = None
    ) -> np.ndarray:
        """Rewards and objectives by the plain pass, which shares no prefix: float32 [W, sequences].

        They are read at the positions `read_at`, by default the last ones. Every device computes as
        many rows as one device would alone: the number of rows changes last bits, and the files of
        searches hold what they are checked with.
        """
        ids = padded(sequences, self.mesh.shape["data"] * len(sequences))
        last = np.zeros(len(ids), np.int32)
        last[: len(sequences)] = read_at or [len(s) - 1 for s in sequences]
        gate_at = np.zeros((len(ids), len(self.gate_patterns)), np.int32)
        for row, sequence in enumerate(sequences):
            gate_at[row] = [gate_position(sequence, p) for p in self.gate_patterns]
        on_mesh = meshes.put(self.mesh, (ids, last, gate_at), "CT")
        return fetch(self.plain_step(self.params, *on_mesh))[:, : len(sequences)]

    def score(
        self,
        prefix: Shared | None,
        rows: RewardRows,
        start: int,
        stop: int,
        advance: Callable[[int], object] = lambda candidates: None,
        on_step: OnStep = lambda rows, numbers: None,
    ) -> list[np.ndarray]:
        """Rewards and objectives of rows [start, stop): float32 [columns, stop - start] per model.

        Rows with prompts of their own have no prefix. Values of `rows.duplicates` are undefined.
        After each step `advance` is called with its number of candidates, and then `on_step` with
        its rows, counted from `start`, and their numbers. What either raises ends the pass.
        """
        numbers = np.empty((sum(map(len, self.columns)), stop - start), np.float32)
        for ids, buckets in rows.passes(start, stop, alone=any(self.gate_patterns)):
            behind = prefix
            if ids is not None:
                room = padded_length(len(ids)) - len(ids)  # few lengths: each is compiled anew
                behind = self.prefill(PromptIds(prompt="", prefix=ids, suffix=()), room)
            step, taken = self._pass(behind, buckets)
            in_steps(step, taken, numbers, self.mesh, self.step_size, advance, on_step)
        return self.by_model(numbers)

    def score_plainly(self, rows: RewardRows, sample: Sequence[int]) -> list[np.ndarray]:
        """What `score` gives for some rows, by the plain pass: float32 [columns, sample].

        If there are more than `rows.checked_at_once`, they are sorted by length and computed in
        groups of that size.
        """
        sequences, order = rows.sequences(sample), list(range(len(sample)))
        if len(order) > rows.checked_at_once:
            order.sort(key=lambda place: len(sequences[place]))
        numbers = np.empty((sum(map(len, self.columns)), len(sample)), np.float32)
        for first in range(0, len(order), rows.checked_at_once):
            places = order[first : first + rows.checked_at_once]
            batch = [sequences[place] for place in places]
            numbers[:, places] = self.plain_rewards(
                batch, [rows.pooling.position(s) for s in batch]
            )
        return self.by_model(numbers)

    def by_model(self, numbers: np.ndarray) -> list[np.ndarray]:
        """[W, C] -> [columns of the model, C] per model; the reward is the first column."""
        return np.split(numbers, np.cumsum([len(names) for names in self.columns])[:-1])


def in_steps(
    step: Callable[[Candidates], jax.Array],
    buckets: Sequence[Bucket],
    numbers: np.ndarray,
    mesh: Mesh,
    limit: int,
    advance: Callable[[int], object],
    on_step: OnStep = lambda rows, numbers: None,
) -> None:
    """Puts the results of a compiled pass over buckets into `numbers` [..., rows].

    A step has up to `limit` candidates on each device. The next one is dispatched before the last
    one is read, so that the device never waits. After each, `advance` is called with its number of
    candidates, and then `on_step` with its rows and their numbers.
    """
    steps = []  # bucket, first candidate, number of rows that the step is padded to
    for bucket in buckets:
        count, positions = bucket.candidates.ids.shape
        size = mesh.shape["data"] * rows_of_step(count, positions, limit)
        steps += [(bucket, first, size) for first in range(0, count, size)]
    if len(buckets) > 1:  # long ones take longer: mixed, the rate so far is that of the rest
        steps = [steps[i] for i in np.random.default_rng(0).permutation(len(steps))]
    cut = ((take_rows(b.candidates, slice(at, at + size)), size) for b, at, size in steps)
    dispatched = (step(meshes.put(mesh, pad_rows(some, size), "CT")) for some, size in cut)
    # `pairwise` dispatches the next one before it gives this one to be read.
    ahead = itertools.pairwise(itertools.chain(dispatched, [None]))
    for (bucket, first, size), (on_devices, _) in zip(steps, ahead, strict=True):
        values = fetch(on_devices)
        places = bucket.row_candidate - first
        inside = (places >= 0) & (places < size)
        rows, scored = bucket.rows[inside], values[..., places[inside]]
        numbers[..., rows] = scored
        advance(min(size, len(bucket.candidates) - first))
        on_step(rows, scored)


def check_finite(
    model: str,
    key: str,
    start: int,
    names: Sequence[str],
    values: np.ndarray,
    ids: Sequence[int] | Sequence[str] | None = None,
) -> None:
    """Raises AssayError for numbers [columns, rows] that are not finite; it names column and rows.

    `key` is the name of the rows' `ids`, which are their numbers from `start` on by default.
    """
    for name, numbers in zip(names, values, strict=True):
        bad = np.flatnonzero(~np.isfinite(numbers))
        if len(bad):
            first = [start + i if ids is None else ids[i] for i in bad[:5]]
            shown = ", ".join(map(str, first)) + (", …" if len(bad) > 5 else "")
            raise AssayError(
                f"model {model!r}: the {name} is not finite for {key} {shown} "
                f"({len(bad)} of {len(numbers)} rows from {start}); none of these rows was written"
            )


def self_check(
    what: str,
    names: Sequence[str],
    sample: np.ndarray,
    written: np.ndarray,
    plain: np.ndarray,
    dtype: str,
    *,
    compared: str = LARGEST,
) -> SelfCheck:
    """Compares written numbers [columns, sampled] with those of the plain pass.

    `what` and `sample`, the ids of the rows, are for the message; `dtype` and what is `compared`
    decide the tolerance: of a mixture of experts the row with the median difference, else the one
    with the largest.

    Raises AssayError for a difference beyond tolerance, with its row, its column and both numbers.
    """
    most = tolerance(dtype, compared)
    difference, scale = np.abs(written - plain), np.maximum(1, np.abs(plain))
    relative = difference / scale
    ranked = np.argsort(relative, axis=1)
    rows = ranked[:, len(sample) // 2 if compared == MEDIAN else -1]  # of each column
    column = int(np.argmax(relative[np.arange(len(rows)), rows]))
    row = int(rows[column])
    allowed = most * float(scale[column, row])
    if not difference[column, row] <= allowed:
        raise AssayError(
            f"{what}: row {sample[row]} has {names[column]} {written[column, row]:.6g}, "
            f"the plain pass gives {plain[column, row]:.6g}; allowed difference {allowed:.2g}"
        )
    return SelfCheck(
        candidates=len(sample),
        max_abs_difference=float(difference.max()),
        relative_difference=min(float(relative[column, row]), most),  # apart from rounding
        tolerance=most,
        dtype=dtype,
        compared=compared,
    )


def gate_position(ids: Sequence[int], pattern: Sequence[int]) -> int:
    """Start of the last occurrence of a gate's pattern; 0 for a head without a gate."""
    if not pattern:
        return 0
    ids, pattern = list(ids), list(pattern)
    for start in reversed(range(len(ids) - len(pattern) + 1)):
        if ids[start : start + len(pattern)] == pattern:
            return start
    raise AssayError(
        f"the rendered prompt does not hold the tokens {pattern} at which this model's gate reads; "
        "its tokenizer or chat template is not the published one"
    )


def check_step(step_size: int) -> None:
    """Raises AssayError for a step without candidates."""
    if step_size < 1:
        raise AssayError(f"step_size={step_size}; allowed: integers >= 1")


def dtype_named(name: str) -> jnp.dtype:
    """The compute dtype of a setting's name; raises AssayError for any other name."""
    check_choice("dtype", name, DTYPES)
    return jnp.dtype(name)


def default_dtype(platform: str, checkpoints: Sequence[Checkpoint] = ()) -> str:
    """The default compute dtype of models: one that does not round their weights further.

    On a CPU it is float32, which holds all stored dtypes. On an accelerator, where matmuls take 16
    bits, it is the stored dtype; bfloat16 for models stored in float32 or in several dtypes. Raises
    AssayError there if only some models are stored in float16.
    """
    if platform == "cpu":
        return "float32"
    half = {c.card.slug: c.card.dtype == "float16" for c in checkpoints}
    if len(set(half.values())) > 1:
        stored = "; ".join(f"{c.card.slug} in {c.card.dtype}" for c in checkpoints)
        raise AssayError(
            f"dtype='auto': models are stored in different dtypes ({stored}); allowed: "
            "one dtype for all, or one command for each"
        )
    return "float16" if True in half.values() else "bfloat16"


# Any: the method's arguments and result, and a sharding for each array of the result.
@functools.lru_cache(maxsize=64)
def compiled(
    method: Callable[..., Any], graph: Graph, shardings: Any, **given: Any
) -> Callable[..., Any]:
    """A method such as `RewardModels.score_candidates` as one compiled pass, summed in float32.

    It takes the parameters, then the method's arguments but for those that are `given`. Passes are
    kept, so that models of one structure that are loaded later compile nothing.
    """
    return compiled_on_all(jax.jit(_call(method, graph, **given), out_shardings=shardings))


@functools.lru_cache(maxsize=64)
def compiled_over_data(
    method: Callable[..., Any],
    graph: Graph,
    mesh: Mesh,
    arguments: tuple[str, ...],
    result: str,
    *static: bool,
) -> Callable[..., Any]:
    """A model's method as a compiled pass that each device runs on its share of the candidates.

    `arguments` and `result` are axis letters, of which `C` is split; every process reads the
    result. Further arguments of the method, `static`, are part of the program.
    """
    split = meshes.over_data(_call(method, graph, *static), mesh, ("", *arguments), result)
    return compiled_on_all(jax.jit(split, out_shardings=meshes.sharding(mesh, "")))


# Any: the method's arguments and result.
def _call(
    method: Callable[..., Any], graph: Graph, *static: bool, **given: Any
) -> Callable[..., Any]:
    def call(params: Params, *arguments: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return method(nnx.merge(graph, params), *arguments, *static, **given)

    call.__name__ = method.__name__  # the program's name in profiles
    return call


# Any: a tree of arrays.
def fetch(tree: Any) -> Any:
    """Host copies of arrays that are replicated, so that each process reads its own."""
    return jax.tree.map(lambda array: np.asarray(array.addressable_data(0)), tree)
