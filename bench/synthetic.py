"""Runs of made-up rewards at the size of the paper's, for benchmarks of the analysis."""

import hashlib
import json
import pathlib
from collections.abc import Mapping

import numpy as np
import polars as pl

from analysis import lexicons
from engine.runs import schema

PROMPTS = {
    "greatest": "What, in one word, is the greatest thing ever?",
    "best": "What, in one word, is the best thing ever?",
    "worst": "What, in one word, is the worst thing ever?",
}
PAPER = {
    "qrm-gemma-2-27b": "gemma",
    "skywork-reward-gemma-2-27b-v0.2": "gemma",
    "skywork-reward-gemma-2-27b": "gemma",
    "skywork-reward-llama-3.1-8b-v0.2": "llama",
    "qrm-llama3.1-8b": "llama",
    "urm-llama-3.1-8b": "llama",
    "grm-llama3-8b-rewardmodel-ft": "llama",
    "grm-llama3.2-3b-rewardmodel-ft": "llama",
    "armorm-llama3-8b-v0.1": "llama",
    "grm-gemma2-2b-rewardmodel-ft": "gemma",
}
SIZES = {"llama": 128_256, "gemma": 256_000}
_AWKWARD = (
    "Love",
    " love",
    " hate",
    "<script>alert(1)</script>",
    " LOVE",
    "\u200b",
    "$x$",
    "\u202ea",
)
_BROKEN = 100  # Tokens that decode to the replacement character.


def write_run(
    run: pathlib.Path,
    rng: np.random.Generator,
    models: Mapping[str, str] = PAPER,
    sizes: Mapping[str, int] = SIZES,
) -> None:
    """Writes a run of `models` (slug -> vocabulary) whose rewards agree about as the paper's do."""
    known = _known()
    words = _words(rng, list(known), max(sizes.values()))
    vocabularies = {
        name: _vocabulary(rng, len(known), len(words), size) for name, size in sizes.items()
    }
    value = rng.normal(size=len(words)).astype(np.float32)  # What all models value in a word.
    value[: len(known)] += list(known.values())
    for name, places in vocabularies.items():
        _write_vocabulary(run, name, [words[i] if i >= 0 else "\ufffd" for i in places])
    results = {}
    for model, name in models.items():
        shared = np.where(vocabularies[name] >= 0, value[vocabularies[name]], -1)
        taste = shared + rng.normal(size=len(shared))
        for prompt in PROMPTS:
            sign = -0.4 if prompt == "worst" else 1.0
            reward = sign * taste + 0.5 * rng.normal(size=len(shared))
            reward = (-3 + 4 * np.sinh(0.6 * reward)).astype(np.float32)
            results[schema.scores_path(model, prompt)] = _write_scores(run, model, prompt, reward)
    manifest = {
        "version": schema.MANIFEST_VERSION,
        "models": {m: {"source": m, "checkpoint_hash": m, "vocab": v} for m, v in models.items()},
        "prompts": PROMPTS,
        "lists": {},
        "results": results,
        "environment": {},
    }
    (run / schema.MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def _known() -> dict[str, float]:
    """Words of the lexicons and some awkward tokens, each with what it adds to the value."""
    graded = lexicons.afinn("")
    found = dict.fromkeys(_AWKWARD, 0.0)
    found |= {word: value / 3 for word, value in graded.select("word", "value").iter_rows()}
    return found | {f" {word}": -0.5 for word in lexicons.identity("")["word"]}


def _words(rng: np.random.Generator, known: list[str], count: int) -> list[str]:
    """`known`, then different strings of letters and syllables as a tokenizer would cut them."""
    starts = ["", " ", " ", "_", "▁"]
    syllables = [a + b for a in "bcdfghklmnprstvwz" for b in "aeiouéö"] + ["語", "мир", "नम", "😀"]
    found = dict.fromkeys(known)
    while len(found) < count * 4 // 3:
        picks = rng.integers(len(syllables), size=(count, 4)).tolist()
        lengths = rng.integers(1, 5, size=count).tolist()
        heads = rng.integers(len(starts), size=count).tolist()
        for pick, length, head in zip(picks, lengths, heads, strict=True):
            found[starts[head] + "".join(syllables[i] for i in pick[:length])] = None
    return list(found)[: count * 4 // 3]


def _vocabulary(rng: np.random.Generator, known: int, words: int, size: int) -> np.ndarray:
    """Places among the words of the tokens [size]; -1 where a token decodes to nothing."""
    rest = rng.permutation(np.arange(known, words))[: size - known - _BROKEN]
    return np.concatenate([np.full(_BROKEN, -1), np.arange(known), rest])


def _write_vocabulary(run: pathlib.Path, name: str, tokens: list[str]) -> None:
    path = run / schema.vocab_path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {
        "token_id": range(len(tokens)),
        "token": tokens,
        "is_special": [token == "\ufffd" for token in tokens],
        "round_trip": ["replacement" if token == "\ufffd" else "same" for token in tokens],
    }
    pl.DataFrame(columns, schema=schema.VOCAB_COLUMNS).write_parquet(path)


def _write_scores(run: pathlib.Path, model: str, prompt: str, reward: np.ndarray) -> dict:
    folder = run / schema.scores_path(model, prompt)
    folder.mkdir(parents=True)
    name = schema.part_name(0, len(reward))
    frame = pl.DataFrame(
        {"token_id": range(len(reward)), "reward": reward}, schema=schema.SCORE_COLUMNS
    )
    frame.write_parquet(folder / name)
    digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    return {
        "fingerprint": {"checkpoint": model, "prompt": prompt, "mode": "ids", "dtype": "bfloat16"},
        "parts": {name: {"rows": len(reward), "sha256": digest}},
        "complete": True,
        "self_check": {"candidates": 64, "max_abs_difference": 1e-4, "tolerance": 1e-2},
        "seconds": 1.0,
    }
