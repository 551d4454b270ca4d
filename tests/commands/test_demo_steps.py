"""The demo's searches and its comparison, on tiny models; tests/demo has the embedded ones."""

import csv

import pytest

from configs import demo as demo_config
from demo import packages
from engine.errors import AssayError
from engine.mesh import build_mesh
from engine.settings import Limits
from launch import demo
from launch.common import searching
from tests.support.sweeps import SETTINGS, Run

MLP = "smollm2-135m-d16-rt-mlp"
PROMPT = {"greatest": "What is the greatest thing?"}
SHORT = {"steps": 2, "candidates": 8, "topk": 4, "length": 2}
pytestmark = pytest.mark.slow


@pytest.fixture
def work(checkpoint, tmp_path):
    """A demo of two tiny models whose vocabulary was scored."""
    config = demo_config.get_config()
    for name in demo.SEARCHES:
        config[name].update(SHORT)
    config.search.direction = "max"
    config.certified.update(topk=2, candidates=2)  # " love" and " war" are tokens
    models = [checkpoint("one"), checkpoint("two")]
    Run(tmp_path / "run").sweep(models, PROMPT)
    return demo.Demo(
        root=tmp_path,
        slugs=("one", "two"),
        prompts=PROMPT,
        items=("words", ["love", "war", "no such word", "peace"]),
        word_prompts={},
        settings=SETTINGS,
        word_settings=SETTINGS,
        logprobs=None,
        mesh=build_mesh(),
        searches={name: searching.settings(config[name], [])[0] for name in demo.SEARCHES},
        pair=("one", "two"),
        limits=Limits(**config.limits.to_dict()),
        config=config,
        models=models,
    )


def test_it_searches_for_each_and_among_the_words(work, tmp_path):
    def search():
        work.new = 0
        for step in (demo.search, demo.search_more):
            step(work, lambda line: None)
        return work.new

    assert search() == 2 + 1
    names = {path.parent.name for path in (tmp_path / "run").glob("sequences/*/*/*/*/*.parquet")}
    assert {name.partition("-seed")[0] for name in names} == {"gcg"}
    assert search() == 0


def test_two_models_are_compared(work, tmp_path):
    lines = []
    demo.compare(work, lines.append)
    assert lines == [f"comparing one with two into {tmp_path}/diff"]
    with (tmp_path / "diff/tables/changes.csv").open() as file:
        assert {row["prompt"] for row in csv.DictReader(file)} == {*PROMPT}


def test_packages_that_the_demo_lacks_are_one_line(tmp_path, monkeypatch, capfd):
    monkeypatch.setitem(packages.PACKAGES, "no_such_module", "no-such-package==0.1")
    monkeypatch.setattr(packages, "installer", lambda: ["false"])
    assert demo.main([f"--config.root={tmp_path}"]) == 2
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("demo: ") and "pip install --no-deps no-such-package==0.1" in last


@pytest.mark.parametrize("compared", [MLP, f"{MLP},{MLP}"])
def test_what_cannot_be_compared_is_one_line(compared):
    with pytest.raises(AssayError, match=r"compared=.*; allowed: two different ones of smollm2"):
        demo.pair_of(compared)
