"""The demo's search, on tiny models; tests/demo has the embedded ones."""

import sys

import pytest
from etils import epath

import demo as embedded
from launch import demo
from launch.common import scoring
from tests.support.sweeps import Run

PROMPT = "What is the greatest thing?"
SHORT = {"steps": 2, "candidates": 8, "topk": 4, "length": 2, "direction": "max"}
pytestmark = pytest.mark.slow


def test_it_searches_the_first_models_and_keeps_what_is_found(checkpoint, tmp_path):
    config = demo.COMMAND.settings.defaults()
    config.search.update(SHORT)
    config.searched = 2
    prompts = scoring.chosen_prompts("", [PROMPT])
    work = demo.Demo(
        config=config,
        root=epath.Path(tmp_path),
        prompts=prompts,
        items=None,
        word_prompts={},
        slugs=(),
        models=[checkpoint("one"), checkpoint("two"), checkpoint("three")],
    )
    demo.search(work, lambda line: None)
    assert work.new == 2
    found = {path.split("/")[1] for path in Run(tmp_path / "run").results()}
    assert found == {"model=one", "model=two"}
    work.new = 0
    demo.search(work, lambda line: None)
    assert work.new == 0


def test_packages_that_the_demo_lacks_are_one_line(tmp_path, monkeypatch, capfd):
    monkeypatch.delattr(embedded, "build", raising=False)
    monkeypatch.delitem(sys.modules, "demo.build", raising=False)
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert demo.main([f"--config.root={tmp_path}"]) == 2
    assert "demo: no package gguf" in capfd.readouterr().err
