"""What a model learned over steps: planted moves, the panel, noise and limits."""

import dataclasses
import itertools

import numpy as np
import polars as pl
import pytest
import scipy.stats

import analysis
from analysis.chapters.steps import headline, over_steps
from analysis.measures import steps
from analysis.measures.changes import RANK_AGREEMENT
from analysis.measures.steps import Step, Steps, panel
from analysis.settings import AnalyzeSettings, Limits, Options
from analysis.study import compute
from engine.errors import AssayError
from tests.support import runs

TOKENS = [
    f" {a}{b}{c}zx" for a in "bdfgklm" for b in "aeiou" for c in ("nder", "lter", "rsh", "mp")
]
N = len(TOKENS)  # 140
OPTIONS = Options(permutations=99, bootstraps=99)


@pytest.fixture
def make(tmp_path):
    """Step -> rewards of `TOKENS`: Steps, each of a run of its own."""

    def build(rewards):
        found, folder = [], tmp_path / str(len(list(tmp_path.iterdir())))
        for step, values in rewards.items():
            scores = {("m", "best"): values}
            run = runs.write_run(folder / str(step), {"v": TOKENS}, {"m": "v"}, scores, size=500)
            found.append(Step(step=step, model="m", run=analysis.load(run), prompt="best"))
        return Steps(steps=found, options=OPTIONS)

    return build


def _drifting(turned=None, at=()):
    """Rewards of five steps that drift a little; the word `turned` leaps at the steps of `at`."""
    rng = np.random.default_rng(0)
    rewards, drawn = rng.normal(size=N), {}
    for step in (100, 200, 300, 400, 500):
        rewards = rewards + rng.normal(size=N) / 20
        if step in at:
            rewards[turned] = np.sort(rewards)[-2] + 1e-3
        drawn[step] = rewards.astype(np.float32)
    return drawn


def test_the_headline_names_the_planted_word_and_the_steps(make):
    low = int(np.argsort(_drifting()[100])[10])
    training = make(_drifting(low, at=(400,)))
    turn = training.turns.row(0, named=True)
    assert (turn["word"], turn["previous"], turn["step"]) == (TOKENS[low].strip(), 300, 400)
    assert turn["before"] < 0.15 < 0.95 < turn["after"]
    assert f"300 and 400 “{TOKENS[low].strip()}” rose" in headline(training)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_headline_says_at_which_step_a_move_began(make, sign):
    """Where the word began to outrun random tokens, and not where it moved the other way."""
    rewards = _drifting()
    order = np.argsort(sign * rewards[100])
    for step, place in zip(rewards, (30, 10, 40, 80, 130), strict=True):
        rewards[step] = rewards[100].copy()
        rewards[step][order[30]] = rewards[100][order[place]] + sign * 1e-3
    training = make(rewards)
    turn = training.turns.row(0, named=True)
    assert (turn["token_id"], turn["previous"], turn["step"]) == (order[30], 400, 500)
    assert training.since(turn) == 200 and "began at step 200" in headline(training)


def test_a_record_names_the_furthest_move_of_its_step(make):
    """Also of a word that moved further at another step."""
    rewards = _drifting()
    at = np.argsort(rewards[100])[[10, 100]]
    for step in (200, 300):
        rewards[step] = rewards[100].copy()
        rewards[step][at[0]] = rewards[100][at[1 if step == 200 else -1]] + (step == 300) * 9
    training = make({step: rewards[step] for step in (100, 200, 300)})
    records = [training.record(i, training.checks(i, Limits(), [])) for i in range(3)]
    moved = [record["moved"] and record["moved"]["word"] for record in records]
    assert moved == [None, TOKENS[at[0]].strip(), TOKENS[at[0]].strip()]


def test_since_a_step_nothing_moved(make):
    rewards = _drifting()
    still = {step: rewards[min(step, 300)] for step in rewards}
    training = make(still)
    assert training.settled == 300
    assert headline(training).endswith("since step 300 no word moved by more than the noise.")


def test_a_move_within_the_noise_of_the_self_check_is_none(make):
    rewards = _drifting()
    training = make({100: rewards[100], 200: rewards[100] + np.float32(1e-3) * np.arange(N)[::-1]})
    assert training.settled == 200
    check = dataclasses.replace(runs.CHECK, max_abs_difference=1.0)
    for step in training.steps:
        for key, result in step.run.results.items():
            step.run.results[key] = dataclasses.replace(result, self_check=check)
    assert Steps(steps=training.steps, options=OPTIONS).settled == 100


def test_tau_is_that_of_scipy_over_the_controls(make, monkeypatch):
    monkeypatch.setattr(steps, "CONTROLS", 50)
    rewards = _drifting()
    training = make(rewards)
    assert len(training.controls) == 50
    controls = [rewards[step][training.controls] for step in rewards]
    last = [scipy.stats.kendalltau(row, controls[-1]).statistic for row in controls[:-1]]
    np.testing.assert_allclose(training.table["tau_last"].to_list()[:-1], last, rtol=1e-9)
    before = [scipy.stats.kendalltau(*pair).statistic for pair in itertools.pairwise(controls)]
    np.testing.assert_allclose(training.table["tau_previous"].to_list()[1:], before, rtol=1e-9)
    assert training.table["tau_previous"][0] is None is training.table["tau_last"][-1]


@pytest.fixture
def small(monkeypatch):
    """A panel of 60 of the 140 tokens, 20 of them controls."""
    sizes = {"PANEL": 60, "CONTROLS": 20, "_ENDS": 5, "_COMMON": 0}
    for name, size in sizes.items():
        monkeypatch.setattr(steps, name, size)


def test_the_panel_has_the_controls_and_the_ends(make, small):
    rewards = _drifting()
    training = make(rewards)
    chosen = panel(training.steps[0], OPTIONS)
    assert len(chosen) == len(set(chosen)) == 60 and chosen == sorted(chosen)
    order = np.argsort(rewards[100])
    assert {*training.controls, *order[:5], *order[-5:]} <= {*chosen}


def test_a_step_over_the_panel_is_compared_on_the_same_controls(make, small):
    rewards = _drifting()
    whole = make(rewards)
    chosen = panel(whole.steps[0], OPTIONS)
    training = Steps(steps=[whole.steps[0], *_only(chosen, whole.steps[1:])], options=OPTIONS)
    assert training.table["scored"].to_list() == ["vocabulary", *["panel"] * 4]
    assert training.table["tau_last"].equals(whole.table["tau_last"])
    np.testing.assert_array_equal(training.percentiles[2][chosen], whole.percentiles[2][chosen])
    assert np.isnan(training.percentiles[2]).sum() == N - 60


def _only(ids, several):
    """The same steps with the rewards of some ids alone."""
    for step in several:
        other = dataclasses.replace(step)
        other.__dict__["scores"] = step.scores.filter(pl.col("token_id").is_in(ids))
        yield other


def test_a_word_that_the_panel_lacks_is_seen_at_the_next_whole_sweep(make, small):
    rewards = _drifting()
    chosen = panel(make({100: rewards[100]}).steps[0], OPTIONS)
    word = next(i for i in np.argsort(rewards[100])[20:] if i not in chosen)
    first, *between, last = make(_drifting(word, at=(300,))).steps
    training = Steps(steps=[first, *_only(chosen, between), last], options=OPTIONS)
    turn = training.turns.row(0, named=True)
    assert (turn["word"], turn["previous"], turn["step"]) == (TOKENS[word].strip(), 100, 500)
    assert turn["after"] - turn["before"] - turn["controls"] == pytest.approx(turn["further"])


def test_steps_of_two_tokenizers_are_refused(make, tmp_path):
    first = make({100: _drifting()[100]})
    (tmp_path / "other").mkdir()
    run = runs.write_run(
        tmp_path / "other" / "200",
        {"v": TOKENS[::-1]},
        {"m": "v"},
        {("m", "best"): np.arange(N)},
        size=500,
    )
    other = Step(step=200, model="m", run=analysis.load(run), prompt="best")
    with pytest.raises(AssayError, match="step 200: other tokens"):
        Steps(steps=[*first.steps, other], options=OPTIONS)


@pytest.mark.parametrize(
    ("asked", "broken"),
    [([], []), (["kendall"], [RANK_AGREEMENT]), (["accuracy"], [])],
)
def test_a_limit_is_checked_where_it_was_set(make, asked, broken):
    rewards = _drifting()
    training = make({100: rewards[100], 200: rewards[200], 300: -rewards[300]})
    found = [training.checks(at, Limits(kendall=0.5), asked) for at in range(3)]
    names = [table.filter(~pl.col("holds"))["check"].to_list() for table in found]
    assert names == [[], [], broken]


def test_a_record_has_the_documented_keys(make):
    training = make(_drifting())
    record = training.record(1, training.checks(1, Limits(ends=20), ["kept"]))
    assert list(record) == [
        *("step", "model", "prompt", "scored", "tokens", "tau_previous", "tau_last", "noise"),
        *("moved", "top", "bottom", "kinds", "accuracy", "margin", "log_loss", "temperature"),
        *("longer", "probes", "appended", "limits"),
    ]
    best = TOKENS[int(np.argmax(_drifting()[200]))].strip()
    assert (record["step"], record["top"][0], record["accuracy"]) == (200, best, None)
    assert [limit["check"] for limit in record["limits"]] == ["top 20 kept", "bottom 20 kept"]


def test_pairs_are_counted_at_every_step(make, tmp_path):
    from engine.lists.files import read_pairs

    path = tmp_path / "own.jsonl"  # beside it is the folder 1
    path.write_text('{"prompt": "a", "chosen": "bbb", "rejected": "c"}\n' * 2)
    rewards, listed = _drifting(), read_pairs(path)
    training = make({100: rewards[100], 200: rewards[200]})
    kept = {100: [1.0, 0.0, 0.0, 2.0], 200: [1.0, 0.0, 2.0, 0.0]}
    for step, values in kept.items():
        runs.add_conversations(tmp_path / "1" / str(step), "own", listed.table, {"m": values})
    found = [
        dataclasses.replace(s, run=analysis.load(tmp_path / "1" / str(s.step)), items="own")
        for s in training.steps
    ]
    table = Steps(steps=found, options=OPTIONS).table
    assert table["accuracy"].to_list() == [0.5, 1.0]
    assert table["margin"].to_list() == [-0.5, 1.5]
    assert table["longer"].to_list() == [0.5, 1.0]
    loss = np.logaddexp(0, [-1, 2]).mean()
    assert table["log_loss"][0] == pytest.approx(loss)


def test_kinds_of_words_have_the_median_and_the_quartiles_of_their_tokens(make):
    training = make(_drifting())
    at = np.arange(0, N, 3)
    planted = {"list": "AFINN", "words": "positive words", "token_id": at, "stem": at}
    training.__dict__["kinds"] = pl.DataFrame(planted)
    found = training.series.filter(of="kinds").select("value", "ci_low", "ci_high").to_numpy()
    quartiles = np.quantile(training.percentiles[:, at], (0.5, 0.25, 0.75), axis=1).T
    np.testing.assert_allclose(found, quartiles)
    training = make(_drifting())
    training.__dict__["kinds"] = pl.DataFrame(planted | {"stem": 0 * at})  # a word in many forms
    assert training.series.filter(of="kinds").is_empty()


def test_chapters_make_every_table_and_leave_out_what_is_absent(make):
    training = make(_drifting())
    chapters = over_steps(training)
    study = compute(training.steps[-1].run, {}, AnalyzeSettings(options=OPTIONS), chapters)
    assert {"steps", "steps_words", "steps_turns", "steps_series"} <= {*study.tables.files}
    empty = {chapter.id for chapter in chapters if chapter.section(study).is_empty}
    assert {"steps-pairs", "steps-edit", "steps-behind"} <= empty
    assert not {"steps", "steps-tau"} & empty
