"""Rows of compiled passes as a text table, and as the tables of docs/compiled-programs-tpu.md."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.compiled import structures
from bench.compiled.programs import PASSES, SEARCHES, Work
from bench.compiled.rows import Row
from bench.compiled.structures import Structure
from bench.support.table import aligned
from engine.errors import AssayError
from engine.planning import plans
from engine.planning.machines import GIB
from engine.planning.plans import Plan

SLICES = ["v5e:2x4", "v6e:2x4", "v5p:2x2x2", "v5e:8x8"]
BEGIN, END = "<!-- rows of bench.aot_tpu -->\n", "<!-- end of the rows -->\n"


def text(rows: Sequence[Row]) -> str:
    """The rows as an aligned table."""
    header = (
        "model", "slice", "data×model", "pass", "GiB", "ms", "of peak", "floor ms",
        "FLOPs", "all-reduces", "copies GB", "vocabulary s", "compiler s",
    )  # fmt: skip
    return aligned([header, *map(_cells, rows)])


def _cells(row: Row) -> tuple[str, ...]:
    case = row.case
    return (
        case.structure,
        case.slice,
        case.mesh,
        f"{case.name} {case.count}" if case.count else case.name,
        _memory(row),
        _number(row.ms, ".1f"),
        _percent(row.share_of_peak),
        _number(row.floor_ms, ".1f"),
        _number(_ratio(row.flops, row.counted_flops), ".2f"),
        ", ".join(_sums(row)) if row.fits else row.note,
        _copies([row]) if row.fits else "",
        _number(row.vocabulary_s, ".1f"),
        _number(row.compile_s, ".0f"),
    )


def markdown(rows: Iterable[Row], listed: Sequence[Structure], slices: Sequence[str]) -> str:
    """Four tables with a line for each structure and slice, and how much of them is missing.

    Args:
      rows: of any passes; those of other meshes and steps than the planner's are left out.
      listed: the models, in the order of the lines.
      slices: the slices of each, in order.
    """
    rows = list(rows)
    sweeps, whole = [*_head(_SWEEP)], [*_head(_WHOLE)]
    searches = {name: [*_head(_SEARCH)] for name in SEARCHES}
    wanted, found = 0, list[Row]()
    for structure in listed:
        for slice_ in slices:
            plan = structures.planned(structure, slice_)
            passes = {name: _planned_row(rows, structure, slice_, plan, name) for name in PASSES}
            found += [row for row in passes.values() if row]
            what = [structure.name, slice_]
            sweeps.append(_cells_of([*what, *_sweep(plan, passes["score"])], _SWEEP))
            wanted += plan.fits
            if plan.fits and any(passes[name] for name in ("prefill", "plain")):
                whole.append(_cells_of([*what, *_whole(passes)], _WHOLE))
            for name, lines in searches.items():
                if plan.fits and (row := passes[name]):
                    lines.append(_cells_of([*what, *_search(row)], _SEARCH))
    counts = {name: sum(r.fits for r in found if r.case.name == name) for name in PASSES}
    counted = "; ".join(f"{_NAMES[name]} {counts[name]}" for name in PASSES)
    parts = [
        f"Compiled, of {wanted} pairs of model and slice that fit: {counted}.",
        *("", "### Step of a sweep", "", *sweeps, ""),
        *_errors(found, "score", "a step"),
        *("### Prompt and self-check", "", *whole, ""),
        *("### Step of a search", "", *searches["gcg-merged"], ""),
        *_errors(found, "gcg-merged", "a step of the default search"),
        *("### Step of a search without merged replies", "", *searches["gcg"]),
    ]
    return "\n".join(parts) + "\n"


def _planned_row(
    rows: Iterable[Row], structure: Structure, slice_: str, plan: Plan, name: str
) -> Row | None:
    """The row of a pass on the planner's mesh, or on the next larger one on which it fits."""
    asked = structures.work(structure)
    count = Work(candidates=plan.step_size, own=structure.own).count(name)
    wanted = (structure.name, slice_, name, count, structures.DTYPE, structure.decoder.num_layers)
    wanted = (*wanted, structure.own, asked.sweep.prefix, asked.search.length)
    by_axis: dict[int, Row] = {}
    for row in rows:
        c = row.case
        sizes = (c.structure, c.slice, c.name, c.count, c.dtype, c.layers, c.own)
        if (*sizes, c.prefix, c.length) == wanted:
            by_axis[c.model_axis] = row
    first = structures.mesh_of(plan, name).model
    if first not in by_axis:
        return None
    tried = [by_axis[axis] for axis in sorted(by_axis) if axis >= first]
    return next((row for row in tried if row.fits), tried[-1])


def write(page: Path, content: str) -> None:
    """Replaces what stands between the two comments of a page.

    Raises:
      AssayError: they are not there.
    """
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise AssayError(f"page={str(page)!r}: no {BEGIN.strip()} and {END.strip()} in it")
    page.write_text(f"{before}{begin}\n{content}\n{end}{after}")


_SWEEP = (
    "model", "slice", "data × model", "step", "GiB", "planned", "ms", "of peak", "FLOPs",
    "sums", "sums, GB", "sums, ms", "copies, GB", "vocabulary, s",
)  # fmt: skip
_WHOLE = ("model", "slice", "data × model", "prompt, GiB", "ms", "check, GiB", "ms", "copies, GB")
_SEARCH = (
    "model", "slice", "data × model", "GiB", "planned", "ms", "of floor",
    "sums", "sums, GB", "sums, ms", "copies, GB",
)  # fmt: skip


_NAMES = {
    "score": "steps of a sweep",
    "prefill": "prompts",
    "plain": "self-checks",
    "gcg": "steps of a search without merged replies",
    "gcg-merged": "steps of the default search",
}


def _head(names: Sequence[str]) -> tuple[str, str]:
    return _cells_of(names, names), "|" + "---|" * len(names)


def _cells_of(cells: Sequence[str], names: Sequence[str]) -> str:
    return "| " + " | ".join([*cells, *[""] * (len(names) - len(cells))]) + " |"


def _sweep(plan: Plan, row: Row | None) -> list[str]:
    if not plan.fits:
        return ["–", "–", f"does not fit; {plan.would_fit} would"]
    gib = _number(plan.account.total / GIB, ".1f")
    if row is None:
        mesh = f"{plan.model.data}×{plan.model.model}"
        return [mesh, f"{plan.step_size:,}", "not compiled", gib]
    cells = [row.case.mesh, f"{row.case.count:,}", _memory(row), _number(row.planned_gib, ".1f")]
    if not row.fits:
        return cells
    return [
        *cells,
        _number(row.ms, ".1f"),
        _percent(row.share_of_peak),
        _number(_ratio(row.flops, row.counted_flops), ".2f"),
        *_sums(row),
        _copies([row]),
        _number(_vocabulary_s(plan, row), ".1f"),
    ]


def _vocabulary_s(plan: Plan, row: Row) -> float | None:
    """Of one vocabulary in such steps; older rows hold it without ends of parts."""
    together, one = row.case.count * (row.case.chips // row.case.model_axis), _with_sums(row)
    return one and one / 1e3 * plans.steps_of(plan.model.config.vocab_size, together)


def _whole(passes: dict[str, Row | None]) -> list[str]:
    whole = [row for name in ("prefill", "plain") if (row := passes[name])]
    cells = [whole[0].case.mesh]
    for name in ("prefill", "plain"):
        cells += [_gib(passes[name]), _number((row := passes[name]) and row.ms, ".1f")]
    return [*cells, _copies(whole)]


def _search(row: Row) -> list[str]:
    if not row.fits:
        return [row.case.mesh, _gib(row)]
    return [
        row.case.mesh,
        _number(row.gib, ".2f"),
        _number(row.planned_gib, ".2f"),
        _number(row.ms, ".1f"),
        _number(_ratio(_with_sums(row), row.floor_ms), ".1f", "×"),
        *_sums(row),
        _copies([row]),
    ]


def _errors(rows: Iterable[Row], name: str, what: str) -> list[str]:
    """How far the planner's memory of a pass is from the compiler's."""
    errors = {
        f"{r.case.structure} on {r.case.slice}": r.planned_gib / r.gib - 1
        for r in rows
        if r.fits and r.case.name == name and r.planned_gib and r.gib
    }
    if not errors:
        return []
    low, high = min(errors, key=errors.__getitem__), max(errors, key=errors.__getitem__)
    return [
        f"The planner's account of {what} is between {errors[low]:+.1%} ({low}) and "
        f"{errors[high]:+.1%} ({high}) of the compiler's.",
        "",
    ]


def _with_sums(row: Row) -> float | None:
    return None if row.ms is None else row.ms + (row.collective_ms or 0.0)


def _copies(rows: Iterable[Row]) -> str:
    return f"{sum(sum(r.weight_copies.values()) for r in rows) / 1e9:.2f}"


def _memory(row: Row | None) -> str:
    if row is None or row.gib is None:
        return ""
    fits = "" if row.fits else "needs "
    return f"{fits}{row.gib:.1f} of {row.usable_gib:.1f}"


def _gib(row: Row | None) -> str:
    return "" if row is None else _memory(row).partition(" of")[0]


def _sums(row: Row) -> list[str]:
    """Number, payload and time of the all-reduces."""
    found = [v for kind, v in row.collectives.items() if kind.startswith("all-reduce ")]
    number, size = (sum(v[i] for v in found) for i in (0, 1))
    if not number or row.case.model_axis == 1:
        return ["–", "", ""]
    return [f"{number:.0f}", f"{size / 1e9:.2f}", f"{row.collective_ms:.1f}"]


def _ratio(value: float | None, of: float | None) -> float | None:
    return value / of if value is not None and of else None


def _percent(share: float | None) -> str:
    return _number(share and 100 * share, ".0f", " %")


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "" if value is None or math.isnan(value) else f"{value:{form}}{unit}"
