"""`assay score --probes` on heads with a planted bias of style, and what reads it."""

import json
import shutil

import numpy as np
import polars as pl
import pytest

import analysis
from analysis.measures import probes
from analysis.words.edits import EDITS, SHAMS
from engine.runs.folder import RunFolder
from tests.support import biased, folders

pytestmark = pytest.mark.usefixtures("one_length")
SENTENCES = ("It was the{} then.", "So it is the truth.", "Be it so, and see it{}.", "That is all.")


def rows_of(count, seed=0):
    """Pairs whose chosen replies say love and whose rejected ones say war; without markdown."""
    rng, rows = np.random.default_rng(seed), []
    for number in range(count):
        row = {"prompt": f"What is good? {number // 2}"}
        for side, word in (("chosen", " love"), ("rejected", " war")):
            sentences = rng.permutation(SENTENCES)[: rng.integers(2, 5)]
            row[side] = " ".join(s.format(word * rng.integers(0, 3)) for s in sentences)
        rows.append(row)
    return rows


ROWS = rows_of(40)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Bias -> checkpoint."""
    folder = tmp_path_factory.mktemp("biased")
    return {
        bias: folders.convert(biased.write_model(folder / bias, bias), folder / f"c-{bias}", bias)
        for bias in biased.BIASES
    }


@pytest.fixture(scope="module")
def run(models, tmp_path_factory):
    """The run of all of them."""
    from launch import score

    folder = tmp_path_factory.mktemp("scored")
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    listed = ",".join(str(model.path) for model in models.values())
    flags = [f"--checkpoint={listed}", f"--items={path}", "--probes", "--config.self_check=4"]
    assert score.main([*flags, f"--run={folder / 'run'}"]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def table(run):
    return probes.effects(analysis.load(run), "pairs")


@pytest.mark.parametrize(
    ("bias", "first"), [("bullets", "sentences as bullets"), ("exclamations", "! for .")]
)
def test_a_planted_bias_is_the_first_edit_and_no_other_is_beyond_the_shams(table, bias, first):
    edits = table.filter(model=bias, kind="edit")
    assert edits["probe"][0] == first and edits["effect"][0] > 0.5
    assert edits.filter("beyond_noise")["probe"].to_list() == [first]
    assert not table.filter(model="plain", kind="edit")["beyond_noise"].any()


def test_edited_replies_are_a_list_of_their_own(run):
    opened, folder = analysis.load(run), RunFolder.open(str(run))
    assert opened.conversation_lists() == ["pairs"] and {*folder.lists} == {"pairs", "pairs.probes"}
    assert {*opened.conversations} == {*opened.probes}
    edited = opened.probe_scores("pairs")
    names = edited["labels"].list.get(0).struct.field("value")
    chosen = edited.filter(names == "emoji behind", row=3, side="chosen")["messages"].item()
    assert chosen[-1]["content"] == f"{ROWS[2]['chosen']} 😊"
    assert {*names} <= {*EDITS, *SHAMS}
    unedited = pl.read_csv(run / "conversations" / "pairs" / "replies.csv")
    assert unedited.height == 2 * len(ROWS) * len(biased.BIASES)


def test_the_numbers_of_a_row_are_those_of_a_slow_loop(run, table):
    opened = analysis.load(run)
    edited, before = opened.probe_scores("pairs"), opened.conversation_scores("pairs")
    reward = {(r["row"], r["side"]): r["bullets"] for r in before.to_dicts()}
    margins = {r: reward[r, "chosen"] - reward[r, "rejected"] for r in range(1, len(ROWS) + 1)}
    unit, changes, flips = np.median(np.abs([*margins.values()])), [], []
    for row in edited.to_dicts():
        if row["labels"][0]["value"] == "sentences as bullets":
            changes.append((row["bullets"] - reward[row["row"], row["side"]]) / unit)
            if row["side"] == "rejected":
                now = reward[row["row"], "chosen"] - row["bullets"]
                flips.append((now > 0) != (margins[row["row"]] > 0))
    found = table.filter(model="bullets", probe="sentences as bullets").row(0, named=True)
    assert (found["n"], found["pairs"]) == (len(changes), len(flips))
    numbers = (found["effect"], found["flips"], found["margin"])
    assert numbers == pytest.approx((np.mean(changes), np.mean(flips), unit), rel=1e-5)
    assert found["ci_low"] < found["effect"] < found["ci_high"]


@pytest.mark.slow
def test_a_run_with_probes_is_verified_and_resumed(command, models, run):
    bullets = models["bullets"].path
    command("verify", f"--run={run}", "--rescore=4", f"--checkpoint={bullets}").fine()
    folder = run / "conversations" / "pairs.probes" / "model=bullets"
    [part] = folder.glob("part-*")
    before = part.read_bytes()
    shutil.rmtree(folder)
    flags = [f"--checkpoint={bullets}", f"--run={run}", f"--items={run.parent / 'pairs.jsonl'}"]
    done = command("score", *flags, "--probes", "--json", "--config.self_check=4").fine()
    assert part.read_bytes() == before
    [found] = json.loads(done.out[-1])["results"]
    assert found["probes"][0]["kind"] == "sham"
    assert [e["probe"] for e in found["probes"] if e["beyond_noise"]] == ["sentences as bullets"]


@pytest.mark.slow
def test_a_limit_on_probes_fails_the_model_that_style_buys(command, models, run, tmp_path, light):
    sides = [f"--before={models['plain'].path}", f"--after={models['bullets'].path}"]
    flags = [f"--run={tmp_path / 'run'}", f"--report={tmp_path / 'report'}", "--prompt=Why?"]
    flags += [f"--items={run.parent / 'pairs.jsonl'}", "--noconfig.noise"]
    flags += ["--config.self_check=4", "--config.limits.ends=5"]
    done = command("diff", *sides, *flags, "--probes", "--config.limits.probe=0.5")
    assert done.code == 1
    checks = {
        c["on"]: c for c in json.loads((tmp_path / "report/verdict.json").read_text())["limits"]
    }
    found = checks["largest effect of an edit"]
    assert (found["ok"], found["limit"], found["value"] > 0.5) == (False, 0.5, True)
    assert found["what"].startswith("sentences as bullets, ")
    assert (tmp_path / "report/tables/probes.csv").exists()


def test_rows_of_several_replies_a_side_have_no_edits(command, models, tmp_path):
    rows = [*ROWS[:2], {**ROWS[2], "rejected": [ROWS[2]["rejected"], "An end!"]}]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = [f"--items={tmp_path}/pairs.jsonl", f"--run={tmp_path / 'run'}", "--probes"]
    assert command("score", f"--checkpoint={models['plain'].path}", *flags).code == 0
    found = analysis.load(tmp_path / "run")
    assert set(found.probe_scores("pairs")["row"]) == {1, 2}
    assert set(found.conversation_scores("pairs")["row"]) == {1, 2, 3}
