"""What `launch.reproduction.studies` takes from a run, without a model: rewards are made up."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from analysis.published import data
from configs import known_models, reproduce
from launch.reproduction import studies
from tests.support import runs

NEAR = known_models.KNOWN["grm-gemma2-2b-rewardmodel-ft"]  # rounded
EXACT = known_models.KNOWN["qrm-gemma-2-27b"]
WORDS = ["love", "hate", "good", "bad", "great", "war", "happy", "sad", "hope", "fear"]
REWARDS = [1.0001, -2.0003, 1.5, -1.503, 2.25, -0.5, 1.75, -1.0, 0.5, -0.75]
LIST = "items"


@pytest.fixture
def root(tmp_path):
    """Runs of the paper's conventions and of ours with the same rewards."""
    for reading in ("paper", "ours"):
        slugs = (NEAR.slug, EXACT.slug)
        scores = {(slug, "greatest"): REWARDS for slug in slugs}
        folder = tmp_path / "runs" / reading
        runs.write_run(folder, {"v": WORDS}, dict.fromkeys(slugs, "v"), scores)
        for name, step in (("aaa", -1), (LIST, 1)):
            listed = dict(zip(WORDS, REWARDS[::step], strict=True))
            runs.add_items(folder, name, NEAR.slug, "elo_greatest", listed)
            people = zip(WORDS, range(1700, 1700 - len(WORDS), -1), strict=True)
            runs.add_humans(folder, name, dict(people))
    (tmp_path / "bnc.txt").write_text(
        "".join(f"\t{word}\tNoC\t:\t{9 * i + 5}\t100\t0.9\n" for i, word in enumerate(WORDS))
    )
    return tmp_path


def call_on(root, frequency="", items=LIST):
    config = reproduce.get_config()
    config.permutations = config.bootstraps = 99
    config.frequency = frequency
    elo = SimpleNamespace(name=items)
    return SimpleNamespace(run=lambda reading: str(root / "runs" / reading), config=config, elo=elo)


def test_rewards_are_rounded_in_the_papers_conventions_alone(root):
    call = call_on(root)
    paper, ours = (studies.run_of(call, name) for name in ("paper", "ours"))
    exact = np.float32(REWARDS).tolist()
    assert paper.rewards(NEAR.slug, "greatest")[1].tolist()[:4] == [1.0, -2.0, 1.5, -1.5]
    assert paper.rewards(EXACT.slug, "greatest")[1].tolist() == exact
    assert ours.rewards(NEAR.slug, "greatest")[1].tolist() == exact
    assert studies.run_of(call, "noise") is None


def published(**wanted):
    """The published rows of one exhibit, with values that no run meets."""
    papers = data.read()
    numbers = papers.numbers.filter(**wanted).with_columns(value=pl.lit("77"))
    return data.Published(models=papers.models, numbers=numbers, tokens=papers.tokens.clear())


def differing(call, exhibit, spec=NEAR):
    values = published(exhibit=exhibit)
    return studies.differing(call, spec, values, noise=False)


def test_slopes_that_rest_on_wordfreq_are_no_reason_to_try_readings(root):
    """Nor are values over the vocabulary of another number of models."""
    assert differing(call_on(root), "figure_3d") == []
    assert differing(call_on(root, str(root / "bnc.txt")), "figure_3d") == ["greatest"]
    assert differing(call_on(root), "figure_3c") == ["greatest"]
    assert differing(call_on(root), "table_3") == []
