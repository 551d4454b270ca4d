"""The planner against the TPU programs that bench/compiled/rows.jsonl keeps."""

import dataclasses
import statistics

import pytest

from bench.compiled import structures
from bench.compiled.programs import SEARCHES, merged_replies
from bench.compiled.rows import Kept, Row
from bench.planner import TPU_TOLERANCE
from bench.support.heads import linear_head
from engine.planning import machines, memory, plans, searches
from engine.planning.memory import GIB, Model
from tests.conftest import ROOT

ROWS = [row for row in Kept(ROOT / "bench/compiled/rows.jsonl").rows.values() if row.fits]
STRUCTURES = {structure.name: structure for structure in structures.listed()}
CHIPS = ["v5e", "v5p", "v6e"]
TIME_TOLERANCE, MEDIAN_TOLERANCE = 0.15, 0.05


def rows_of(*names: str) -> list[Row]:
    return [row for row in ROWS if row.case.name in names]


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
    sizes["merged"] = merged_replies(row.case.name, row.case.count)
    return dataclasses.replace(usual, **sizes)


def planned_s(row: Row, kind: machines.Kind | None = None) -> float:
    """Of a step of a sweep without sums, which the compiler's estimate leaves out too."""
    sweep = sweep_of(row)
    return plans.step_alone_seconds(model_of(row), kind or kind_of(row), sweep, row.case.count)


def off(errors: dict[str, float]) -> dict[str, float]:
    """Errors beyond the tolerance, and the median where it is beyond its own."""
    found = {case: error for case, error in errors.items() if abs(error) > TIME_TOLERANCE}
    median = statistics.median(errors.values())
    return found | ({"median": median} if abs(median) >= MEDIAN_TOLERANCE else {})


@pytest.mark.parametrize("chip", CHIPS)
def test_a_step_takes_the_time_that_the_compiler_estimates(chip):
    rows = [row for row in rows_of("score") if kind_of(row).name == chip and row.ms]
    rows = [row for row in rows if row.case.dtype == "bfloat16"]
    assert min(STRUCTURES[row.case.structure].decoder.width for row in rows) == 1024  # Qwen 0.6B
    assert off({str(row.case): planned_s(row) * 1e3 / row.ms - 1 for row in rows}) == {}
    # The planted bug: one share of the peak for every model.
    flat = dataclasses.replace(machines.KINDS[chip], share=0.5, element_s=0.0)
    wrong = off({str(row.case): planned_s(row, flat) * 1e3 / row.ms - 1 for row in rows})
    assert len(wrong) > len(rows) / 4


def search_rows(method: str, chip: str) -> list[Row]:
    rows = [row for row in rows_of(method) if kind_of(row).name == chip and row.ms]
    assert len(rows) == (25 if chip == "v5e" else 13)  # every listed model on every slice
    return rows


@pytest.mark.parametrize("method", SEARCHES)
@pytest.mark.parametrize("chip", CHIPS)
def test_a_search_takes_the_time_that_the_compiler_estimates(chip, method):
    """Without sums, which the estimate leaves out."""

    def errors(**change: float) -> dict[str, float]:
        kind = dataclasses.replace(machines.KINDS[chip], **change)
        return {
            str(row.case): searches.step_alone_seconds(model_of(row), kind, search_of(row))
            * 1e3
            / row.ms
            - 1
            for row in search_rows(method, chip)
        }

    assert off(errors()) == {}
    # The planted bugs: weights that are read at the stated bandwidth, small operations for nothing.
    assert off(errors(read_share=1.0))
    assert "median" in off(errors(layer_s=0.0))
    assert "median" in off(errors(element_s=0.0))


@pytest.mark.parametrize("method", SEARCHES)
@pytest.mark.parametrize("chip", CHIPS)
def test_a_search_takes_the_time_of_its_sums_too(chip, method):
    """The rows hold the time of what sums send, without their latency."""

    def errors(**change: float) -> dict[str, float]:
        kind = dataclasses.replace(machines.KINDS[chip], link_s=0.0, **change)
        return {
            str(row.case): searches.step_seconds(model_of(row), kind, search_of(row))
            * 1e3
            / (row.ms + row.collective_ms)
            - 1
            for row in search_rows(method, chip)
        }

    assert off(errors()) == {}
    # The planted bug: links that take no time.
    assert "median" in off(errors(link_bytes_per_s=1e15))


def test_the_share_that_a_plan_states_is_that_of_its_row():
    for row in rows_of("score"):
        model, work = model_of(row), sweep_of(row)
        share = plans.share_of_peak(model, kind_of(row), work, row.case.count)
        assert share == pytest.approx(row.share_of_peak, rel=0.16)  # 1 / .87


def account_of(row: Row) -> memory.Account:
    if row.case.name == "score":
        return plans.sweep_account(model_of(row), sweep_of(row))
    return plans.search_account(model_of(row), search_of(row))


def memory_errors(name: str) -> dict[str, float]:
    """Account over what the program takes, less one."""
    return {
        str(row.case): account_of(row).total / GIB / row.gib - 1 for row in rows_of(name) if row.gib
    }


@pytest.mark.parametrize("name", ["score", *SEARCHES])
def test_memory_of_every_step_is_what_the_compiler_reserves(name):
    planned = {str(row.case): row.planned_gib for row in rows_of(name)}  # what the page says
    assert planned == pytest.approx(
        {str(row.case): account_of(row).total / GIB for row in rows_of(name)}
    )
    errors = memory_errors(name)
    assert len(errors) >= 51
    assert {case: e for case, e in errors.items() if abs(e) > TPU_TOLERANCE} == {}


@pytest.mark.parametrize("name", ["score", *SEARCHES])
def test_an_account_without_the_embedding_does_not_pass(monkeypatch, name):
    original = memory.weight_bytes
    monkeypatch.setattr(memory, "weight_bytes", lambda m: original(m) - memory.embedding_bytes(m))
    assert min(memory_errors(name).values()) < -TPU_TOLERANCE


def test_an_account_of_a_search_without_its_code_does_not_pass(monkeypatch):
    held = statistics.median(memory_errors("gcg-merged").values())
    monkeypatch.setattr(memory, "_CODE_BYTES", 0)
    errors = memory_errors("gcg-merged").values()
    assert sum(error < -TPU_TOLERANCE for error in errors) > 1
    assert statistics.median(errors) < 2 * held < 0
