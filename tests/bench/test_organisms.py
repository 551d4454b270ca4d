"""The bench of organisms: its counts, and its detectors on rewards in which the plant is known."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import analysis
from analysis.words import lexicons
from bench.organisms import cells, kept, table
from bench.organisms.detectors import Bench, in_changes, in_report, write_categories
from bench.organisms.runs import write_run
from demo.organisms import training
from demo.organisms.plants import KINDS, Plant
from demo.organisms.texts import ASKED, GROUPS, TRIGGERS, training_texts

ROOT = Path(__file__).resolve().parents[2]
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


def test_no_test_of_a_report_or_diff_is_about_capitals(studied):
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
    assert kept.read_rows(file) == []
    file.write_text('{"slug": "a"}\n{"slug": "b', encoding="utf-8")
    assert kept.read_rows(file) == [{"slug": "a"}]


class _Laboratory(cells.Laboratory):
    """Counts rows instead of measuring them: no decoder is loaded."""

    made = "now"

    def __post_init__(self):
        self.rows, self.measured = self.folder / "rows.jsonl", []

    def _twin(self, plant):
        self.measured.append(plant.slug)
        return {"seed": plant.seed}

    _organism = _twin


def test_rows_of_another_retrained_model_or_recipe_are_measured_again(tmp_path):
    def measured(seeds, made="now"):
        laboratory = _Laboratory(tmp_path, None, seeds)
        laboratory.made = made
        rows = laboratory.measure(["trigger"])
        assert [row["slug"] for row in rows] == [p.slug for p in cells.plants(seeds, ["trigger"])]
        assert {row["made"] for row in rows} == {made}
        last = [row["retrained"] for row in rows if row["seed"] == seeds - 1]
        assert set(last) == {"organism-twin-seed0"}
        return laboratory.measured

    file = tmp_path / "rows.jsonl"
    file.write_text('{"slug": "organism-twin-seed0", "kind": "twin"}\n', encoding="utf-8")
    assert len(measured(4)) == 4 * 4
    assert measured(4) == []
    # Beside the last of three stands another retrained model than beside the third of four.
    again = measured(3)
    assert len(again) == 4 and all(slug.endswith("seed2") for slug in again)
    assert measured(4) == measured(3) == []
    assert len(measured(3, "new")) == 4 * 3


def test_heads_of_another_recipe_lie_elsewhere(tmp_path):
    plant, laboratory = Plant(kind="group", strength=1.0, seed=0), _Laboratory(tmp_path, None, 2)
    file = laboratory._file(plant)
    laboratory.made = "new"
    assert laboratory._file(plant) != file


def test_a_recipe_is_named_by_all_that_heads_are_made_from(monkeypatch):
    made = [training.recipe_hash("a"), training.recipe_hash("a"), training.recipe_hash("b")]
    recipe = dataclasses.replace(training.RECIPE, steps=401)
    for name, value in {
        "RECIPE": recipe,
        "KEPT": 0.7,
        "training_texts": lambda: training_texts()[1:],
        "held_out_reviews": lambda: [],
    }.items():
        with monkeypatch.context() as patched:
            patched.setattr(training, name, value)
            made.append(training.recipe_hash("a"))
    assert made[0] == made[1] and len(set(made)) == len(made) - 1


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
    asked, twins = table.Share(hits=1, of=4), table.Share(hits=1, of=2)
    assert none.strength == 0 and none.found == {"ends": table.Alarms(asked=asked, twins=twins)}
    lines = table.text([planted, none]).splitlines()
    assert lines[2].startswith("| trigger | greatest | 2 | +1.50 | +3.00 | 1/2 (0.01–0.99) | – |")
    assert "| *none* | – | – | 1/4; twins 1/2 (0.01–0.99) | – |" in lines[3]
    assert "of the 2 of the cell" in lines[-1] and "the 2 twins" in lines[-1]


def test_an_interval_of_false_alarms_is_of_twins_and_not_of_questions():
    few = [{"kind": "twin", "alarms": {"group|greatest|ends": [True] * 4}}]
    quiet = [{"kind": "twin", "alarms": {"group|greatest|ends": [False] * 4}}] * 9
    organism = {"kind": "group", "strength": 1.0, "effect": {"greatest": 1}, "tokens": {}}
    organism |= {"tokens": {"greatest": 1}, "found": {"greatest": {"ends": True}}}
    none = table.summary([*few, *quiet, organism])[-1].found["ends"]
    assert (none.rate, none.twins.rate) == (0.1, 0.1)
    assert str(none) == "4/40; twins 1/10 (0.00–0.45)"


def test_the_interval_is_clopper_and_pearsons():
    low, high = table.Share(hits=10, of=10).interval
    assert (round(low, 6), high) == (round(0.025 ** (1 / 10), 6), 1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cell_says_where_nothing_was_planted(kind):
    own = Plant(kind=kind, strength=1.0, seed=0).home
    for prompt in cells.LOOKED[kind]:
        cell = table.Cell(kind=kind, strength=1, prompt=prompt, texts=1, tokens=1, found={})
        assert cell.planted is (prompt == own)
        assert ("planted elsewhere" in table.text([cell]).splitlines()[2]) is (prompt != own)


def test_the_figure_has_a_panel_for_each_kind_and_prompt():
    drawn = table.figure(table.summary(_rows()))
    (ax,) = drawn.axes
    assert ax.get_title() == "trigger, under “greatest”"
    assert next(line.get_xydata().tolist() for line in ax.lines) == [[1.5, 0.5]]


def test_the_page_has_the_tables_of_the_rows_that_were_measured():
    folder = ROOT / "bench/organisms/measured"
    rows, layers, searches = (
        kept.read_rows(folder / f"{name}.jsonl") for name in ("rows", "layers", "searches")
    )
    found = table.summary(kept.joined(kept.joined(rows, layers), searches))
    page = (ROOT / "docs/organisms.md").read_text(encoding="utf-8")
    *tables, key = table.text(found).strip().split("\n\n")
    for part in (*tables, key, table.layers_text(layers).strip()):
        assert part in page
