"""Compiles the engine's passes for TPUs that are not there, and prints what the programs cost.

    make check     # installs libtpu beside the other packages; no TPU is needed
    python -m bench.aot_tpu [--models=all] [--slices=v5e:2x4,…] [--passes=score,gcg,…]
        [--kept=bench/compiled/rows.jsonl] [--page=docs/compiled-programs-tpu.md]
        [--model_axis=0] [--candidates=0] [--programs=out/programs]

Models are of full size, in bfloat16, with a linear head and without weights; models of equal shape
are compiled once. Numbers are per chip and per run of a pass (a step of a sweep or of a search):

    GiB      memory by the compiler's plan (arguments, results, temporary arrays, code), of what it
             may use
    ms       the compiler's estimate of cycles by the stated clock, without collectives
    of peak  operations (engine/planning/flops.py) in that time, of the stated peak in bfloat16
    floor    the least time in ms: operations at the peak, or reading each weight once; the step of
             a search has three such passes, of gcg-merged four
    FLOPs    operations of the program's matmuls, of those that engine/planning/flops.py counts
    all-reduces   number, payload, and the time in ms that a ring along one axis of the torus takes
    copies   bytes that are written to HBM and depend on weights alone
    compiler CPU time

With --model_axis=0 and --candidates=0 mesh and step are those of `assay plan`, which names another
mesh for searches; where the compiler finds no room, the next larger axis is taken. Each row is
appended to --kept as soon as it is there, and a row that stands there is not compiled again.
--page writes the tables of the page from all rows that are kept. One compilation takes about 45 s
of CPU time.
"""

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

from absl import app, flags, logging

from bench.compiled import chips, page, structures
from bench.compiled.programs import PASSES, SEARCHES, Work, merged_replies
from bench.compiled.rows import Case, Kept, Row, compile_pass
from bench.compiled.structures import Asked, Structure
from engine.errors import AssayError
from engine.planning import plans
from engine.planning.machines import GIB
from engine.planning.plans import Plan
from engine.planning.work import Named
from engine.scoring.reward_passes import dtype_named

_MODELS = flags.DEFINE_list(
    "models",
    ["skywork-reward-llama-3.1-8b", "skywork-reward-gemma-2-27b"],
    "Reward models, as `assay models` lists them, or all.",
)
_SLICES = flags.DEFINE_list("slices", page.SLICES, "Chip and shape of each slice.")
_PASSES = flags.DEFINE_list("passes", ["score"], f"Passes: {', '.join(PASSES)}.")
_MODEL_AXIS = flags.DEFINE_list("model_axis", ["0"], "Sizes of the axis `model`; 0: planned.")
_CANDIDATES = flags.DEFINE_list("candidates", ["0"], "Candidates per step on a device; 0: planned.")
_SEARCHED = flags.DEFINE_integer("searched", 64, "Candidates per step of a search.")
_LENGTH = flags.DEFINE_integer("length", 8, "Tokens of a searched reply.")
_PREFIX = flags.DEFINE_integer("prefix", 64, "Positions of a prompt's prefix.")
_LAYERS = flags.DEFINE_integer("layers", 0, "Layers of each model; 0: its own.")
_DTYPE = flags.DEFINE_string("dtype", structures.DTYPE, "Dtype of the decoder.")
_KEPT = flags.DEFINE_string("kept", "", "File of rows: read, and appended to.")
_PAGE = flags.DEFINE_string("page", "", "Page whose tables are written from all rows of --kept.")
_PROGRAMS = flags.DEFINE_string("programs", "", "Folder for the optimised programs.")


def rows_of(
    kept: Kept, structure: Structure, slice_: str, name: str, axis: int, candidates: int
) -> Iterator[Row]:
    """Rows of one pass: on the mesh that is asked for, or on each planned one until it fits.

    Args:
      kept: rows that need not be compiled again.
      structure: the model.
      slice_: chip and shape of the slice.
      name: of the pass.
      axis: devices along `model`; 0: planned.
      candidates: of a step on each device; 0: planned.
    """
    count, (_, kind) = chips.count_of(slice_), chips.chip_of(slice_)
    asked = _asked(structure, axis, candidates)
    plan = structures.planned(structure, slice_, asked)
    work = _work(structure, plan)
    first, folder = (
        structures.mesh_of(plan, name).model,
        Path(_PROGRAMS.value) if _PROGRAMS.value else None,
    )
    sizes = [axis] if axis else [n for n in plans.splits(structure.decoder, count) if n >= first]
    for size in sizes:
        case = Case.of(structure, slice_, size, name, work, _DTYPE.value)
        empty = Row(
            case=case,
            fits=False,
            planned_gib=_account(plan, size, asked, name),
            usable_gib=kind.memory_bytes / GIB,
            note="" if plan.fits else f"does not fit; {plan.would_fit} would",
        )
        if case in kept.rows:
            row = kept.rows[case]
        elif plan.fits:
            row = kept.add(compile_pass(structure, case, work, empty, folder))
        else:
            row = kept.add(empty)
        yield row
        if row.fits or not plan.fits:
            return


def _asked(structure: Structure, axis: int, candidates: int) -> Asked:
    usual, prefix = structures.work(structure), _PREFIX.value
    searched = {"length": _LENGTH.value, "candidates": _SEARCHED.value}
    searched["merged"] = merged_replies("gcg-merged", _SEARCHED.value)
    return Asked(
        dataclasses.replace(usual.sweep, prefix=prefix, step_size=candidates or None),
        dataclasses.replace(usual.search, prefix=prefix, **searched),
        Named(dtype=_DTYPE.value, model_axis=axis or None),
    )


def _work(structure: Structure, plan: Plan) -> Work:
    return Work(
        candidates=plan.step_size,
        own=structure.own,
        prefix=_PREFIX.value,
        length=_LENGTH.value,
        searched=_SEARCHED.value,
    )


def _account(plan: Plan, axis: int, asked: Asked, name: str) -> float | None:
    """GiB of a pass by the planner; it has no account of the others alone."""
    count = plan.model.data * plan.model.model
    model = dataclasses.replace(plan.model, data=count // axis, model=axis)
    if name == "score":
        sized = dataclasses.replace(asked.sweep, step_size=plan.step_size)
        return plans.sweep_account(model, sized).total / GIB
    if name in SEARCHES:
        more = merged_replies(name, asked.search.candidates)
        search = dataclasses.replace(asked.search, merged=more)
        return plans.search_account(model, search).total / GIB
    return None


def _check_flags() -> list[Structure]:
    for flag, least in ((_SEARCHED, 1), (_LENGTH, 1), (_PREFIX, 1), (_LAYERS, 0)):
        if flag.value < least:
            raise AssayError(f"{flag.name}={flag.value}; allowed: integers >= {least}")
    for flag in (_MODEL_AXIS, _CANDIDATES):
        if wrong := [number for number in flag.value if not number.isdecimal()]:
            raise AssayError(f"{flag.name}={wrong[0]!r}; allowed: integers >= 0")
    dtype_named(_DTYPE.value)
    for slice_ in _SLICES.value:
        chips.chip_of(slice_)
    if unknown := [name for name in _PASSES.value if name not in PASSES]:
        raise AssayError(f"passes={unknown[0]!r}; allowed: {', '.join(PASSES)}")
    if _PAGE.value and not (_KEPT.value and Path(_PAGE.value).is_file()):
        raise AssayError(f"page={_PAGE.value!r}; allowed: a file that is there, with --kept=<file>")
    found = structures.named(_MODELS.value)
    return [s.with_layers(_LAYERS.value) for s in found] if _LAYERS.value else found


def main(argv: list[str]) -> None:
    """Compiles everything that the flags name; wrong ones are one line."""
    del argv
    try:
        _compile()
    except AssayError as error:
        raise SystemExit(f"bench.aot_tpu: {error}") from error


def _compile() -> None:
    logging.set_verbosity(logging.WARNING)
    subjects, kept = _check_flags(), Kept(Path(_KEPT.value) if _KEPT.value else None)
    asked = [
        (structure, slice_, name, int(axis), int(candidates))
        for name in _PASSES.value
        for slice_ in _SLICES.value
        for structure in subjects
        for axis in _MODEL_AXIS.value
        for candidates in _CANDIDATES.value
    ]
    shown: list[Row] = []
    began = time.time()
    for number, one in enumerate(asked, 1):
        for row in rows_of(kept, *one):
            shown.append(row)
            left = (time.time() - began) / number * (len(asked) - number)
            line = page.text([row]).splitlines()[-1]
            print(f"{number}/{len(asked)}, {left / 60:.0f} min left  {line}", flush=True)
    print("\n" + page.text(shown))
    if _PAGE.value:
        written = page.markdown(kept.rows.values(), structures.listed(), page.SLICES)
        page.write(Path(_PAGE.value), written)


if __name__ == "__main__":
    app.run(main)
