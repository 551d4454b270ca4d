"""The demo's search, on tiny models; tests/demo has the embedded ones."""

import pytest
from etils import epath

from demo import packages
from launch import demo
from launch.common import scoring
from tests.support.sweeps import Run

PROMPT = "What is the greatest thing?"
SHORT = {"method": "random", "steps": 1, "candidates": 4, "length": 1, "direction": "max"}
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
    monkeypatch.setitem(packages.PACKAGES, "no_such_module", "no-such-package==0.1")
    monkeypatch.setattr(packages, "installer", lambda: ["false"])
    assert demo.main([f"--config.root={tmp_path}"]) == 2
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("demo: ") and "pip install --no-deps no-such-package==0.1" in last
