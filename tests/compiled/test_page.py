"""Structures of listed models, and rows of compiled passes: in a file, and as a page's tables."""

import dataclasses
import subprocess
import sys
import types
from pathlib import Path

import jax
import pytest

from bench.compiled import page, structures
from bench.compiled.programs import Programs, Work
from bench.compiled.rows import Case, Kept, Row, hbm_bytes, needed_gib
from bench.support.heads import linear_head
from configs import known_models
from engine.errors import AssayError

ROOT = Path(__file__).resolve().parents[2]
CASE = Case(
    structure="Gemma 2 27B",
    slice="v6e:2x4",
    model_axis=2,
    name="score",
    count=1024,
    own=3,
    prefix=64,
    length=8,
    layers=46,
    dtype="bfloat16",
    versions="jax 1, libtpu 2",
)
ROW = Row(
    case=CASE,
    fits=True,
    planned_gib=9.0,
    peak_gib=11.0,
    hbm_gib=10.0,
    usable_gib=31.25,
    ms=40.0,
    flops=1.02e12,
    counted_flops=1e12,
    share_of_peak=0.6,
    floor_ms=20.0,
    collectives={"all-reduce bf16": (64, 2e9), "all-gather f32": (1, 8192.0)},
    collective_ms=11.0,
    vocabulary_s=2.5,
)

_TRY = """
import sys
from absl import flags
from bench import aot_tpu
for asked in sys.argv[1:]:
    flags.FLAGS.unparse_flags()
    for name in flags.FLAGS.flags_by_module_dict()["bench.aot_tpu"]:
        name.unparse()
    flags.FLAGS(["", *(f"--{flag}" for flag in asked.replace("--", "").split())])
    try:
        aot_tpu.main([])
    except SystemExit as ended:
        print(ended)
"""

(GEMMA,) = structures.named(["skywork-reward-gemma-2-27b"])


def test_every_listed_reward_model_has_one_structure():
    slugs = [slug for structure in structures.listed() for slug in structure.slugs]
    assert sorted(slugs) == sorted(known_models.MODELS | known_models.NEXT)


def test_models_of_equal_shape_are_one_structure_and_others_are_not():
    by_name = {structure.name: structure.slugs for structure in structures.listed()}
    assert len(by_name) == 13
    assert "armorm-llama3-8b-v0.1" in by_name["Llama 3.1 8B"]  # other rotary frequencies
    assert by_name["InternLM2 7B"] == ("internlm2-7b-reward",)  # another vocabulary


def test_a_model_that_is_not_listed_is_refused():
    with pytest.raises(AssayError, match=r"models='gpt2'; allowed: all, "):
        structures.named(["gpt2"])


def test_rows_are_appended_and_read_back(tmp_path):
    file = tmp_path / "rows.jsonl"
    Kept(file).add(ROW)
    other = dataclasses.replace(ROW, case=dataclasses.replace(CASE, slice="v5e:2x4"))
    Kept(file).add(other)
    assert Kept(file).rows == {ROW.case: ROW, other.case: other}


def test_a_line_of_the_page_holds_the_numbers_of_its_row():
    table = page.markdown([ROW], [GEMMA], ["v6e:2x4"])
    line = next(line for line in table.splitlines() if "v6e:2x4" in line)
    for number in ("4×2", "1,024", "10.0 of 31.2", "9.0", "40.0", "60 %", "1.02", "3.2"):
        assert f"| {number} |" in line
    assert "| 64 | 2.00 | 11.0 |" in line  # sums
    assert "-10.0% (Gemma 2 27B on v6e:2x4)" in table


def test_what_was_not_compiled_is_counted_and_has_the_planners_mesh():
    table = page.markdown([ROW], [GEMMA], ["v6e:2x4", "v5e:2x4"])
    assert "of 2 pairs of model and slice that fit: prompts 0; steps of a sweep 1;" in table
    assert "| Gemma 2 27B | v5e:2x4 | 2×4 | 1,024 | not compiled | 12.9 |" in table


@pytest.mark.parametrize(
    "change", [{"count": 2048}, {"model_axis": 4}, {"prefix": 32}, {"layers": 2}, {"own": 2}]
)
def test_rows_of_other_work_than_the_planners_are_left_out(change):
    other = dataclasses.replace(ROW, case=dataclasses.replace(CASE, **change))
    table = page.markdown([other], [GEMMA], ["v6e:2x4"])
    assert "steps of a sweep 0;" in table and "| 4×2 | 1,024 | not compiled |" in table


def test_where_the_planners_mesh_does_not_fit_the_next_larger_one_is_shown():
    small = dataclasses.replace(ROW, fits=False)
    large = dataclasses.replace(ROW, case=dataclasses.replace(CASE, model_axis=4))
    table = page.markdown([large, small], [GEMMA], ["v6e:2x4"])
    assert "steps of a sweep 1;" in table and "| 2×4 | 1,024 | 10.0 of 31.2 |" in table


def test_a_search_has_a_mesh_of_its_own():
    search = dataclasses.replace(CASE, name="gcg", count=64, model_axis=8)
    default = dataclasses.replace(search, name="gcg-merged")
    prompt = dataclasses.replace(CASE, name="prefill", count=0)
    rows = [
        dataclasses.replace(ROW, case=search),
        dataclasses.replace(ROW, case=prompt, hbm_gib=None),  # an older one
        dataclasses.replace(ROW, case=default, ms=49.0),
    ]
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.markdown(rows, [GEMMA], ["v6e:2x4"]).splitlines()
        if "v6e:2x4 |" in line
    ]
    _, of_prompt, of_default, of_gcg = lines
    assert of_prompt[2:5] == ["4×2", "11.0", "40.0"]
    assert of_default[2:7] == ["1×8", "10.00", "9.00", "49.0", "3.0×"]  # (49 + 11) / 20 ms
    assert of_gcg[2:7] == ["1×8", "10.00", "9.00", "40.0", "2.5×"]


def test_memory_is_arguments_results_temporary_arrays_and_code():
    sizes = dict(argument=100, output=20, alias=5, temp=3, generated_code=1)
    plan = types.SimpleNamespace(**{f"{name}_size_in_bytes": n for name, n in sizes.items()})
    assert hbm_bytes(plan) == 119


@pytest.mark.parametrize(
    ("message", "gib"),
    [
        ("Ran out of memory in memory space hbm. Used 27.30G of 15.75G hbm.", 27.3),
        ("Ran out of memory in memory space hbm. Used 512.00M of 256.00M hbm.", 0.5),
        ("on HBM, the total memory required for HLO temporaries (129.50G) exceeds", 129.5),
        ("INVALID_ARGUMENT: Topology layout", None),
    ],
)
def test_what_a_program_needs_is_read_from_the_refusal(message, gib):
    assert needed_gib(message) == gib


def test_blocks_of_candidates_and_of_merged_replies_run_as_often_as_the_engine_runs_them():
    devices = jax.make_mesh((1, 1), ("data", "model"), devices=jax.devices()[:1])
    work = Work(candidates=1, own=2, searched=256)
    decoder = GEMMA.with_layers(1).decoder
    passes = Programs(decoder, linear_head(decoder), devices, "bfloat16", work)
    rounds = {scope: passes.rounds(f"jit(expand)/{scope}/while") for scope in ("score", "x")}
    assert rounds == {"score": 4, "x": 1}  # 128 rows, 32 at a time
    assert passes.rounds("jit(expand)/score/merged/while") == 1


def test_a_model_that_the_planner_refuses_need_not_be_compiled():
    large = structures.named(["inf-orm-llama3.1-70b"])
    table = page.markdown([], large, ["v5e:2x4"])
    assert "of 0 pairs" in table
    assert "does not fit; 16 of these devices would" in table


def test_wrong_flags_are_one_line():
    messages = {
        "slices=v5e:3": "slices='v5e:3'; allowed: v5e, v6e, v5p and a shape",
        "passes=foo": "passes='foo'; allowed: prefill, ",
        "model_axis=x": "model_axis='x'; allowed: integers >= 0",
        "candidates=-4": "candidates='-4'; allowed: integers >= 0",
        "searched=0": "searched=0; allowed: integers >= 1",
        "dtype=fp8": "dtype='fp8'; allowed: 'bfloat16', ",
        "page=README.md": "page='README.md'; allowed: a file that is there, with --kept",
        "page=/no/page.md --kept=/no/rows": "page='/no/page.md'; allowed: a file that is there",
    }
    # Another process: the flags of several benches have one name.
    command = [sys.executable, "-c", _TRY, *messages]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for line, message in zip(said.splitlines(), messages.values(), strict=True):
        assert line.startswith(f"bench.aot_tpu: {message}")


def test_a_page_keeps_what_stands_around_the_tables(tmp_path):
    file = tmp_path / "page.md"
    file.write_text(f"before\n{page.BEGIN}old\n{page.END}after\n")
    page.write(file, "new\n")
    page.write(file, "newer\n")
    assert file.read_text() == f"before\n{page.BEGIN}\nnewer\n\n{page.END}after\n"


def test_a_page_without_a_place_for_tables_is_refused(tmp_path):
    file = tmp_path / "page.md"
    file.write_text("text\n")
    with pytest.raises(AssayError, match=r"rows of bench\.aot_tpu"):
        page.write(file, "new\n")
    assert file.read_text() == "text\n"


def test_the_documentation_holds_the_kept_rows():
    kept = Kept(ROOT / "bench/compiled/rows.jsonl")
    written = page.markdown(kept.rows.values(), structures.listed(), page.SLICES)
    assert written in (ROOT / "docs/compiled-programs-tpu.md").read_text()
