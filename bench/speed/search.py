"""Reward against FLOPs: GCG and every other search method, one model, equal budgets.

    python -m bench.speed.search [--model=<slug>] [--length=8] [--seeds=5] [--tflop=1]
                                 [--tokens=256]

Every method searches under the same budget of floating-point operations (engine/planning/flops.py
counts them), with the settings of configs/search.py; the beam is as wide as the budget allows for a
whole length. Only `--tokens` random printable tokens may be used, so that methods that sweep the
vocabulary make progress within the budget; 0 allows all tokens. Repeat and beam draw nothing, so
they run once. Texts need not round-trip.

Writes a run, a table and a figure into out/search; a second call continues the run. On two cores a
search takes about half a minute with the default settings, and all of them a quarter of an hour.
"""

from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import polars as pl
from absl import app, flags, logging

import analysis
from bench.support import embedded_files
from bench.support.spending import budgets, spending
from bench.support.table import aligned, machine
from configs import search as search_config
from configs.prompts import PROMPTS
from demo.embedded_models import EMBEDDED
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.mesh import build_mesh
from engine.models.config import DecoderConfig
from engine.planning import flops
from engine.search.run_folder import search_sequences
from engine.settings import METHODS, SearchSettings
from engine.sweep.setup import vocabulary_of
from engine.types import PromptIds
from launch.common.searching import settings as as_settings

_MODEL = flags.DEFINE_enum(
    "model", "smollm2-135m-d12-imdb-linear", list(EMBEDDED), "Embedded model."
)
_PROMPT = flags.DEFINE_enum("prompt", "greatest", list(PROMPTS), "Prompt.")
_DIRECTION = flags.DEFINE_enum("direction", "max", ["max", "min"], "Direction of the search.")
_METHODS = flags.DEFINE_list("methods", list(METHODS), "Methods.")
_LENGTH = flags.DEFINE_integer("length", 8, "Tokens of the reply.", lower_bound=1)
_SEEDS = flags.DEFINE_integer("seeds", 5, "Searches per method.", lower_bound=1)
_TFLOP = flags.DEFINE_float("tflop", 1.0, "Budget of a search, in 1e12 FLOPs.", lower_bound=0.001)
_TOKENS = flags.DEFINE_integer("tokens", 256, "Number of random tokens that may be used; 0: all.")
_DRAWN = flags.DEFINE_integer("drawn", 0, "Seed of these tokens.")
_FOLDER = flags.DEFINE_string(
    "folder", "out/search", "Folder of the run, the table and the figure."
)

_DRAWS_NOTHING = ("repeat", "beam")


def searches(checkpoint: Checkpoint, allow: Path | None, beam: int) -> Iterator[SearchSettings]:
    """The searches of every method."""
    for seed in range(_SEEDS.value):
        for method in _METHODS.value:
            if seed and method in _DRAWS_NOTHING:
                continue
            config = search_config.get_config("paper" if method == "paper" else "")
            config.update(
                method=method,
                direction=_DIRECTION.value,
                length=_LENGTH.value,
                steps=10**6,
                flops=_TFLOP.value * 1e12,
                round_trip=False,
                seed=seed,
                beam=beam,
                allow=str(allow) if allow else "",
            )
            yield as_settings(config, [checkpoint])[0]


def printable_tokens(checkpoint: Checkpoint) -> list[str]:
    """Tokens that a search may use: printable, of distinct texts."""
    frame = (
        vocabulary_of(checkpoint)
        .filter(~pl.col("is_special"))
        .unique("token", keep="none", maintain_order=True)
    )
    return [t for t in frame["token"] if t.isascii() and t.isprintable() and t]


def widest_beam(config: DecoderConfig, prompt: PromptIds, tokens: int) -> int:
    """The number of beams that the budget can extend to the last position; at least one."""
    before, own = len(prompt.prefix), 1 + len(prompt.suffix)
    costs = [tokens * flops.response(config, own, before + i) for i in range(_LENGTH.value)]
    return max(1, int((_TFLOP.value * 1e12 - costs[0]) // max(1.0, sum(costs[1:]))))


def allow_file(tokens: list[str], folder: Path) -> Path | None:
    """A file of the tokens that may be used; None if all may be."""
    if not _TOKENS.value:
        return None
    drawn = np.random.default_rng(_DRAWN.value).permutation(len(tokens))[: _TOKENS.value]
    path = folder / f"allow-{_TOKENS.value}-{_DRAWN.value}.txt"
    path.write_text("\n".join(tokens[i] for i in sorted(drawn)), encoding="utf-8")
    return path


def result_table(traces: pl.DataFrame) -> str:
    """The final rewards of each method, best median first."""
    sign = 1 if _DIRECTION.value == "max" else -1
    ends = traces.sort("step").group_by("method", "seed").last()
    rows = []
    for (method,), part in ends.group_by("method"):
        best = part["best"].to_numpy()
        median = float(np.median(best))
        cells = (
            str(method),
            str(len(part)),
            f"{median:.3f}",
            f"{best.min():.3f}..{best.max():.3f}",
            f"{part['flops'].max() / 1e12:.1f}",
            f"{part['step'].median():,.0f}",
        )
        rows.append((sign * median, cells))
    header = ("method", "searches", "median reward", "min..max", "TFLOP", "steps")
    return aligned([header, *(row for _, row in sorted(rows, reverse=True))])


def main(_) -> None:
    """Runs the missing searches, prints the table and draws the figure."""
    logging.set_verbosity(logging.ERROR)
    print(machine())
    folder = Path(_FOLDER.value)
    folder.mkdir(parents=True, exist_ok=True)
    # Searches of one method differ only in their seed, so only the first one compiles.
    jax.config.update("jax_compilation_cache_dir", str((folder / "compiled").resolve()))
    _, checkpoint = embedded_files.files(_MODEL.value)
    tokens = printable_tokens(checkpoint)
    allow = allow_file(tokens, folder)
    split = checkpoint.template.split(PROMPTS[_PROMPT.value])
    beam = widest_beam(checkpoint.card.decoder, split, _TOKENS.value or len(tokens))
    run, mesh = folder / f"run-{_DIRECTION.value}-{_TFLOP.value:g}", build_mesh()
    for settings in searches(checkpoint, allow, beam):
        prompts = {_PROMPT.value: PROMPTS[_PROMPT.value]}
        try:
            search_sequences([checkpoint], prompts, str(run), settings, mesh)
        except AssayError as error:  # a sweep of the vocabulary may cost more than the budget
            print(f"left out  {error}")
    traces = analysis.sequence_traces(analysis.load(run)).filter(
        pl.col("method").is_in(_METHODS.value), pl.col("seed") < _SEEDS.value
    )
    print(
        f"search    {_MODEL.value}, {_PROMPT.value}, {_DIRECTION.value}: {_LENGTH.value} tokens of "
        f"{_TOKENS.value or len(tokens)}, {_TFLOP.value:g} TFLOP each, {beam} beams\n"
    )
    print(result_table(traces))
    picture = folder / f"search-{_DIRECTION.value}-{_TFLOP.value:g}.png"
    budgets(spending(traces), {_MODEL.value: _MODEL.value}).savefig(picture, dpi=150)
    print(f"\nfigure: {picture}")


if __name__ == "__main__":
    app.run(main)
