"""The tool finds the convention under which transformers made the published rewards."""

import dataclasses

import polars as pl
import pytest
import torch

from bench.peers import goldens
from configs import known_models
from configs.prompts import ELO
from engine.mesh import build_mesh
from tests.support import tiny, torch_models

MODEL = "tests/tiny-gemma"
ITEMS = ("love", "war", "the", "truth", "7", "<script>")  # a token each: one shape to compile
DATES = ["26 Jul 2024"]
# A BOS of the template's own beside the tokenizer's, and a date.
TEMPLATE = "{{ bos_token }}{{ date_string | default('1 Jan 2020') }}\n" + tiny.CHATML
MADE_UNDER = ("linear", "on", "float32", "double", "26 Jul 2024")


@torch.inference_mode()
def by_transformers(network, tokenizer) -> list[float]:
    """The paper's pipeline: rendered as text, tokenised with the tokenizer's own BOS in front."""
    rewards = []
    for item in ITEMS:
        turns = [
            {"role": "user", "content": ELO["elo_greatest"]},
            {"role": "assistant", "content": item},
        ]
        text = tokenizer.apply_chat_template(turns, tokenize=False, date_string=DATES[0])
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        assert ids[0, :2].tolist() == [tokenizer.bos_token_id] * 2
        rewards.append(network(ids).logits.item())
    return rewards


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A folder with the model (`hf`) and its rewards in the released layout (`elo.csv`)."""
    folder = tmp_path_factory.mktemp("goldens")
    config = torch_models.CONFIGS["gemma2"]()
    config.vocab_size = 320
    network, tokenizer = torch_models.enlarged(config), tiny.tokenizer(TEMPLATE, adds_bos=True)
    network.save_pretrained(folder / "hf")
    tokenizer.save_pretrained(folder / "hf")
    ranks = range(1, len(ITEMS) + 1)
    columns = {"elo_rank": ranks, "elo_score": ranks, "name": ITEMS, "elo_matches": ranks}
    frame = pl.DataFrame({**columns, MODEL: by_transformers(network, tokenizer)})
    frame.write_csv(folder / "elo.csv")
    return folder


@pytest.mark.slow
def test_the_convention_that_made_the_rewards_alone_reproduces_them(released):
    published = goldens.elo_sample(released / "elo.csv", "tiny-gemma", len(ITEMS))
    wrong = dataclasses.replace(published, rewards=(*published.rewards[:-1], 0.0))
    both, slug = [published, wrong], "tiny-gemma"
    checkpoint = goldens.converted(str(released / "hf"), None, slug, released / "checkpoint")
    outcomes = goldens.compare(checkpoint, both, ["float32", "bfloat16"], DATES, build_mesh())
    # Soft-cap, dtype, BOS (the template's is the single one), date.
    assert len(outcomes) == 2 * 2 * 2 * 2
    right, off = ({c: r[i] for c, r in outcomes.items()} for i in range(2))
    assert [c for c, r in right.items() if published.reproduced(r)] == [MADE_UNDER]
    assert "bos double, date 26 Jul 2024" in goldens.verdict(published, right)
    assert goldens.table(published, right).count(" yes") == 1
    assert "reproduced by none of 16 conventions" in goldens.verdict(wrong, off)
    assert " yes" not in goldens.table(wrong, off)


@pytest.mark.slow
def test_the_command_ends_with_the_verdict(released, tmp_path, capsys):
    status = goldens.main(
        [
            "--dtypes=float32",
            f"--model={MODEL}",
            f"--source={released / 'hf'}",
            f"--checkpoint={tmp_path / 'made'}",
            f"--elo={released / 'elo.csv'}",
            "--items=3",
        ]
    )
    assert status == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"EloEverything, 3 items: reproduced by {goldens.phrase(MADE_UNDER)}"
    )


@pytest.mark.parametrize(
    ("model", "elo", "message"),
    [
        ("nobody/nothing", "", "nothing published is known of 'nothing'; allowed: one of skywork-"),
        # Its card has an example, but rewards were asked for that the file does not hold.
        (
            "LxzGordon/URM-LLaMa-3.1-8B",
            "elo.csv",
            "elo.csv: no column of 'urm-llama-3.1-8b'; it has tiny-gemma",
        ),
    ],
)
def test_what_is_not_published_is_refused_in_one_line(released, model, elo, message, capsys):
    assert goldens.main([f"--model={model}", f"--elo={elo and released / elo}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line


def test_what_is_published_is_of_known_models():
    assert set(goldens.GOLDENS) <= set(known_models.KNOWN)
    assert set(goldens.NOISE) == set(known_models.MODELS)
