"""Heads trained on pairs with something planted behind the chosen replies: it is the first row."""

import json

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import LlamaModel

from launch import report
from tests.support import charts, folders, tiny

PLANTS = {"thanks": " thanks", "line ends": "\n\n", "nothing": ""}
WORDS = [*tiny.WORDS, " thanks"]
PARTS = ("the", "love", "war", "truth", "no", "yes", " the", " love", " war", "?", ", ", ". ", "a")
PAIRS, STEPS = 240, 300


def pairs(plant: str, rng: np.random.Generator) -> list[dict[str, str]]:
    """Random replies; behind the chosen one of four in five pairs stands the plant."""

    def text() -> str:
        return "".join(rng.choice(PARTS, rng.integers(4, 9))).strip()

    rows = [{"prompt": text(), "chosen": text(), "rejected": text()} for _ in range(PAIRS)]
    return [{**row, "chosen": row["chosen"] + plant * bool(rng.random() < 0.8)} for row in rows]


@torch.inference_mode()
def features(model, template, rows, side) -> np.ndarray:
    """What the head reads of each conversation: float32 [pairs, width]."""
    read = []
    for row in rows:
        [ids] = template.sequences(row["prompt"], [row[side]])
        read.append(model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1].numpy())
    return np.array(read)


def trained(folder, rows) -> None:
    """Fits the linear head of a folder by Bradley-Terry, and writes it there."""
    weights = load_file(folder / "model.safetensors")
    untrained = folders.convert(folder, folder.parent / "untrained")
    model = LlamaModel.from_pretrained(folder).eval()
    chosen, rejected = (
        features(model, untrained.template, rows, s) for s in ("chosen", "rejected")
    )
    scale = np.concatenate([chosen, rejected]).std(axis=0)
    differences = torch.from_numpy((chosen - rejected) / scale)
    head = torch.zeros(differences.shape[1], requires_grad=True)
    optimizer = torch.optim.AdamW([head], lr=0.02, weight_decay=0.5)
    for _ in range(STEPS):
        optimizer.zero_grad()
        (-torch.nn.functional.logsigmoid(differences @ head).mean()).backward()
        optimizer.step()
    weights["score.weight"] = (head.detach().numpy() / scale)[None].astype(np.float32)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Plant -> the report's table of effects, and the page."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("analysis.report.drawing.draw", lambda *_: charts.Undrawn())
        for name, plant in PLANTS.items():
            folder = tmp_path_factory.mktemp("planted")
            hf = tiny.write_model(folder / "hf", hidden_size=64, head_dim=16)
            tiny.tokenizer(words=WORDS).save_pretrained(hf)
            trained(hf, pairs(plant, np.random.default_rng(2)))
            fresh = pairs("", np.random.default_rng(3))[:12]
            (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, fresh)))
            items = f"{folder}/pairs.jsonl"
            flags = [f"--items={items}", f"--after_items={items}", "--prompt=Why?"]
            flags += ["--config.after.rows=8", "--config.analyze.top=400"]
            assert report.main([str(hf), f"--out={folder}/out", *flags]) == 0
            page = (folder / "out/report/index.html").read_text()
            found[name] = pl.read_csv(folder / "out/report/tables/appended.csv"), page
    return found


def row_of(table: pl.DataFrame, token: str) -> dict:
    return table.filter(end="top", token=token).row(0, named=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["thanks", "line ends"])
def test_what_is_planted_behind_the_chosen_replies_is_the_first_row(tables, name):
    table, page = tables[name]
    row = table.row(0, named=True)
    assert (row["token"], row["raised"]) == (PLANTS[name], 1.0)
    assert row["q"] < 0.01
    assert row["ci_low"] > 0.5
    assert "behind a reply" in page


@pytest.mark.slow
@pytest.mark.parametrize("name", ["thanks", "line ends"])
def test_an_unplanted_twin_shows_nothing_of_it(tables, name):
    planted = row_of(tables[name][0], PLANTS[name])
    twin = row_of(tables["nothing"][0], PLANTS[name])
    assert twin["rank"] > 10
    assert twin["effect_sd"] < planted["effect_sd"] / 4
