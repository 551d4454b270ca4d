"""Synthetic runs, written to disk through the schema as the engine writes them."""

import hashlib
import json
from pathlib import Path

import polars as pl
import pytest

from analysis.models import ModelInfo
from analysis.report import AnalyzeSettings
from engine.runs import schema

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


@pytest.fixture
def make_run(tmp_path):
    """Writes a run: vocabularies, model -> its vocabulary, (model, prompt) -> rewards by id."""

    def make(vocabs, models, scores, name="run", size=3):
        run = tmp_path / name
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

    return make


@pytest.fixture
def small_run(make_run):
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
    return make_run(vocabs, {"m-one": "v1", "m-two": "v2"}, scores)


@pytest.fixture
def settings():
    return AnalyzeSettings(
        top=4,
        figure_top=3,
        summary_tokens=3,
        contrast=("greatest", "worst"),
        allow_incomplete=False,
    )


@pytest.fixture
def infos():
    return {
        "m-two": ModelInfo(
            nickname="Two", developer="Acme", base="Gemma 2", size_b=2.0, rewardbench_rank=7
        )
    }


@pytest.fixture
def edit():
    return edit_manifest
