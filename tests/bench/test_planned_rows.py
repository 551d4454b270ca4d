"""The planner against the TPU programs that bench/compiled/rows.jsonl keeps."""

import dataclasses
import statistics

import pytest

from bench.compiled import structures
from bench.compiled.rows import Kept, Row
from bench.planner import TPU_TOLERANCE
from bench.support.heads import linear_head
from engine.planning import machines, memory, plans, searches
from engine.planning.memory import GIB, Model
from tests.conftest import ROOT

ROWS = [row for row in Kept(ROOT / "bench/compiled/rows.jsonl").rows.values() if row.fits]
STRUCTURES = {structure.name: structure for structure in structures.listed()}
TIME_TOLERANCE = 0.15


def rows_of(name: str) -> list[Row]:
    return [row for row in ROWS if row.case.name == name]


def kind_of(row: Row) -> machines.Kind:
    return machines.KINDS[row.case.slice.partition(":")[0]]


def model_of(row: Row) -> Model:
    case, decoder = row.case, STRUCTURES[row.case.structure].decoder
    return Model(
        config=decoder,
        heads=(linear_head(decoder),),
        dtype=case.dtype,
        data=case.chips // case.model_axis,
        model=case.model_axis,
        platform="tpu",
    )


def sweep_of(row: Row):
    usual = structures.work(STRUCTURES[row.case.structure]).sweep
    return dataclasses.replace(usual, prefix=row.case.prefix, step_size=row.case.count)


def search_of(row: Row):
    usual = structures.work(STRUCTURES[row.case.structure]).search
    sizes = dict(prefix=row.case.prefix, length=row.case.length, candidates=row.case.count)
    return dataclasses.replace(usual, **sizes)


def planned_s(row: Row, kind: machines.Kind | None = None) -> float:
    """Of a step of a sweep without sums, which the compiler's estimate leaves out too."""
    sweep = sweep_of(row)
    return plans.step_alone_seconds(model_of(row), kind or kind_of(row), sweep, row.case.count)


@pytest.mark.parametrize("chip", ["v5e", "v5p", "v6e"])
def test_a_step_takes_the_time_that_the_compiler_estimates(chip):
    rows = [row for row in rows_of("score") if kind_of(row).name == chip and row.ms]
    rows = [row for row in rows if row.case.dtype == "bfloat16"]
    assert min(STRUCTURES[row.case.structure].decoder.width for row in rows) == 1024  # Qwen 0.6B
    errors = {row.case: planned_s(row) * 1e3 / row.ms - 1 for row in rows}
    assert {c: e for c, e in errors.items() if abs(e) > TIME_TOLERANCE} == {}
    assert abs(statistics.median(errors.values())) < 0.05
    # The planted bug: one share of the peak for every model.
    flat = dataclasses.replace(machines.KINDS[chip], share=0.5, element_s=0.0)
    assert any(abs(planned_s(row, flat) * 1e3 / row.ms - 1) > TIME_TOLERANCE for row in rows)


def planned_search_s(row: Row, kind: machines.Kind) -> float:
    """Of a step of a search without sums, which the compiler's estimate leaves out too."""
    return searches.step_alone_seconds(model_of(row), kind, search_of(row))


@pytest.mark.parametrize("chip", ["v5e", "v5p", "v6e"])
def test_a_search_takes_the_time_that_the_compiler_estimates(chip):
    rows = [row for row in rows_of("gcg") if kind_of(row).name == chip and row.ms]
    assert len(rows) == (25 if chip == "v5e" else 13)  # every listed model on every slice
    kind = machines.KINDS[chip]
    errors = {row.case: planned_search_s(row, kind) * 1e3 / row.ms - 1 for row in rows}
    assert {c: e for c, e in errors.items() if abs(e) > TIME_TOLERANCE} == {}
    assert abs(statistics.median(errors.values())) < 0.05
    # The planted bugs: weights that are read at the stated bandwidth, small operations for nothing.
    for change in ({"read_share": 1.0}, {"layer_s": 0.0}):
        other = dataclasses.replace(kind, **change)
        wrong = [planned_search_s(row, other) * 1e3 / row.ms - 1 for row in rows]
        assert max(map(abs, wrong)) > TIME_TOLERANCE, change


def test_the_share_that_a_plan_states_is_that_of_its_row():
    for row in rows_of("score"):
        model, work = model_of(row), sweep_of(row)
        share = plans.share_of_peak(model, kind_of(row), work, row.case.count)
        assert share == pytest.approx(row.share_of_peak, rel=0.16)  # 1 / .87


def account_of(row: Row) -> memory.Account:
    if row.case.name == "score":
        return plans.sweep_account(model_of(row), sweep_of(row))
    return plans.search_account(model_of(row), search_of(row))


def memory_errors(name: str, least_gib: float) -> dict[str, float]:
    """Account over the compiler's peak, less one, of rows that need at least so much."""
    return {
        str(row.case): account_of(row).total / GIB / row.peak_gib - 1
        for row in rows_of(name)
        if row.peak_gib and row.peak_gib >= least_gib
    }


def test_memory_of_every_step_of_a_sweep_is_what_the_compiler_reserves():
    errors = memory_errors("score", 0)
    assert len(errors) > 30
    assert {case: e for case, e in errors.items() if abs(e) > TPU_TOLERANCE} == {}


def test_memory_of_a_search_is_what_the_compiler_reserves():
    """Below 768 MiB a chip the compiler's peak differs by chip, by up to 90 MiB of one program."""
    errors = memory_errors("gcg", 0.75)
    assert errors
    assert {case: e for case, e in errors.items() if abs(e) > TPU_TOLERANCE} == {}
    small = [row for row in rows_of("gcg") if row.peak_gib and row.peak_gib < 0.75]
    assert all(abs(account_of(row).total / GIB - row.peak_gib) < 0.1 for row in small)


def test_an_account_without_the_embedding_does_not_pass(monkeypatch):
    original = memory.weight_bytes
    monkeypatch.setattr(memory, "weight_bytes", lambda m: original(m) - memory.embedding_bytes(m))
    assert min(memory_errors("score", 0).values()) < -TPU_TOLERANCE
