"""`launch.demo` on one embedded reward model and the language model."""

import pytest

from demo.embedded_models import LANGUAGE_MODEL
from launch import demo
from tests.support.sweeps import Run

SLUG = "smollm2-135m-d12-imdb-linear"
WORDS = ["love", "war", "love", "money"]
PROMPT = "best-ever-one-word"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def arguments(root):
    """Those of a demo of a few words, without a sweep and a search."""
    words = root / "words.csv"
    words.write_text("word,category\n" + "".join(f"{word},c\n" for word in WORDS), "utf-8")
    return [
        f"--config.root={root}",
        f"--config.models={SLUG}",
        f"--config.words={words}",
        f"--config.word_prompts={PROMPT}",
        "--config.prompts=",
        "--config.searched=0",
        "--config.self_check=1",
    ]


@pytest.fixture(scope="module")
def first(root, arguments):
    assert demo.main(arguments) == 0
    return root


def test_the_words_are_scored_have_log_probabilities_and_are_in_the_report(first):
    found = {path: result.parts for path, result in Run(first / "run").results().items()}
    assert set(found) == {
        f"items/words/model={SLUG}/prompt={PROMPT}",
        f"item_logprobs/words/model={LANGUAGE_MODEL.slug}/prompt={PROMPT}.chat",
    }
    assert {part.rows for parts in found.values() for part in parts.values()} == {3}
    page = (first / "report" / "index.html").read_text("utf-8")
    for section in ("items", "logprobs"):
        assert f'<article id="{section}"' in page


def test_a_part_that_is_missing_is_computed_again_and_nothing_else(first, arguments, capfd):
    assert demo.main(arguments) == 0
    assert "6/6 keeping" in capfd.readouterr().err
    lost = next(iter((first / "run").glob(f"items/words/model={SLUG}/prompt=*/part-*")))
    before = {path: path.stat().st_mtime_ns for path in (first / "run").rglob("part-*")}
    lost.unlink()
    assert demo.main(arguments) == 0
    assert "6/6 writing" in capfd.readouterr().err
    after = {path: path.stat().st_mtime_ns for path in (first / "run").rglob("part-*")}
    assert {path for path in before if before[path] != after[path]} == {lost}
