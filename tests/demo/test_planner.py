"""What is predicted of an embedded model is what a fresh process holds, and how fast it is."""

import pytest

from bench import planner
from demo import build
from demo.embedded_models import EMBEDDED
from engine.convert.conversion import convert_model
from engine.convert.hub import fetch
from engine.text.chat_template import TemplatePolicy

SLUG = "smollm2-135m-d12-imdb-linear"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    [folder] = build.build(tmp_path_factory.mktemp("hf"), [EMBEDDED[SLUG]])
    destination = tmp_path_factory.mktemp("checkpoints") / SLUG
    policy = TemplatePolicy(bos="template", date=None)
    convert_model(fetch(str(folder), None), destination, slug=SLUG, policy=policy)
    return destination


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "rounds"), [("float32", 3), ("bfloat16", 0)])
def test_memory_and_time_of_a_sweep_are_as_predicted(checkpoint, dtype, rounds):
    found = planner.on_cpu(checkpoint, dtype, rounds)
    if not all(one.holds for one in found):  # another test beside it may have come or gone
        found = planner.on_cpu(checkpoint, dtype, rounds)
    assert len(found) == (2 if rounds else 1)
    assert all(one.holds for one in found), planner.table(found)
