"""The demo's searches and its comparison, on tiny models; tests/demo has the embedded ones."""

import csv
import re
from pathlib import Path

import pytest

from configs import demo as demo_config
from engine.errors import AssayError
from engine.mesh import build_mesh
from engine.settings import Limits, LogprobSettings
from launch import demo
from launch.common import searching
from tests.support.sweeps import SETTINGS, Run

MLP = "smollm2-135m-d16-rt-mlp"
PROMPT = {"greatest": "What is the greatest thing?"}
SHORT = {"steps": 2, "candidates": 8, "topk": 4, "length": 2}


@pytest.fixture
def models(checkpoint):
    return [checkpoint("one"), checkpoint("two")]


@pytest.fixture
def plan(models, tmp_path):
    run = Run(tmp_path / "run")
    run.sweep(models, PROMPT)
    return demo.Plan(
        run=str(run.folder),
        prompts=PROMPT,
        words="words",
        replies=["love", "war", "no such word", "peace"],
        word_prompts={},
        settings=SETTINGS,
        logprobs=LogprobSettings(
            form="chat", dtype="float32", step_size=16, part_size=100, self_check=8, seed=0
        ),
        mesh=build_mesh(),
    )


@pytest.fixture
def config():
    config = demo_config.get_config()
    for name in demo.SEARCHES:
        config[name].update(SHORT)
    config.certified.update(topk=2, candidates=2)  # " love" and " war" are tokens
    return config


def found(plan):
    return {path.name for path in Path(plan.run).glob("sequences/*/*/*/*.parquet")}


@pytest.mark.slow
def test_it_searches_for_each_for_all_and_among_the_words(models, plan, config, tmp_path):
    searches = {name: searching.settings(config[name], [])[0] for name in demo.SEARCHES}
    new = demo.searched(plan, models, config, searches)
    assert new == 2 * 2 + 2 + 2  # the last: what a search found, and what swaps made of it
    methods = {re.sub("-[0-9a-f]{8}$", "", name.partition("-seed")[0]) for name in found(plan)}
    assert methods == {"gcg", "gcg-ascent", "gcg-minimum"}
    assert demo.searched(plan, models, config, searches) == 0


@pytest.mark.slow
def test_two_models_are_compared(plan, config, tmp_path):
    target, pair = tmp_path / "diff", ("one", "two")
    limits = config.limits.to_dict()
    demo.compare(pair, plan, Limits(**limits), target)
    with (target / "tables/changes.csv").open() as file:
        assert {row["prompt"] for row in csv.DictReader(file)} == {*PROMPT}


@pytest.mark.parametrize("compared", ["", MLP, "a,b", f"{MLP},{MLP}"])
def test_what_cannot_be_compared_is_one_line(compared):
    with pytest.raises(AssayError, match=r"compared=.*; allowed: two different ones of smollm2"):
        demo.pair_of(compared)
