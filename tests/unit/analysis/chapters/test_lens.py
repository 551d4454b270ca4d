"""The reward lens on runs whose layers are known: what is planted is found, and nothing else."""

import numpy as np
import polars as pl
import pytest
import scipy.stats

import analysis
from analysis.chapters import lens
from analysis.measures.lens import by_layer as by_every_layer
from analysis.statistics.inference import clustered_share
from tests.support import runs
from tests.support.studies import cited, told

SIZE, LAYERS = 1_500, 8
PROMPTS = ("greatest", "best", "worst")
MODELS = ("a", "b")


def lens_run(folder, rng, *, appears=None, parts=None):
    """Two models under three prompts.

    Layers hold noise that the prompts share; from `appears` on they hold the final order. From
    `parts` on, "worst" turns the order round.
    """
    tokens = [f"t{i}" for i in range(SIZE)]
    earlier, scores = {}, {}
    for model in MODELS:
        value, common = rng.normal(size=SIZE), rng.normal(size=(LAYERS, SIZE))
        for prompt in PROMPTS:
            layers = []
            for layer in range(1, LAYERS + 1):
                x = common[layer - 1].copy()
                if layer == LAYERS or (appears and layer >= appears):
                    x = value.copy()
                if parts and layer >= parts and prompt == "worst":
                    x = -x
                layers.append(x + 0.3 * rng.normal(size=SIZE))
            scores[model, prompt], earlier[model, prompt] = layers[-1], layers[:-1]
    run = runs.write_run(folder, {"v": tokens}, dict.fromkeys(MODELS, "v"), scores, size=SIZE)
    for cell, layers in earlier.items():
        runs.add_lens(run, *cell, layers)
    return run


@pytest.fixture(scope="module")
def study_of(study_of):
    return lambda run: study_of(run, lens)


@pytest.fixture(scope="module")
def appearing(tmp_path_factory, study_of):
    """The study of a run whose order appears after layer 6."""
    folder = tmp_path_factory.mktemp("lens") / "run"
    return study_of(lens_run(folder, np.random.default_rng(5), appears=6))


@pytest.fixture(scope="module")
def parting(tmp_path_factory, study_of):
    """The study of a run whose order appears after layer 3 and parts by framing after 7."""
    folder = tmp_path_factory.mktemp("lens") / "run"
    return study_of(lens_run(folder, np.random.default_rng(5), appears=3, parts=7))


def test_tau_with_the_last_layer_is_scipys(appearing):
    table = appearing.tables["lens"]
    stored = appearing.run.layers("b", "best").to_numpy()[:, 1:]
    own = table.filter(model="b", prompt="best", of="all tokens")
    expected = [scipy.stats.kendalltau(x, stored[:, -1]).statistic for x in stored.T]
    np.testing.assert_allclose(own["kendall"], expected, atol=1e-9)
    assert own["layer"].to_list() == list(range(1, LAYERS + 1))
    assert (own["ci_low"] <= own["kendall"]).all() and (own["kendall"] <= own["ci_high"]).all()
    assert table["model"].unique(maintain_order=True).to_list() == list(MODELS)
    assert table["prompt"].unique(maintain_order=True).to_list() == list(PROMPTS)


def test_the_tokens_of_an_end_are_counted_by_hand_and_the_last_layer_has_all(appearing):
    table = appearing.tables["lens"]
    stored = appearing.run.layers("a", "worst").to_numpy()[:, 1:]
    for end, sign in (("highest", -1), ("lowest", 1)):
        final = np.argsort(sign * stored[:, -1], kind="stable")[:15]
        own = table.filter(model="a", prompt="worst", of=end)
        for row, x in zip(own.iter_rows(named=True), stored.T, strict=True):
            now = np.argsort(sign * x, kind="stable")[:15]
            assert row["kept"] == pytest.approx(np.isin(final, now).mean())
            inside = scipy.stats.kendalltau(x[final], stored[final, -1]).statistic
            assert row["kendall"] == pytest.approx(inside, abs=1e-9)
    last = appearing.tables["lens"].filter(of="highest", layer=LAYERS)
    assert last.select("kept", "kept_low", "kept_high").unique().rows() == [(1.0, 1.0, 1.0)]


def test_the_layer_at_which_the_order_appears_is_found_and_said(appearing):
    layers = appearing.tables["lens_layers"].filter(what="order")
    assert layers.select("layer", "layer_low", "layer_high").unique().rows() == [(6, 6, 6)]
    assert set(appearing.tables["lens_layers"]["what"]) == {"order", "highest", "lowest"}
    (text,) = told(lens, appearing)
    assert cited(text) == ["6", "75"]  # rankings, % of the layers


def test_intervals_hold_for_all_rankings_together(appearing):
    pairs, cell = (("best", "worst"), ("greatest", "best")), {"of": "all tokens", "layer": 2}
    alone, together = (
        by_every_layer(appearing.run, models, *pairs)[0].filter(model="a", prompt="best", **cell)
        for models in (["a"], ["a", "b"])
    )
    assert together["kendall"].item() == alone["kendall"].item()
    # 7 layers of 3 and of 6 rankings: quantiles of t for .05 in so many tests.
    stems = together["stems"].item()
    narrow, wide = (scipy.stats.t.ppf(1 - 0.025 / n, stems - 1) for n in (21, 42))
    widths = [(row["ci_high"] - row["ci_low"]).item() for row in (alone, together)]
    assert widths[1] / widths[0] == pytest.approx(wide / narrow, rel=0.01)


@pytest.mark.parametrize("found", [0, 1, 3, 10])
def test_shares_of_none_and_of_all_tokens_have_an_interval(found):
    """Wilson's; where tokens come in two forms, all alike, stems are draws, less 1 in the error."""
    hit, stems = np.repeat(np.arange(10) < found, 2), np.repeat(np.arange(10), 2)
    share, low, high, _ = clustered_share(hit, stems, 5)
    t = scipy.stats.t.ppf(1 - 0.025 / 5, 9)
    telling = min(found, 10 - found)
    draws = (telling + 0.5) / (telling / 9 + 0.5 / 10)
    ends = sorted(np.roots([1 + t**2 / draws, -2 * share - t**2 / draws, share**2]).real)
    np.testing.assert_allclose((share, low, high), (found / 10, *ends), atol=1e-7)
    assert high - low > 0.3


def test_the_layer_at_which_two_prompts_part_is_found_and_said(parting):
    (row,) = parting.tables["lens_layers"].filter(model="a", what="frames").iter_rows(named=True)
    assert (row["prompt"], row["against"]) == ("best", "worst")
    assert (row["layer"], row["layer_low"], row["layer_high"]) == (7, 7, 7)
    frames = parting.tables["lens_framing"].filter(model="a", prompt_a="best")
    assert frames.filter(pl.col("layer") < 7)["difference"].abs().max() < 0.05
    assert frames["difference"][-1] == pytest.approx(2 * frames["reference"][-1], abs=0.1)
    texts = told(lens, parting)
    assert len(texts) == 2 and cited(texts[1])[-1] == "88"  # % of the layers


def test_of_layers_that_hold_nothing_nothing_is_said(tmp_path, study_of):
    for seed in range(2):
        run = lens_run(tmp_path / str(seed), np.random.default_rng(seed))
        study = study_of(run)
        assert told(lens, study) == []
        assert cited(lens.ANALYSIS.section(study).answer) == ["6"]  # rankings


def test_one_prompt_alone_has_its_order_and_no_frames(make_run, rng, study_of):
    values = rng.normal(size=(3, 60))
    run = make_run({"v": [f"t{i}" for i in range(60)]}, {"m": "v"}, {("m", "best"): values[2]})
    runs.add_lens(run, "m", "best", values[:2])
    study = study_of(run)
    assert study.tables["lens"].height == 3 * 3
    assert cited(study.tables.reason("lens_framing")) == ["best", "worst"]
    drawn = analysis.blocks.pictures(lens.ANALYSIS.section(study).blocks)
    assert [picture.stem for picture in drawn] == ["lens", "lens_ends"]
