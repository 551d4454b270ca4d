"""What the paper rounded: rewards to bfloat16, and the agreement behind Figure 2C."""

import numpy as np
import polars as pl
import pytest

import analysis
from analysis.published import comparison, data, rounding, verdicts
from analysis.published.comparison import Readings
from analysis.published.run_values import RunValues
from tests.support import runs

PAPERS = data.read()
NICKNAMES = PAPERS.models["nickname"].to_list()
FIGURE_2C = data.Published(
    models=PAPERS.models.clear(),
    numbers=PAPERS.numbers.filter(exhibit="figure_2c"),
    tokens=PAPERS.tokens.clear(),
)
ABOUT = PAPERS.models.select(*runs.KEYS[1:], model=pl.col("nickname"))


def printed():
    """The matrix of Figure 2A, from the published values."""
    rows = PAPERS.numbers.filter(exhibit="figure_2a").iter_rows(named=True)
    values = np.eye(len(NICKNAMES))
    for row in rows:
        i, j = (NICKNAMES.index(row[key]) for key in ("model", "other"))
        values[i, j] = values[j, i] = float(row["value"])
    return values


def table(values):
    return pl.DataFrame({"model": NICKNAMES, **dict(zip(NICKNAMES, values.T, strict=True))})


def compared(rsa):
    """Figure 2C of a run with all ten models."""
    numbers = {"mean": 0.0, "variance": 0.0, "skewness": 0.0}
    moments = pl.DataFrame({"model": NICKNAMES, "prompt": "greatest", **numbers})
    found = {("moments",): moments, ("rsa_rounded", "greatest"): rsa}
    computed = RunValues(name="", tables=found, reasons={}, slugs={n: n for n in NICKNAMES})
    every = comparison.compare(FIGURE_2C, Readings(paper=computed, ours=computed))
    return next(one for one in every if one.exhibit.id == "figure_2c")


def drawn(rng):
    """Agreement that rounds to the printed one."""
    noise = np.triu(rng.uniform(-0.00499, 0.00499, (10, 10)), 1)
    return table(printed() + noise + noise.T)


def test_agreement_that_rounds_to_the_printed_one_gives_the_published_figure_2c(monkeypatch, rng):
    found = compared(rounding.rounded_rsa(drawn(rng), ABOUT))
    assert found.counts == {"same": 9, "within noise": 0, "differs": 0, "not run": 0}
    monkeypatch.setattr(rounding, "_DRAWS", 1)  # of the p-values alone
    for _ in range(12):
        found = compared(rounding.rounded_rsa(drawn(rng), ABOUT))
        kinds = {x.quantity: x.verdict.kind for x in found.lines if "p (M" not in x.quantity}
        assert set(kinds.values()) == {verdicts.SAME}


def test_other_agreement_gives_another_figure_2c():
    """Of 45 pairs one is changed by a step of its second decimal, or all are of other models."""
    values = printed()
    values[0, 2] = values[2, 0] = values[0, 2] + 0.01
    found = compared(rounding.rounded_rsa(table(values), ABOUT))
    assert found.counts["differs"] >= 2
    shuffled = printed()[::-1, ::-1]
    assert compared(rounding.rounded_rsa(table(shuffled), ABOUT)).counts["differs"] >= 6


SLUGS = {"gem": "R-Gem-2B", "sky": "S-Gem-27B", "qrm": "N-Gem-27B"}
REWARDS = [1.0, 1.0001, 1.0151, -3.004]
IN_BFLOAT16, IN_FLOAT16 = [1.0, 1.0, 1.015625, -3.0], [1.0, 1.0, 1.0146484375, -3.00390625]


@pytest.fixture
def pair(tmp_path):
    """A run of three models with the same rewards, of tokens and of items, and the same rounded."""
    scores = {(model, "greatest"): REWARDS for model in SLUGS}
    vocabularies = {"v": ["a", "b", "c", "d"]}
    folder = runs.write_run(tmp_path / "run", vocabularies, dict.fromkeys(SLUGS, "v"), scores)
    for model in SLUGS:
        items = dict(zip("abcd", REWARDS, strict=True))
        runs.add_items(folder, "words", model, "greatest", items)
    run = analysis.load(folder)
    return run, rounding.rounded(run, SLUGS)


def test_rewards_are_rounded_wherever_they_are_read_and_tie_as_the_papers_do(pair):
    _, run = pair
    exact = np.float32(REWARDS).tolist()
    items = run.item_scores("words", "greatest")
    wanted = {"gem": (IN_BFLOAT16, IN_FLOAT16), "sky": (IN_BFLOAT16,) * 2, "qrm": (exact,) * 2}
    for model, (tokens, listed) in wanted.items():
        assert run.rewards(model, "greatest")[1].tolist() == tokens
        assert items[model].to_list() == listed
    assert items.schema["gem"] == pl.Float32
    assert run.item_scores("words", "greatest", ["qrm"]).columns == ["item_id", "item", "qrm"]
    taus = []
    for run in pair:
        shared = analysis.shared_rewards(run, analysis.shared_vocabulary(run), "greatest")
        taus.append(analysis.kendall_matrix(shared).filter(model="sky")["qrm"].item())
    assert taus == [1.0, pytest.approx(5 / np.sqrt(5 * 6))]


def released(shared):
    """Nickname -> its released rewards of items."""
    path = shared / "reference" / "elo_greatest_single_thing.csv"
    frame = pl.read_csv(path, infer_schema_length=None)
    nicknames = dict(PAPERS.models.select("name", "nickname").iter_rows())
    return {
        nicknames[column.rpartition("/")[2]]: frame[column].cast(pl.Float32).to_numpy()
        for column in frame.columns[4:]
    }


@pytest.mark.needs_shared
def test_released_rewards_of_items_are_of_the_dtypes_that_they_are_rounded_to(shared):
    """Rounded to their own dtype they stay as they are; the other dtypes are too coarse."""
    coarser = {"bfloat16": (), "float16": ("bfloat16",), "": ("bfloat16", "float16")}
    found = released(shared)
    assert set(found) == set(NICKNAMES)
    for nickname, rewards in found.items():
        dtype = rounding.ITEMS.get(nickname, "")
        assert (rounding.to_dtype(rewards, dtype) == rewards).all()
        for other in coarser[dtype]:
            assert (rounding.to_dtype(rewards, other) == rewards).mean() < 0.2


def test_printed_rewards_of_tokens_are_of_bfloat16():
    scored = PAPERS.tokens.filter(pl.col("score").is_not_null())
    assert scored["model"].unique().is_in(list(rounding.TOKENS)).all()
    rewards = scored["score"].cast(pl.Float32).to_numpy()
    assert (rounding.to_dtype(rewards, "bfloat16") == rewards).all()
