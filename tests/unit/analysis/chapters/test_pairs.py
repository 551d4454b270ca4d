"""Pairs that people judged: planted accuracies, and what the page says of them."""

import dataclasses
import itertools
import re
from html import escape

import numpy as np
import polars as pl
import pytest

import analysis
from analysis import blocks
from analysis.chapters import calibration, pair_features
from analysis.chapters import pairs as chapter
from analysis.measures import pairs
from analysis.report import facts, write_report
from analysis.sentences import bounds
from engine.lists.rows import RowReader
from engine.runs import schema
from engine.runs.result import RunError
from tests.support import runs
from tests.support.studies import cited, told

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def judged(make_run):
    """name, pairs and margins -> the run in which a model `m` gave these margins."""

    def make(rows, margins):
        scores = {("m", "greatest"): [0.0, 1.0]}
        run = make_run({"v": ["a", "b"]}, {"m": "v"}, scores, name=f"run-{len(rows)}")
        rewards = [value for margin in margins for value in (1.0 + margin, 1.0)]
        runs.add_conversations(run, "own", runs.list_of(rows), {"m": rewards})
        return analysis.load(run)

    return make


def test_accuracy_is_counted_by_label_and_a_tie_is_wrong(judged):
    kinds = ["good", "good", "bad", None, None]
    rows = [(f"p{i}", "x", "y", {"kind": kind, "n": str(i)}) for i, kind in enumerate(kinds)]
    run = judged(rows, [1.0, -2.0, 0.0, 0.5, 0.25])
    table = pairs.accuracies("own", pairs.pairs(pairs.replies(run, "own")))
    found = table.select("label", "group", "n", "accuracy", "ties").rows()
    whole = (pairs.ALL, "", 5, 0.6, 1)
    kinds = [("bad", 1, 0.0, 1), ("good", 2, 0.5, 0), ("(none)", 2, 1.0, 0)]
    assert found[:4] == [whole, *(("kind", *kind) for kind in kinds)]
    assert table["margin"][0] == pytest.approx(-0.05)


def test_the_worst_pairs_are_coloured_by_the_reward_so_far(judged, study_of):
    run = judged([("p", "so good", "bad", {})] * 2, [-1.0, 1.0])
    texts, sides = ["so", "so good", "bad"], ["chosen", "chosen", "rejected"]
    table = runs.list_of([("p", text, "", {}) for text in texts]).filter(side="chosen")
    own = {"side": pl.Series(sides), "row": pl.lit(1, pl.UInt32)}
    table = table.with_columns(conversation_id=pl.int_range(3, dtype=pl.UInt32), **own)
    runs.add_conversations(run.folders[0], schema.running_list("own", "m"), table, {"m": [2, 0, 1]})
    section = chapter.ANALYSIS.section(study_of(analysis.load(run.folders[0]), chapter))
    folded = [b for b in section.blocks if isinstance(b, blocks.Folded)]
    read, plain = ([b for b in part.blocks if isinstance(b, blocks.Reading)] for part in folded)
    assert [(reading.label, reading.pieces) for reading in read] == [
        ("Chosen", [("so", 2.0), (" good", 0.0)]),
        ("Rejected", [("bad", 1.0)]),
    ]
    assert [read[0].strength(reward) for _, reward in read[0].pieces] == [1.0, 0.0]
    assert not plain


def test_sections_are_weighted_as_rewardbench_weighs_its_subsets(judged, rng):
    """Against the loop of its scorer; subsets that a file lacks count for nothing."""
    subsets = [subset for weights in pairs.REWARDBENCH.values() for subset in weights]
    of = [s for s in subsets if s != "hep-go" for _ in range(rng.integers(1, 6))]
    margins = rng.normal(size=len(of))
    rows = [(f"p{i}", "x", "y", {"subset": subset}) for i, subset in enumerate(of)]
    run = judged(rows, margins)
    table = pairs.accuracies("own", pairs.pairs(pairs.replies(run, "own")))
    found = dict(table.filter(label=pairs.SECTION).select("group", "accuracy").iter_rows())
    expected = {}
    for section, weights in pairs.REWARDBENCH.items():
        total, count = 0.0, 0
        for subset, weight in weights.items():
            right = [m > 0 for m, own in zip(margins, of, strict=True) if own == subset]
            if right:
                total, count = total + weight * np.mean(right), count + weight
        expected[section] = total / count
    expected[pairs.MEAN] = np.mean(list(expected.values()))
    assert found == pytest.approx(expected)
    others = judged([("p", "x", "y", {"subset": "chat"})], [1.0])
    table = pairs.accuracies("own", pairs.pairs(pairs.replies(others, "own")))
    assert pairs.SECTION not in table["label"]


def several(rows):
    """Prompt, chosen replies, rejected ones, id and subset of each row -> the list."""
    columns = ("prompt", "chosen", "rejected", "id", "subset")
    return RowReader(columns).table([dict(zip(columns, row, strict=True)) for row in rows])


@pytest.fixture
def best_of(make_run, rng):
    """The run of a file like RewardBench 2's; its rows, and the rewards of each row's replies."""
    rows, rewards = [], []
    for subset in sorted(pairs._SECOND - {"Ties"}):
        for number in range(8):
            rows.append((f"{subset} {number}", ["a"], ["b", "c", "d"], str(number), subset))
            rewards.append([*rng.integers(0, 3, 4).astype(float)])
    for number in range(9):
        rows.append((f"r{number}", ["a"], ["b", "c"], f"ref:{number}", "Ties"))
        rows.append((f"t{number}", ["a", "b", "c"], ["d", "e"], f"tied:{number}", "Ties"))
        rewards += [[*rng.normal([1, 0, 0])], [*rng.normal([2, 2, 2, 0, 0])]]
    rewards[-1] = [1.0, 1.0, 1.0, 0.0, 0.0]  # no difference among the right ones
    run = make_run({"v": ["a"]}, {"m": "v"}, {("m", "best"): [0.0]})
    runs.add_conversations(run, "own", several(rows), {"m": [*itertools.chain(*rewards)]})
    return analysis.load(run), rows, [np.float32(own).astype(float) for own in rewards]


def test_rewardbench_2_is_counted_as_by_its_own_code(best_of):
    """Against a loop after `reroll_and_score_dataset` and `process_single_model`."""
    run, rows, rewards = best_of
    table = pairs.accuracies("own", pairs.pairs(pairs.replies(run, "own")))
    found = dict(table.filter(label=pairs.SECOND).select("group", "accuracy").iter_rows())
    expected, ties = {}, {"ref": {}, "tied": {}}
    for (_, chosen, _, id_, subset), values in zip(rows, rewards, strict=True):
        if subset != "Ties":
            right = 1 / list(values).count(max(values)) if values[0] == max(values) else 0.0
            expected.setdefault(subset, []).append(right)
        else:
            kind, number = id_.split(":")
            good, bad = values[: len(chosen)], values[len(chosen) :]
            ties[kind][number] = (min(good) - max(bad), max(good) - min(good))
    assert {right for scores in expected.values() for right in scores} > {0.0, 0.5, 1.0}
    expected = {subset: np.mean(scores) for subset, scores in expected.items()}
    score = sum(0.3 * np.mean([m > 0 for m, _ in ties[kind].values()]) for kind in ties)
    for number, (margin, spread) in ties["tied"].items():
        least = min(margin, ties["ref"][number][0])
        score += (0.2 * (margin > spread) + 0.2 * (least > spread)) / 9
        score += 0.01 * (np.tanh(least / spread - 1) if spread else np.sign(least)) / 9
    expected["Ties"] = score
    expected[pairs.SECOND_MEAN] = np.mean([*expected.values()])
    assert found == pytest.approx(expected)


def test_a_row_of_several_replies_is_its_worst_pair_or_each_pair_of_its_chosen_one(best_of):
    run, rows, rewards = best_of
    scored = pairs.replies(run, "own")
    worst = [
        min(r[: len(c)]) - max(r[len(c) :]) for (_, c, *_), r in zip(rows, rewards, strict=True)
    ]
    assert pairs.pairs(scored)["margin"].to_list() == worst
    assert scored.filter(side="chosen").unique("row").sort("row")["margin"].to_list() == worst
    margins = [
        r[0] - rejected
        for (_, c, *_), r in zip(rows, rewards, strict=True)
        if len(c) == 1
        for rejected in r[1:]
    ]
    assert pairs.pairs(scored, all_rejected=True)["margin"].to_list() == margins


def test_two_models_on_the_same_pairs_are_counted_pair_by_pair(make_run, rng):
    run = make_run({"v": ["a"]}, {"m": "v", "n": "v"}, {(m, "greatest"): [0.0] for m in "mn"})
    margins = rng.normal(1.2, size=150)
    rewards = {m: np.stack([x, 0 * x], 1).ravel() for m, x in (("m", margins), ("n", margins - 1))}
    rows = runs.list_of([(f"p{i // 3}", "x", "y", {}) for i in range(150)])
    runs.add_conversations(run, "own", rows, rewards)
    judged = pairs.pairs(pairs.replies(analysis.load(run), "own"))
    (row,) = pairs.between("own", judged).to_dicts()
    alone = int(((margins > 0) & (margins <= 1)).sum())
    assert (row["only_a"], row["only_b"], row["difference"]) == (alone, 0, alone / 150)
    assert row["alike"] == 1 - alone / 150
    ends = bounds(100 * row["ci_low"], 100 * row["ci_high"], 1)
    printed = "\n".join(facts._lines("own", judged, "m"))
    assert f"m less n: +{alone / 150:.1%} of 150 pairs right (95 % {ends})" in printed
    assert f"; {row['alike']:.1%} judged alike" in printed


def test_the_best_model_that_is_surely_not_at_chance_is_named_and_others_are_counted(
    make_run, study_of, rng
):
    models = dict(zip("mno", (1.2, 1.0, 0.0), strict=True))
    run = make_run({"v": ["a"]}, dict.fromkeys(models, "v"), {(m, "best"): [0.0] for m in models})
    rows = runs.list_of([(f"p{i}", "x", "y", {}) for i in range(99)])
    margins = {m: rng.permuted(np.linspace(x - 1.5, x + 1.5, 99)) for m, x in models.items()}
    rewards = {m: np.stack([x, 0 * x], 1).ravel() for m, x in margins.items()}
    runs.add_conversations(run, "own", rows, rewards)
    (text,) = told(chapter, study_of(run, chapter))
    assert re.search(r"“own”, m ", text)
    assert [*cited(text)[:2], *cited(text)[-2:]] == ["99", "own", "2", "3"]


def test_length_says_how_often_the_longer_reply_is_preferred(judged):
    rows = [("p", "long", "s", {}), ("q", "s", "long", {}), ("r", "a", "b", {})]
    run = judged(rows, [1.0, 1.0, 1.0])
    scored = pairs.replies(run, "own")
    (row,) = pairs.lengths("own", scored, pairs.pairs(scored)).to_dicts()
    assert (row["n"], row["longer_higher"], row["longer_chosen"]) == (6, 0.5, 0.5)


def test_one_name_for_two_files_is_refused(judged):
    first = judged([("p", "x", "y", {})], [1.0])
    second = judged([("p", "x", "z", {})] * 2, [1.0] * 2)
    [other] = second.conversations.values()
    lists = {**first.conversations, ("own", "n"): other}
    joined = dataclasses.replace(first, conversations=lists, _runs={**first._runs, **second._runs})
    with pytest.raises(RunError, match=r"'own'"):
        joined.conversation_scores("own")


def test_the_page_shows_the_worst_pairs_and_no_html_of_theirs(judged, settings, tmp_path, light):
    rows = [(f"{EVIL}{i}", EVIL, "y", {EVIL: str(i % 2)}) for i in range(30)]
    run = judged(rows, [-5.0, *[1.0] * 29])
    result = run.conversations["own", "m"]
    place = result.run / schema.rendered_path(result.path)
    place.write_text(f"user {EVIL}⟦.⟧", encoding="utf-8")
    report = tmp_path / "report"
    chapters = [module.ANALYSIS for module in (chapter, pair_features, calibration)]
    written = write_report(run, report, {}, settings, chapters=chapters)
    page = written.read_text(encoding="utf-8")
    assert EVIL not in page
    assert f"user {escape(EVIL)}⟦.⟧" in page
    assert re.search(r"96\.7\s% \(95\s% 8\d\.\d to 99\.\d\)", page)
    worst = pl.read_csv(report / "tables" / "pairs_worst.csv")
    assert worst.select("rank", "row", "id", "margin").row(0) == (1, 1, "id-1", -5.0)
    assert worst["question"][0] == f"{EVIL}0"
