"""Synthetic runs, written to disk through the schema as the engine writes them."""

import collections
import hashlib
import json
from pathlib import Path

import polars as pl
import pytest

from analysis.figures import drawing
from analysis.models import ModelInfo
from analysis.options import Options
from analysis.report import AnalyzeSettings
from engine.runs import schema
from tests.commands.fixtures import command

__all__ = ["command"]  # fixtures

PROMPTS = {
    "greatest": "What, in one word, is the greatest thing ever?",
    "worst": "What, in one word, is the worst thing ever?",
}


def write_vocab(run: Path, name: str, tokens: list[str]) -> None:
    path = run / schema.vocab_path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {
        "token_id": range(len(tokens)),
        "token": tokens,
        "is_special": [token.startswith("<|") for token in tokens],
        "round_trip": ["replacement" if "\ufffd" in token else "same" for token in tokens],
    }
    # Out of order, as no reader may rely on the order of the rows.
    frame = pl.DataFrame(columns, schema=schema.VOCAB_COLUMNS)
    frame.sort("token_id", descending=True).write_parquet(path)


def write_scores(run: Path, model: str, prompt: str, rewards: dict[int, float], size: int) -> dict:
    """Writes the parts of one result, `size` ids each; returns its entry of the manifest."""
    folder = run / schema.scores_path(model, prompt)
    folder.mkdir(parents=True)
    parts, stop = {}, max(rewards) + 1
    for start in range(0, stop, size):
        ids = [i for i in reversed(range(start, min(start + size, stop))) if i in rewards]
        name = schema.part_name(start, min(start + size, stop))
        columns = {"token_id": ids, "reward": [rewards[i] for i in ids]}
        pl.DataFrame(columns, schema=schema.SCORE_COLUMNS).write_parquet(folder / name)
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        parts[name] = {"rows": len(ids), "sha256": digest}
    return {
        "fingerprint": {"checkpoint": f"{model}-hash", "prompt": prompt, "mode": "ids"},
        "parts": parts,
        "complete": True,
        "self_check": {"candidates": 4, "max_abs_difference": 1e-4, "tolerance": 1e-2},
        "seconds": 1.5,
    }


def edit_manifest(run: Path, change) -> None:
    """Lets `change` alter the manifest's object and writes it back."""
    path = run / schema.MANIFEST
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def write_run(run: Path, vocabs: dict, models: dict, scores: dict, size: int = 3) -> Path:
    """Writes a run: vocabularies, model -> its vocabulary, (model, prompt) -> rewards by id."""
    run.mkdir()
    for vocab, tokens in vocabs.items():
        write_vocab(run, vocab, tokens)
    results = {}
    for (model, prompt), rewards in scores.items():
        by_id = rewards if isinstance(rewards, dict) else dict(enumerate(rewards))
        entry = write_scores(run, model, prompt, by_id, size)
        results[schema.scores_path(model, prompt)] = entry
    manifest = {
        "version": schema.MANIFEST_VERSION,
        "models": {
            slug: {"source": slug, "checkpoint_hash": f"{slug}-hash", "vocab": vocab}
            for slug, vocab in models.items()
        },
        "prompts": PROMPTS,
        "lists": {},
        "results": results,
        "environment": {},
    }
    (run / schema.MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    return run


@pytest.fixture
def make_run(tmp_path):
    """`write_run` into the test's own folder."""

    def make(vocabs, models, scores, name="run", size=3):
        return write_run(tmp_path / name, vocabs, models, scores, size)

    return make


def add_result(run: Path, path: str, frame: pl.DataFrame, prompt: str) -> None:
    """Writes one part and its entry of the manifest; a model or list is not added."""
    (run / path).mkdir(parents=True)
    name = schema.part_name(0, frame.height)
    frame.sort(frame.columns[0], descending=True).write_parquet(run / path / name)
    digest = hashlib.sha256((run / path / name).read_bytes()).hexdigest()
    entry = {
        "fingerprint": {"path": path},
        "parts": {name: {"rows": frame.height, "sha256": digest}},
        "complete": True,
        "self_check": None,
        "seconds": 0.0,
    }
    edit_manifest(run, lambda content: content["results"].update({path: entry}))
    edit_manifest(run, lambda content: content["prompts"].setdefault(prompt, f"{prompt}?"))


@pytest.fixture
def add_objectives():
    """Adds objectives (name -> values by token) to a scored vocabulary; weights make it gated."""

    def add(run, model, prompt, objectives, weights=None):
        path = schema.scores_path(model, prompt)
        parts = sorted((run / path).iterdir())
        frame = pl.read_parquet(parts, hive_partitioning=False).sort("token_id")
        columns = {name: pl.Series(x, dtype=pl.Float32) for name, x in objectives.items()}
        rewards = frame.with_columns(**columns)
        for part in parts:
            part.unlink()
        (run / path).rmdir()
        add_result(run, path, rewards, prompt)
        said = {"fingerprint": {"path": path, "objectives": list(objectives)}}
        said |= {"coefficients": weights}
        edit_manifest(run, lambda content: content["results"][path].update(said))

    return add


@pytest.fixture
def add_items():
    """Adds scores of an item list (item -> reward) to a run."""

    def add(run, items, model, prompt, rewards):
        columns = {"item_id": range(len(rewards)), "item": rewards, "reward": rewards.values()}
        frame = pl.DataFrame({k: list(v) for k, v in columns.items()}, schema=schema.ITEM_COLUMNS)
        add_result(run, schema.items_path(items, model, prompt), frame, prompt)

    return add


@pytest.fixture
def add_humans():
    """Adds human scores (item -> Elo) of an item list to a run."""

    def add(run, items, scores):
        columns = {"item_id": range(len(scores)), "item": list(scores)}
        ranks = {"elo_rank": range(1, len(scores) + 1), "elo_score": list(scores.values())}
        matches = {"elo_matches": [9] * len(scores)}
        frame = pl.DataFrame(columns | ranks | matches, schema=schema.HUMAN_COLUMNS)
        frame.write_parquet(run / schema.humans_path(items))

    return add


@pytest.fixture
def add_logprobs():
    """Adds next-token log-probabilities of a language model to a run."""

    def add(run, model, vocab, prompt, logprobs):
        columns = {"token_id": range(len(logprobs)), "logprob": logprobs}
        frame = pl.DataFrame(columns, schema=schema.LOGPROB_COLUMNS)
        add_result(run, schema.logprobs_path(model, prompt), frame, prompt)
        entry = {"source": model, "checkpoint_hash": f"{model}-hash", "vocab": vocab}
        edit_manifest(run, lambda content: content["models"].update({model: entry}))

    return add


@pytest.fixture
def add_item_logprobs():
    """Adds a language model's log-probabilities of an item list (item -> (tokens, logprob))."""

    def add(run, items, model, prompt, replies):
        tokens, logprobs = zip(*replies.values(), strict=True)
        columns = {"item_id": range(len(replies)), "item": list(replies)}
        columns |= {"tokens": tokens, "logprob": logprobs}
        frame = pl.DataFrame(columns, schema=schema.ITEM_LOGPROB_COLUMNS)
        add_result(run, schema.item_logprobs_path(items, model, prompt), frame, prompt)
        entry = {"source": model, "checkpoint_hash": f"{model}-hash", "vocab": None}
        edit_manifest(run, lambda content: content["models"].setdefault(model, entry))

    return add


@pytest.fixture
def small_run(tmp_path):
    return write_small_run(tmp_path / "run")


def write_small_run(run: Path) -> Path:
    """Two models of different vocabularies, one prompt each scored fully."""
    vocabs = {
        "v1": [" love", "love", "\ufffd", "\ufffd", "hate", "<script>alert(1)</script>", "x"],
        "v2": ["hate", "<script>alert(1)</script>", "\ufffd", " love", "love", "Love"],
    }
    scores = {
        ("m-one", "greatest"): [5.0, 4.0, 0.0, 0.5, -3.0, -9.0, 1.0],
        ("m-two", "greatest"): [0.95, -0.4, 0.0, 0.9, 0.8, 0.7],
        ("m-one", "worst"): [-5.0, -4.0, 0.0, 0.5, 3.0, 9.0, 1.0],
    }
    return write_run(run, vocabs, {"m-one": "v1", "m-two": "v2"}, scores)


@pytest.fixture(scope="session")
def settings(tmp_path_factory):
    words = tmp_path_factory.mktemp("lexicons") / "bnc.txt"  # the package wordfreq is optional
    words.write_text(
        "\tlove\tNoC\t:\t150\t100\t0.9\n\thate\tVerb\t:\t50\t100\t0.9\n", encoding="utf-8"
    )
    return AnalyzeSettings(
        top=4,
        figure_top=3,
        summary_tokens=3,
        allow_incomplete=False,
        options=Options(permutations=99, bootstraps=99, frequency=str(words)),
    )


@pytest.fixture(scope="session")
def infos():
    return {
        "m-two": ModelInfo(
            nickname="Two", developer="Acme", base="Gemma 2", size_b=2.0, rewardbench_rank=7
        )
    }


@pytest.fixture
def light(monkeypatch):
    """Leaves the figures undrawn, for tests of what surrounds them."""
    monkeypatch.setattr(drawing, "draw", lambda *_: collections.defaultdict(str))


@pytest.fixture
def edit():
    return edit_manifest
