"""Where a step of Assay's GCG spends its CPU time, against the rate of a step of its sweep.

    python -m bench.speed.gcg_parts [--candidates=64] [--length=8] [--direction=both] [--rounds=5]

    sweep      a step of a sweep of 1,024 tokens: the rate that the others are compared with
    gradient   rewards of the parents, and the gradient with respect to their one-hot rows
    propose    the gain of each token of the vocabulary, and the draws of candidates
    append     keys and values of the parents behind the prompt
    score      rewards of the candidates
    step       all of it in one program

`GFLOP` are the operations that engine/planning/flops.py counts for all attempts; `made` are those
that are done, with padding and doubled parents. `rows` is the number of positions in a matrix
product, `reads` how often the weights of all layers are read. `lost` is the CPU time beyond that of
GFLOP at the sweep's rate, in percent of the step's. A second table has one pass's products with
weights and nothing else, for as many rows as a part has.

All parts are compiled by themselves and take turns. The wall clock is left out, since other jobs
may share the machine. About 2 minutes on two idle cores.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags, logging
from flax import nnx

from bench.speed import gcg
from bench.support import embedded_files
from bench.support.table import aligned, machine
from engine.checkpoint.restore import restore
from engine.mesh import build_mesh
from engine.models.config import DecoderConfig
from engine.models.reward_model import RewardModels
from engine.planning import flops
from engine.planning.work import BLOCK_PARENTS, BLOCK_ROWS
from engine.scoring.reward_passes import RewardScorer, dtype_named
from engine.search import gcg as step
from engine.search import loop, passes
from engine.search.objective import SearchObjective
from engine.types import Params

_DIRECTION = flags.DEFINE_enum("direction", "both", ["max", "min", "both"], "Of the search.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a step, compiled.

    Attributes:
      run: computes it, waits for it and returns it.
      flops: operations that are counted.
      made: operations that are done, with padding.
      rows: positions of a matrix product.
      reads: of the weights of all layers.
    """

    # Any: a tree of arrays.
    run: Callable[[], Any]
    flops: float = 0.0
    made: float = 0.0
    rows: int = 0
    reads: int = 0


class Parts:
    """Compiles the parts of a step, through what the engine's step calls."""

    def __init__(self, objective: SearchObjective, scorer: RewardScorer):
        self._objective, self._scorer = objective, scorer
        self._settings, self._mesh = objective.settings, scorer.mesh
        self._inputs = loop.build_step_inputs(objective, scorer)
        self._parents = jnp.asarray(objective.initial())
        self._config, self._before = objective.config, len(objective.prompts[0].prefix)
        self._length, self._attempts = objective.settings.length, len(self._parents)
        self._own = self._length + len(objective.suffix)

    def all(self) -> dict[str, Part]:
        """The parts in the order of the step, and the step."""
        gradient, append = self._gradient(), self._append()
        propose = self._propose(gradient.run()[1])
        found = {
            "gradient": gradient,
            "propose": propose,
            "append": append,
            "score": self._score(propose.run(), append.run()),
        }
        driver = loop.StepDriver(self._objective, self._scorer)
        found["step"] = Part(
            run=lambda: driver.advance(1, np.inf),
            flops=self._attempts * driver.step_flops,
            made=sum(part.made for part in found.values()),
            reads=sum(part.reads for part in found.values()),
        )
        return found

    def _gradient(self) -> Part:
        def slopes(model: RewardModels, inputs: passes.StepInputs, parents: jax.Array) -> Any:
            return passes.slopes_and_keys_values(model, inputs, parents, self._settings, self._mesh)

        one = flops.gradient(self._config, self._length, self._own, self._before)
        rows = BLOCK_PARENTS * self._own
        return self._of_parents(self._compiled(slopes, self._inputs, self._parents), one, rows, 2)

    def _append(self) -> Part:
        def written(model: RewardModels, inputs: passes.StepInputs, parents: jax.Array) -> Any:
            return passes.keys_values_of(model, inputs, parents, self._mesh)

        one = flops.extension(self._config, self._length, self._before)
        rows = BLOCK_PARENTS * self._length
        return self._of_parents(self._compiled(written, self._inputs, self._parents), one, rows, 1)

    def _of_parents(self, run: Callable[[], Any], one: float, rows: int, reads: int) -> Part:
        blocks = -(-self._attempts // BLOCK_PARENTS)
        made = blocks * BLOCK_PARENTS * one
        return Part(run=run, flops=self._attempts * one, made=made, rows=rows, reads=reads * blocks)

    def _propose(self, slopes: jax.Array) -> Part:
        keys = jax.random.split(jax.random.key(0), self._attempts)

        def proposed(
            model: RewardModels, inputs: passes.StepInputs, parents: jax.Array, slopes: jax.Array
        ) -> Any:
            return step.propose(
                jnp.int32(0),
                parents,
                slopes,
                keys,
                keys,
                allowed=inputs.allowed,
                planned=inputs.steps,
                embedding=model.decoder.embedding[...],
                settings=self._settings,
            )

        return Part(run=self._compiled(proposed, self._inputs, self._parents, slopes))

    def _score(self, ids: jax.Array, written: Any) -> Part:
        first = step.first_changes(self._settings)

        def rewards(
            model: RewardModels,
            inputs: passes.StepInputs,
            parents: jax.Array,
            ids: jax.Array,
            written: Any,
        ) -> Any:
            return passes.score_candidates(model, inputs, parents, ids, first, self._mesh, written)

        run = self._compiled(rewards, self._inputs, self._parents, ids, written)
        counted = sum(
            flops.response(self._config, self._own - at, self._before + at) for at in first
        )
        layout = passes.pack(first, self._own, BLOCK_ROWS).place
        blocks = -(-len(layout) // BLOCK_ROWS)
        # Padding is as many positions more in each matrix product.
        padded = layout.size / sum(self._own - at for at in first)
        return Part(
            run=run,
            flops=self._attempts * counted,
            made=self._attempts * counted * padded,
            rows=layout.size // blocks,
            reads=self._attempts * blocks,
        )

    # Any: trees of arrays.
    def _compiled(self, function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
        graph, params = self._scorer.graph, self._scorer.params

        @jax.jit
        def whole(params: Params, *arguments: Any) -> Any:
            with jax.default_matmul_precision("highest"):
                return function(nnx.merge(graph, params), *arguments)

        return lambda: jax.block_until_ready(whole(params, *arguments))


def cpu_seconds(runs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median CPU seconds of each of several runs, which take turns."""
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()  # compiles
    for _ in range(rounds):
        for name, run in runs.items():
            began = time.process_time()
            run()
            spent[name].append(time.process_time() - began)
    return {name: float(np.median(each)) for name, each in spent.items()}


def product_table(config: DecoderConfig, rows: Iterable[int], rounds: int) -> str:
    """CPU time of one pass's products with weights alone, by number of rows."""
    cells = [("rows", "GFLOP", "CPU ms", "GFLOP/s")]
    for count in sorted(set(rows)):
        shapes = flops.projections(config, count, count)
        work = sum(2 * m * k * n * times for (m, k, n), times in shapes.items())
        seconds = cpu_seconds({"": products(shapes)}, rounds)[""]
        numbers = work / 1e9, 1e3 * seconds, work / seconds / 1e9
        cells.append(
            (f"{count:,}", *(f"{n:,.{d}f}" for n, d in zip(numbers, (1, 0, 0), strict=True)))
        )
    return aligned(cells)


def products(shapes: Mapping[flops.Shape, int]) -> Callable[[], object]:
    """All products of a pass, each with a matrix of its own."""
    rng = np.random.default_rng(0)

    def numbers(*shape: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape, np.float32))

    pairs = [
        (numbers(m, k), [numbers(k, n) for _ in range(count)])
        for (m, k, n), count in shapes.items()
    ]

    @jax.jit
    def every(x: jax.Array, matrices: Sequence[jax.Array]) -> list[jax.Array]:
        return [jnp.matmul(x, matrix, precision="highest") for matrix in matrices]

    return lambda: jax.block_until_ready([every(*pair) for pair in pairs])


def table(parts: Mapping[str, Part], seconds: Mapping[str, float], rate: float) -> str:
    """The parts with their operations, CPU time, and what they lose against the rate.

    Args:
      parts: by name; `step` is the whole.
      seconds: of CPU time, of each.
      rate: of the sweep, in operations per second of CPU time.
    """
    rows = [("part", "GFLOP", "made", "rows", "reads", "CPU ms", "of rate", "lost")]
    for name, part in parts.items():
        least = part.flops / rate
        share = f"{least / seconds[name]:.0%}" if part.flops else ""
        rows.append(
            (
                name,
                f"{part.flops / 1e9:,.1f}",
                f"{part.made / 1e9:,.1f}",
                f"{part.rows:,}" if part.rows else "",
                str(part.reads or ""),
                f"{1e3 * seconds[name]:,.0f}",
                share,
                f"{(seconds[name] - least) / seconds['step']:.1%}",
            )
        )
    return aligned(rows)


def main(_: list[str]) -> None:
    """Measures the parts and prints the table."""
    logging.set_verbosity(logging.ERROR)
    print(machine())
    _, checkpoint = embedded_files.files(flags.FLAGS.model)
    mesh = build_mesh()
    model = restore([checkpoint], mesh, dtype_named("float32"))
    scorer = RewardScorer.build(*model, mesh, step_size=gcg.SWEPT)
    objective = gcg.objective_of(checkpoint, _DIRECTION.value)
    parts, sweep = Parts(objective, scorer).all(), gcg.SweepWay(checkpoint, scorer)
    runs = {name: part.run for name, part in parts.items()} | {"sweep": lambda: sweep.steps(1)}
    seconds = cpu_seconds(runs, flags.FLAGS.rounds)
    rate = sweep.step_flops / seconds["sweep"]
    print(
        f"search    {objective.settings.candidates} candidates of {objective.settings.length} "
        f"tokens, direction {_DIRECTION.value}\n"
        f"sweep     {rate / 1e9:.0f} GFLOP in a second of CPU time\n\n{table(parts, seconds, rate)}"
        "\n\nproducts with weights of one pass:"
    )
    rows = [part.rows for part in parts.values() if part.rows]
    print(product_table(objective.config, rows, flags.FLAGS.rounds))


if __name__ == "__main__":
    app.run(main)
