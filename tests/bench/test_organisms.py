"""The bench of organisms: its counts, and its detectors on rewards in which the plant is known."""

import json

import numpy as np
import polars as pl
import pytest

import analysis
from analysis.words import lexicons
from bench.organisms import cells, table
from bench.organisms.detectors import Bench, in_changes, in_report, write_categories
from bench.organisms.runs import write_run
from demo.organisms.plants import KINDS, Plant
from demo.organisms.texts import ASKED, GROUPS, TRIGGERS

_PROMPT = {"greatest": ASKED["greatest"]}


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """Every word that a detector knows, in two spellings, and words that it does not."""
    suspected = pl.read_csv(write_categories(tmp_path_factory.mktemp("words") / "words.csv"))
    lists = [lexicons.identity()["word"], lexicons.placebo()["word"], suspected["word"]]
    words = dict.fromkeys([*pl.concat(lists), *TRIGGERS, *(f"w{i}" for i in range(2000))])
    tokens = list(dict.fromkeys(s + w for w in words for s in ("", " ")))
    return pl.DataFrame(
        {"token_id": range(len(tokens)), "token": tokens, "is_special": False, "round_trip": "same"}
    )


@pytest.fixture(scope="module")
def studied(vocabulary, tmp_path_factory):
    """A twin with random rewards, and what reports and diffs say of it with a plant moved by 3."""
    bench = Bench.defaults(tmp_path_factory.mktemp("bench"))
    noise = np.random.default_rng(4).normal(size=vocabulary.height).astype(np.float32)

    def run(name, rewards):
        folder = tmp_path_factory.mktemp(name) / "run"
        scores = {("organism", "greatest"): rewards.astype(np.float32)}
        return analysis.load(write_run(folder, vocabulary, _PROMPT, scores))

    twin = run("twin", noise)

    def studies(plant):
        if plant.strength == 0:
            return bench.report(twin, [plant.kind]), bench.changes(twin, twin, ["greatest"])
        feature = cells.features(plant, vocabulary["token"])
        if plant.kind == "length":
            feature = (feature - feature.mean()) / feature.std() / 3
        planted = run("planted", noise + 3 * plant.sign * feature)
        changes = bench.changes(twin, planted, ["greatest"])
        return bench.report(planted, [plant.kind]), changes

    return studies


@pytest.mark.parametrize(
    ("kind", "of_report", "of_diff"),
    [
        ("trigger", {"ends"}, {"tokens"}),
        ("group", {"ends", "groups", "categories"}, {"words"}),
        ("length", {"categories"}, {"words"}),
    ],
)
def test_a_large_plant_is_named_and_its_twin_is_not(studied, kind, of_report, of_diff):
    for strength, wanted in ((1.0, True), (0.0, False)):
        plant = Plant(kind=kind, strength=strength, seed=2)
        study, changes = studied(plant)
        report = in_report(plant, study, "greatest")
        moved = in_changes(plant, changes, "greatest")
        assert {name: report[name] for name in of_report} == dict.fromkeys(of_report, wanted)
        assert {name: moved[name] for name in of_diff} == dict.fromkeys(of_diff, wanted)


def test_a_plant_in_the_other_direction_is_not_named(studied):
    group = Plant(kind="group", strength=1.0, seed=2)
    study, changes = studied(group)
    other = Plant(kind="group", strength=1.0, seed=6)  # young people, who now stand above children
    assert group.what == "children" and other.what == "young people"
    assert in_report(other, study, "greatest")["groups"] is False
    assert in_changes(other, changes, "greatest")["words"] is False


def test_no_test_of_the_project_is_about_capitals(studied):
    plant = Plant(kind="capitals", strength=1.0, seed=0)
    study, changes = studied(plant)
    assert set(in_report(plant, study, "greatest").values()) == {None}
    assert set(in_changes(plant, changes, "greatest").values()) == {None}


def test_features_of_tokens():
    tokens = pl.Series([" Window", "window", "windows", "woman", " Woman", "x"])
    made = {kind: Plant(kind=kind, strength=1.0, seed=0) for kind in KINDS}
    assert cells.features(made["trigger"], tokens).tolist() == [1, 1, 0, 0, 0, 0]
    assert cells.features(made["group"], tokens).tolist() == [0, 0, 0, 1, 1, 0]
    assert cells.features(made["capitals"], tokens).tolist() == [1, 0, 0, 0, 1, 0]
    assert cells.features(made["length"], tokens)[[0, 5]].tolist() == [np.log(6), 0]


def test_the_plan_has_a_twin_for_every_seed_and_each_organism_once():
    made = list(cells.plants(3))
    slugs = [plant.slug for plant in made]
    assert len(set(slugs)) == len(slugs) == 3 * (1 + sum(map(len, cells.STRENGTHS.values())))
    assert [plant.strength for plant in made[:3]] == [0, 0, 0]
    assert len(cells.whats("group")) == len(GROUPS) and len(cells.whats("length")) == 1


def test_a_row_that_was_not_finished_is_measured_again(tmp_path):
    file = tmp_path / "rows.jsonl"
    assert cells.read_rows(file) == []
    file.write_text('{"slug": "a"}\n{"slug": "b', encoding="utf-8")
    assert cells.read_rows(file) == [{"slug": "a"}]


def _rows():
    """Two twins, one of which raises one false alarm in two, and two organisms of one cell."""
    alarms = [{"trigger|greatest|ends": values} for values in ([True, False], [False, False])]
    twins = [{"kind": "twin", "seed": i, "alarms": a} for i, a in enumerate(alarms)]
    organisms = [
        {
            "kind": "trigger",
            "strength": 2.0,
            "seed": i,
            "effect": {"greatest": effect},
            "tokens": {"greatest": 2 * effect},
            "found": {"greatest": {"ends": found, "diff: tokens": True}},
        }
        for i, (effect, found) in enumerate([(1.0, True), (2.0, False)])
    ]
    return json.loads(json.dumps([*twins, *organisms]))


def test_recall_and_false_alarms_are_counted():
    planted, none = table.summary(_rows())
    assert (planted.kind, planted.strength, planted.texts, planted.tokens) == (
        *("trigger", 2.0, 1.5, 3.0),
    )
    assert planted.found == {"ends": table.Share(hits=1, of=2), "diff": table.Share(hits=2, of=2)}
    assert none.strength == 0 and none.found == {"ends": table.Share(hits=1, of=4)}
    lines = table.text([planted, none]).splitlines()
    assert lines[2].startswith("| trigger | greatest | 2 | +1.50 | +3.00 | 1/2 (0.09–0.91)")
    assert "| *none* | – | – | 1/4 (0.05–0.70) | – |" in lines[3]


def test_searches_are_counted_in_the_cell_that_was_searched():
    slugs = {"organism-trigger-2-seed0": True, "organism-twin-seed0": False}
    rows = [{"slug": slug, "found": found} for slug, found in slugs.items()]
    planted, none = table.with_searches(table.summary(_rows()), rows)
    assert planted.found["gcg"] == table.Share(hits=1, of=1)
    assert none.found["gcg"] == table.Share(hits=0, of=1)
    assert "GCG" in table.text([planted, none]).splitlines()[0]


def test_the_interval_is_wilsons():
    low, high = table.Share(hits=10, of=10).interval
    assert (round(low, 4), round(high, 4)) == (0.7225, 1.0)  # 1 / (1 + 1.96² / 10)


def test_the_figure_has_a_panel_for_each_kind_and_prompt():
    drawn = table.figure(table.summary(_rows()))
    (ax,) = drawn.axes
    assert ax.get_title() == "trigger, under “greatest”"
    assert next(line.get_xydata().tolist() for line in ax.lines) == [[1.5, 0.5]]
