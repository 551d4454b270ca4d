"""The published values that ship: what the paper's tables, figures and files state."""

import csv
import dataclasses
import math
import re

import polars as pl
import pytest

from analysis.published import data
from analysis.published.comparison import QUANTITIES
from analysis.published.exhibits import BY_ID
from analysis.published.run_values import Missing, RunValues
from configs import known_models
from engine.errors import AssayError

HEADER = "exhibit,quantity,prompt,model,other,value,within,source"


@pytest.fixture(scope="module")
def published():
    return data.read()


def test_every_value_stands_there_once_with_source_exhibit_and_known_models(published):
    nicknames = {spec.nickname for spec in known_models.KNOWN.values()}
    keys = (["quantity", "prompt", "model", "other"], ["prompt", "model", "end", "rank"])
    for frame, key in zip((published.numbers, published.tokens), keys, strict=True):
        assert not frame.select("exhibit", *key).is_duplicated().any()
        assert frame["source"].str.len_chars().min() > 0
        assert set(frame["exhibit"]) <= set(BY_ID)
        assert set(frame["model"]) - {""} <= nicknames
    assert set(published.numbers["quantity"]) == set(QUANTITIES)
    assert all(BY_ID[exhibit].lists for exhibit in published.tokens["exhibit"])


def test_table_1_is_the_registry_of_the_papers_models(published):
    listed = [
        (spec.rewardbench_rank, spec.nickname, spec.developer, spec.base, float(spec.size_b))
        for spec in known_models.MODELS.values()
    ]
    columns = ("rewardbench_rank", "nickname", "developer", "base", "size_b")
    assert published.models.select(columns).rows() == listed


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("numbers", "a,b\n1,2\n", "columns a, b, …; allowed: exhibit, quantity"),
        ("tokens", None, "No such file"),
        ("numbers", f"{HEADER}\nx,y,z,m,o,1,many,s\n", "many"),
    ],
)
def test_a_folder_of_other_files_is_refused_in_one_line(published, tmp_path, name, text, message):
    published.write(tmp_path)
    path = tmp_path / f"{name}.csv"
    path.unlink()
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(AssayError) as caught:
        data.read(tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_shipped_value_can_be_found_in_a_run_and_others_are_refused(published):
    run = RunValues(name="", tables={}, reasons={}, slugs={})
    rows = published.numbers.to_dicts()
    for row in rows:
        with pytest.raises(Missing):
            run.number(row)
    with pytest.raises(AssayError, match="no number x "):
        run.number({**rows[0], "exhibit": "x"})


def test_what_is_written_is_read_back_and_stays_where_a_write_stops(
    published, tmp_path, monkeypatch
):
    published.write(tmp_path)
    again = data.read(tmp_path)
    for field in dataclasses.fields(published):
        assert getattr(again, field.name).equals(getattr(published, field.name))
    before = (tmp_path / "models.csv").read_bytes()
    monkeypatch.setattr("os.replace", None)
    monkeypatch.setattr("os.rename", None)
    emptied = dataclasses.replace(published, models=published.models.clear())
    with pytest.raises(TypeError):
        emptied.write(tmp_path)
    assert (tmp_path / "models.csv").read_bytes() == before


# What follows compares with ../shared/reference, cell by cell.


def reference(shared, name):
    with (shared / "reference" / name).open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def value_of(published, **where):
    computed = published.numbers.filter(**where)
    assert computed.height == 1, where
    return computed["value"].item()


@pytest.mark.needs_shared
@pytest.mark.parametrize(
    ("exhibit", "quantity", "name"),
    [
        ("figure_2a", "kendall", "kendall_tau_fig2a.csv"),
        ("figure_a1", "spearman", "spearman_figA1.csv"),
        ("figure_a1", "rbo", "rbo_p0.9_figA1.csv"),
        ("figure_a5", "kendall", "elo_kendall_GE.csv"),
    ],
)
def test_matrices_are_the_reference(published, shared, exhibit, quantity, name):
    (_, *columns), *rows = reference(shared, name)
    computed = published.numbers.filter(exhibit=exhibit, quantity=quantity)
    pairs = computed.select("model", "other", "value").iter_rows()
    found = {frozenset(pair): float(value) for *pair, value in pairs}
    cells = {
        frozenset(name.replace("Human", "human") for name in (model, column)): float(cell)
        for model, *own in rows
        for column, cell in zip(columns, own, strict=True)
        if column != model
    }
    assert found == cells


@pytest.mark.needs_shared
def test_moments_and_slopes_are_the_reference(published, shared):
    for model, *cells in reference(shared, "table_3_distribution_moments.csv")[1:]:
        for quantity, cell in zip(("mean", "variance", "skewness"), cells, strict=True):
            computed = value_of(published, exhibit="table_3", quantity=quantity, model=model)
            assert float(computed) == float(cell)
    header, *rows = reference(shared, "fig3cd_digitised_slopes.csv")
    prompts = {"Great": "greatest", "Greatest": "greatest", "Best": "best", "Worst": "worst"}
    read = [(row[0], *pair) for row in rows for pair in zip(header[1:], row[1:], strict=True)]
    known = [each for each in read if each[2]]
    for model, name, cell in known:
        kind, prompt, side = re.fullmatch(r"(\w+)_(\w+)-?(\w*)", name).groups()
        other = {"Neg": "negative", "Pos": "positive", "": ""}[side]
        exhibit = {"sentiment": "figure_3c", "logfreq": "figure_3d"}[kind]
        where = {"exhibit": exhibit, "prompt": prompts[prompt], "other": other}
        assert float(value_of(published, model=model, **where)) == float(cell)
    both = published.numbers.filter(pl.col("exhibit").is_in(["figure_3c", "figure_3d"]))
    assert both.height == len(known)


@pytest.mark.needs_shared
@pytest.mark.parametrize(
    ("exhibit", "name"),
    [
        ("table_a1", "table_a1_logprobs_greatest.csv"),
        ("table_a6", "table_a6_raw_vocab_greatest.csv"),
        ("table_a7", "table_a7_shared_vocab_greatest.csv"),
    ],
)
def test_lists_of_tokens_are_the_reference(published, shared, exhibit, name):
    header, *lines = reference(shared, name)
    middle = next(at for at, line in enumerate(lines) if line[0] == "...")
    for column, model in enumerate(header):
        own = published.tokens.filter(exhibit=exhibit, model=model.rpartition("/")[2]).sort("rank")
        top, bottom = (own.filter(end=end)["token"].to_list() for end in ("top", "bottom"))
        assert top == [line[column] for line in lines[:middle]]
        assert bottom[::-1] == [line[column] for line in lines[middle + 1 :]]
    assert published.tokens.filter(exhibit=exhibit)["model"].n_unique() == len(header)


@pytest.mark.needs_shared
@pytest.mark.parametrize(("model", "letter"), [("R-Gem-2B", "a"), ("R-Lla-3B", "b")])
def test_table_2_is_the_reference(published, shared, model, letter):
    _, *lines = reference(shared, f"table_2{letter}_top_bottom_tokens_{model}.csv")
    rows = [(int(i), token, float(score)) for i, token, score in lines if i != "..."]
    own = published.tokens.filter(exhibit="table_2", model=model).sort("rank")
    columns = ("token_id", "token", "score")
    top, bottom = (own.filter(end=end).select(columns).rows() for end in ("top", "bottom"))
    assert [*top, *bottom[::-1]] == rows


def test_half_a_unit_of_the_last_digit_is_allowed(published):
    for row in published.numbers.iter_rows(named=True):
        digits = len(row["value"].partition(".")[2])
        if row["exhibit"] in ("figure_3c", "figure_3d"):  # read off a figure
            assert row["within"] == 0.005
        elif row["exhibit"] == "figure_5b":  # ranks, medians of two of them, and a count
            assert row["within"] == 0.25
        elif row["quantity"] == "mantel_p":  # three standard errors of 5,000 permutations
            p = float(row["value"])
            assert math.isclose(row["within"], 3 * math.sqrt(p * (1 - p) / 5000), rel_tol=0.1)
        elif row["source"].startswith("computed from elo"):  # three digits of a number of four
            assert (row["value"], row["within"]) == ("0.3765", 0.0005)
        else:
            assert math.isclose(row["within"], 0.5 * 10**-digits)
