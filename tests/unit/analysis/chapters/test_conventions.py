"""Conventions: a finding that a reading changes is found, and noise changes none."""

import numpy as np
import polars as pl
import pytest

import analysis
from analysis.chapters import conventions
from analysis.chapters import findings_by_reading as by_reading
from analysis.measures.readings import readings_of
from analysis.words import lexicons
from engine.errors import AssayError
from engine.runs.convention_index import DEFAULT, Entry, write_index
from engine.runs.storage import path_of
from tests.support import runs
from tests.support.studies import texts

SETTINGS = {"bos": "template", "dtype": "float32"}
NOISE = "noise-step-4"
NAMES = {"bos-none": {"bos": "none"}, "dtype-float16": {"dtype": "float16"}, NOISE: {"step": "4"}}


@pytest.fixture(scope="module")
def words():
    """Words with their valence: what a model's rewards follow here."""
    return lexicons.afinn().filter(pl.col("word").str.contains(r"^[a-z]+$")).head(400)


@pytest.fixture
def readings(tmp_path, rng, words):
    """Reading -> (prompt -> rewards by token), written as a run of readings."""

    def write(rewards, tokens=None):
        tokens, entries = words["word"] if tokens is None else tokens, {}
        for name, by_prompt in rewards.items():
            scores = {("m", prompt): values for prompt, values in by_prompt.items()}
            folder = tmp_path / "run" / "readings" / name
            runs.write_run(folder, {"v": tokens}, {"m": "v"}, scores, size=1000)
            entries[name] = Entry(settings=SETTINGS | NAMES.get(name, {}), noise=name == NOISE)
        write_index(path_of(tmp_path / "run"), {"m": entries})
        return tmp_path / "run"

    return write


@pytest.fixture
def study_of(study_of):
    return lambda folder, **changed: study_of(folder, conventions, top=20, **changed)


@pytest.fixture
def taste(rng, words):
    """Rewards that rise with valence under `best` and fall under `worst`."""
    value = words["value"].to_numpy()
    noise = rng.normal(size=(2, len(value)))
    return {"best": value + noise[0], "worst": -value + noise[1]}


def moved(taste, rng, size):
    return {p: x + size * rng.normal(size=len(x)) for p, x in taste.items()}


def told(study):
    return [finding.text for finding in conventions.findings(study)]


def findings_of(study, reading, kind):
    table = study.tables["conventions_findings"].filter(reading=reading, finding=kind)
    return {row["of"]: row["change"] for row in table.iter_rows(named=True)}


def test_a_reading_that_reverses_the_rewards_reverses_its_findings(readings, study_of, taste, rng):
    reverse = {p: -x for p, x in taste.items()}
    near, nearer = moved(taste, rng, 0.01), moved(taste, rng, 1e-6)
    rewards = {DEFAULT: taste, "bos-none": reverse, "dtype-float16": near, NOISE: nearer}
    study = study_of(readings(rewards))
    slopes = findings_of(study, "bos-none", "slope of sentiment")
    assert set(slopes.values()) == {"reversed"} and len(slopes) == 4
    # r does not change where the rewards under both prompts turn round.
    assert findings_of(study, "bos-none", "r of framing") == {"best · worst": ""}
    assert set(findings_of(study, "dtype-float16", "slope of sentiment").values()) == {""}
    over = study.tables["conventions_summary"]
    row = over.row(by_predicate=pl.col("reading") == "bos-none", named=True)
    assert (row["label"], row["reversed"], row["top_high"]) == ("bos none", 4, 0.0)
    assert row["kendall_low"] == pytest.approx(-1)
    survived, furthest = told(study)
    assert survived.startswith("Of 5 findings that are sure under the default reading, 1 keeps ")
    assert "4 are reversed" in survived
    assert furthest.startswith("Of all readings, bos none changes an order of tokens most, that")
    assert "−1.00" in furthest


def test_noise_alone_changes_nothing(readings, study_of, taste, rng):
    study = study_of(readings({DEFAULT: taste, "bos-none": taste, NOISE: moved(taste, rng, 1e-6)}))
    assert not told(study)
    assert not by_reading.changes(study.tables["conventions_findings"]).height
    shown = texts(conventions, study)
    assert any(text.startswith("No reading changes the sign or the significance") for text in shown)


def row(of="a", change="", model="m", reading="bos-none", noise=False, **cells):
    """A row of `conventions_findings.csv`: a sure finding of value 1 in (0.5, 1.5)."""
    default = {"value": 1.0, "low": 0.5, "high": 1.5, "q": 0.01, "sure": True}
    own = {**default, **{k: v for k, v in cells.items() if k in default}}
    return {
        **{"model": model, "reading": reading, "noise": noise, "finding": "skewness", "of": of},
        **own,
        **{f"default_{name}": value for name, value in default.items()},
        **{"outside": False, "change": change, "as_noise": False},
    }


def findings_frame(*rows):
    return pl.DataFrame(rows, schema=by_reading.FINDINGS.schema, orient="row")


def test_noise_of_another_kind_counts_as_noise_too():
    table = findings_frame(row(change="reversed"), row(change="lost", reading=NOISE, noise=True))
    told = by_reading._with_noise(table.drop("as_noise"))
    assert told["as_noise"].to_list() == [True, True]
    assert not by_reading.changes(told).height


def test_slopes_of_frequency_are_findings_too(readings, study_of, rng, words, write):
    loved = rng.normal(size=400)  # the words that occur often
    often = zip(words["word"], np.exp(loved), strict=True)
    lines = [f"\t{word}\tNoC\t:\t{n}\t9\t.9" for word, n in often]
    taste = {"best": loved + rng.normal(size=400)}
    same, turned = moved(taste, rng, 1e-6), {"best": -taste["best"]}
    folder = readings({DEFAULT: taste, "bos-none": turned, "dtype-float16": same, NOISE: same})
    study = study_of(folder, frequency=write("often.tsv", "\n".join(lines)))
    for reading, change in (("bos-none", "reversed"), ("dtype-float16", "")):
        assert findings_of(study, reading, "slope of frequency") == {"best": change}


class Made(dict):
    """Tables of a study."""

    tables = property(lambda self: self)
    names = property(lambda self: {})
    prompt_names = property(lambda self: {"best": "“best”"})


TOKENS = 1_000


def study_with(table, taus):
    """A study with `conventions_*` of (model, reading, noise) -> τ."""
    own = [(*key, "best", tau, TOKENS, 20, 9) for key, tau in taus.items()]
    names = ["model", "reading", "noise", "prompt", "kendall", "tokens", "ends", "top"]
    agreement = pl.DataFrame(own, names, orient="row")
    over = agreement.select("reading", "noise").unique(maintain_order=True)
    return Made(
        conventions_findings=table,
        conventions_readings=agreement,
        conventions_summary=over.with_columns(label=pl.col("reading")),
    )


TAUS = {("m", NOISE, True): 1.0, ("m", "bos-none", False): 1.0}


def test_a_q_that_barely_crosses_is_no_finding_of_the_page():
    barely = row(change="lost", q=0.051, sure=False)
    assert not told(study_with(findings_frame(barely), TAUS))
    table = findings_frame(barely | {"outside": True})
    (said,) = told(study_with(table, TAUS))
    assert said.endswith("under some, 1 is no longer sure.")


def test_the_largest_change_may_be_of_one_model_of_several():
    taus = {("m", NOISE, True): 0.99, ("n", NOISE, True): 0.1, ("m", "date-empty", False): 0.5}
    taus |= {("m", "bos-none", False): 0.2, ("n", "bos-none", False): 1.0}
    taus |= {("n", "mode-text", False): 0.15}  # beyond m's noise floor, not beyond n's
    [said] = told(study_with(findings_frame(row()), taus))
    assert said == (
        "Of all readings, bos-none changes an order of tokens most, that of m under “best”: "
        "Kendall’s τ with the default is 0.20, and 45% of the highest tokens stay among the "
        "highest. The noise floor of this model has τ of at least 0.9900."
    )


def test_a_reading_as_noisy_as_the_floor_changes_no_order(monkeypatch):
    """It fell below the floor every other time, and was called a change."""

    def said(floor, tau):
        taus = {("m", NOISE, True): floor, ("m", "bos-none", False): tau}
        return told(study_with(findings_frame(row()), taus))

    assert said(0.99, 0.9) and said(1.0, 0.99)
    assert not said(0.99, 0.985)
    assert not said(1.0, 0.996)  # which the page would print as 1.00
    monkeypatch.setattr(conventions, "_VISIBLE", 1.0)
    swap = 4 / TOKENS / (TOKENS - 1)  # of τ, where one pair changes places
    assert not said(1 - 2 * swap, 1 - 10 * swap)
    assert said(1.0, 1 - 10 * swap) and not said(1.0, 1 - 8 * swap)


def test_a_finding_or_an_order_of_one_side_is_absent_or_gained_and_not_kept():
    default = pl.DataFrame(
        [("skewness", of, 1.0, 0.5, 1.5, 0.01, True) for of in "ab"],
        schema=by_reading.ROW,
        orient="row",
    )
    gained = by_reading._beside(default.filter(of="a"), default)
    assert gained["change"].to_list() == ["", "gained"]
    assert gained["default_value"].to_list() == [1.0, None]
    beside = by_reading._beside(default, default.filter(of="a"))
    assert beside["change"].to_list() == ["", "absent"]
    keys = {"model": pl.lit("m"), "reading": pl.lit("bos-none"), "noise": pl.lit(value=False)}
    table = by_reading._with_noise(beside.with_columns(**keys))
    counted = by_reading.survival(table)
    assert (counted["sure"], counted["kept"], counted["absent"]) == (2, 1, 1)


def test_without_a_noise_floor_nothing_is_claimed(readings, study_of, taste):
    reverse = {p: -x for p, x in taste.items()}
    study = study_of(readings({DEFAULT: taste, "bos-none": reverse}))
    assert not told(study)
    said = "No noise floor was computed, so no change is called a finding."
    assert said in texts(conventions, study)


@pytest.mark.parametrize(
    ("change", "said"), [("lost", "5 are no longer sure"), ("gained", "others become sure")]
)
def test_a_significance_that_goes_is_lost_and_one_that_comes_is_gained(
    readings, study_of, taste, rng, change, said
):
    noise = {p: rng.normal(size=len(x)) for p, x in taste.items()}
    default, other = (taste, noise) if change == "lost" else (noise, taste)
    rewards = {DEFAULT: default, "bos-none": other, NOISE: moved(default, rng, 1e-6)}
    study = study_of(readings(rewards))
    assert set(findings_of(study, "bos-none", "slope of sentiment").values()) == {change}
    assert said in told(study)[0]  # of 5: r of framing is lost too


def test_a_reading_that_ranks_against_people_reverses_rho(readings, study_of, taste, rng):
    folder = readings({DEFAULT: taste, "bos-none": taste, NOISE: taste})
    people = {f"item {i}": float(60 - i) for i in range(60)}
    for name, sign in ((DEFAULT, 1), ("bos-none", -1), (NOISE, 1)):
        own = {item: sign * elo + 5 * rng.normal() for item, elo in people.items()}
        runs.add_items(folder / "readings" / name, "elo", "m", "best", own)
        runs.add_humans(folder / "readings" / name, "elo", people)
    study = study_of(folder)
    assert findings_of(study, "bos-none", "ρ with people") == {"elo · best": "reversed"}
    assert findings_of(study, NOISE, "ρ with people") == {"elo · best": ""}
    assert "under some, 1 is reversed" in told(study)[0]


def test_an_estimate_that_stays_sure_may_leave_the_interval(readings, study_of, taste, rng):
    less = {"best": 1, "worst": 0.3}
    weaker = {p: less[p] * x + rng.normal(size=len(x)) for p, x in taste.items()}
    study = study_of(readings({DEFAULT: taste, "bos-none": weaker, NOISE: dict(taste)}))
    of = {"finding": "slope of sentiment", "reading": "bos-none"}
    slopes = study.tables["conventions_findings"].filter(**of)
    survival = by_reading.survival(slopes)
    assert (survival["sure"], survival["kept"], slopes["outside"].sum()) == (4, 4, 2)


def test_tau_overlap_and_jumps_are_those_of_a_slow_count(readings, study_of, taste, rng, words):
    other = moved(taste, rng, 1.0)
    study = study_of(readings({DEFAULT: taste, "bos-none": other, NOISE: dict(taste)}))
    table = study.tables["conventions_readings"]
    row = table.row(
        by_predicate=(pl.col("reading") == "bos-none") & (pl.col("prompt") == "best"), named=True
    )
    x, y = (each["best"].astype(np.float32) for each in (taste, other))
    signs = [np.sign((a - x) * (b - y)).sum() for a, b in zip(x, y, strict=True)]
    assert row["kendall"] == pytest.approx(sum(signs) / (len(x) * (len(x) - 1)), abs=1e-6)
    top = set(np.argsort(-x)[:20]) & set(np.argsort(-y)[:20])
    low = set(np.argsort(x)[:20]) & set(np.argsort(y)[:20])
    assert (row["top"], row["bottom"], row["tokens"]) == (len(top), len(low), len(x))
    jumps = study.tables["conventions_jumps"].filter(prompt="best")
    places = [np.argsort(np.argsort(v)) / (len(v) - 1) for v in (x, y)]
    far = places[1] - places[0]
    assert jumps["token"][0] == words["word"][int(np.argmax(np.abs(far)))]
    assert abs(jumps["jump"][0]) == pytest.approx(np.abs(far).max(), abs=0.01)


def test_a_reading_that_is_not_finished_is_left_out_and_named(readings, study_of, taste, rng):
    folder = readings({DEFAULT: taste, "bos-none": dict(taste), NOISE: moved(taste, rng, 1e-6)})
    runs.edit_manifest(
        folder / "readings/bos-none",
        lambda content: [r.update(complete=False) for r in content["results"].values()],
    )
    study = study_of(folder)
    assert set(study.tables["conventions_readings"]["reading"]) == {NOISE}
    said = texts(conventions, study)
    assert any("bos none could not be compared (not finished" in text for text in said)


def test_a_damaged_part_of_a_reading_is_refused(readings, taste):
    folder = readings({DEFAULT: taste, "bos-none": dict(taste)})
    part = next((folder / "readings/bos-none/scores").rglob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    with pytest.raises(AssayError, match="damaged; remove it and run the command"):
        readings_of(analysis.load(folder))
