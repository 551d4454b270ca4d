"""Heads trained on pairs with something planted behind the chosen replies: it is the first row."""

import functools

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import LlamaModel

import analysis
from analysis.chapters import appended
from analysis.measures.appended import MARKS
from analysis.settings import AnalyzeSettings
from engine.text.chat_template import with_reply_start
from tests.support import folders, tiny, torch_models
from tests.support.sweeps import Run

PLANT = " thanks"
WORDS = [*tiny.WORDS, " thanks"]
PARTS = ("the", "love", "war", "truth", "no", "yes", " the", " love", " war", "?", ", ", ". ", "a")
WIDTH, PAIRS, STEPS, REPLIES = 128, 1500, 300, 8


def text(rng: np.random.Generator) -> str:
    return "".join(rng.choice(PARTS, rng.integers(4, 9))).strip()


def features(model, template, conversations) -> np.ndarray:
    """What the head reads of each prompt and reply: float32 [conversations, width]."""
    sequences = [template.sequences(prompt, [reply])[0] for prompt, reply in conversations]
    return torch_models.last_states(model, sequences).numpy()


def head(model, checkpoint, plant: str) -> np.ndarray:
    """A linear head, fitted by Bradley-Terry to pairs that differ at the end: float32 [1, width].

    Behind the chosen reply stands the plant in four of five pairs. Behind all others stands a
    random token.
    """
    rng = np.random.default_rng(2)
    tokens = [token for token in checkpoint.tokens.values() if token.isprintable()]
    chosen, rejected = [], []
    for _ in range(PAIRS):
        prompt, reply, planted = text(rng), text(rng), bool(plant) and rng.random() < 0.8
        chosen.append((prompt, reply + (plant if planted else rng.choice(tokens))))
        rejected.append((prompt, reply + rng.choice(tokens)))
    sides = [features(model, checkpoint.template, side) for side in (chosen, rejected)]
    scale = np.concatenate(sides).std(axis=0)
    differences = torch.from_numpy((sides[0] - sides[1]) / scale)
    weights = torch.zeros(WIDTH, requires_grad=True)
    optimizer = torch.optim.AdamW([weights], lr=0.02, weight_decay=1.0)
    for _ in range(STEPS):
        optimizer.zero_grad()
        (-torch.nn.functional.logsigmoid(differences @ weights).mean()).backward()
        optimizer.step()
    return (weights.detach().numpy() / scale)[None].astype(np.float32)


@pytest.fixture(scope="module")
def table_of(tmp_path_factory):
    """Plant, or nothing -> every token behind fresh replies, largest mean effect first."""
    shape = {"hidden_size": WIDTH, "head_dim": WIDTH // 4, "num_hidden_layers": 3}
    hf = tiny.write_model(tmp_path_factory.mktemp("planted") / "hf", **shape)
    tiny.tokenizer(words=WORDS).save_pretrained(hf)
    untrained = folders.convert(hf, hf.parent / "untrained")
    model = LlamaModel.from_pretrained(hf).eval()
    rng = np.random.default_rng(3)
    replies = {f"reply-{i}": with_reply_start(text(rng), text(rng)) for i in range(REPLIES)}

    @functools.cache
    def table(plant):
        weights = load_file(hf / "model.safetensors")
        weights["score.weight"] = head(model, untrained, plant)
        save_file(weights, hf / "model.safetensors", metadata={"format": "pt"})
        folder = tmp_path_factory.mktemp("trained")
        run = Run(folder / "run")
        run.sweep([folders.convert(hf, folder / "checkpoint")], replies, step_size=64)
        loaded = analysis.load(run.folder)
        study = analysis.compute(loaded, {}, AnalyzeSettings(top=400), [appended.ANALYSIS])
        # Of tokens that are texts: training has seen no other at the end of a reply.
        is_text = ~pl.col("token").str.contains("\ufffd") & (pl.col("kind") != MARKS)
        return study.tables["appended"].filter(is_text, end="top")

    return table


@pytest.mark.slow
def test_what_is_planted_behind_the_chosen_replies_is_the_first_row(table_of):
    row, second = table_of(PLANT).head(2).to_dicts()
    assert row["token"] == PLANT
    assert row["raised"] >= 0.875
    assert row["effect"] > 1.25 * second["effect"] > 0


@pytest.mark.slow
def test_an_unplanted_twin_shows_nothing_of_it(table_of):
    [twin] = table_of("").filter(token=PLANT).to_dicts()
    assert twin["rank"] > 40
    assert twin["raised"] < 0.5
    assert twin["effect_sd"] < table_of(PLANT)["effect_sd"][0] / 10
