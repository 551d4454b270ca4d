"""`assay conventions --published` finds the reading under which transformers made the rewards."""

import dataclasses

import polars as pl
import pytest
import torch

from configs import known_goldens, known_models
from configs.known_goldens import RewardSet
from configs.prompts import ELO
from engine.errors import AssayError
from engine.mesh import build_mesh
from engine.planning import machines
from launch.common import published_rewards as published
from launch.common.conventions import values_of
from launch.common.released_layouts import Choices
from tests.support import folders, tiny, torch_models
from tests.support.sweeps import SETTINGS

MODEL = "tests/tiny-gemma"
SLUG = "tiny-gemma"
ITEMS = ("love", "war", "the", "truth", "7", "<script>")  # a token each: one shape to compile
DATE = "26 Jul 2024"
# A BOS of the template's own beside the tokenizer's, and a date.
TEMPLATE = "{{ bos_token }}{{ date_string | default('1 Jan 2020') }}\n" + tiny.CHATML
TEXT = dataclasses.replace(SETTINGS, mode="text", pooling="last")
CHOICES = {"dates": (DATE,), "dtypes": ("float32", "bfloat16")}
MADE_UNDER = ("double", DATE, "on", "float32")


@torch.inference_mode()
def by_transformers(network, tokenizer) -> list[float]:
    """The paper's pipeline: rendered as text, tokenised with the tokenizer's own BOS in front."""
    rewards = []
    for item in ITEMS:
        turns = [
            {"role": "user", "content": ELO["elo_greatest"]},
            {"role": "assistant", "content": item},
        ]
        text = tokenizer.apply_chat_template(turns, tokenize=False, date_string=DATE)
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        assert ids[0, :2].tolist() == [tokenizer.bos_token_id] * 2
        rewards.append(network(ids).logits.item())
    return rewards


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A folder with the model's checkpoint and its rewards in the released layout (`elo.csv`)."""
    folder = tmp_path_factory.mktemp("published")
    config = torch_models.CONFIGS["gemma2"]()
    config.vocab_size = 320
    network, tokenizer = torch_models.enlarged(config), tiny.tokenizer(TEMPLATE, adds_bos=True)
    network.save_pretrained(folder / "hf")
    tokenizer.save_pretrained(folder / "hf")
    folders.convert(folder / "hf", folder / "checkpoint", SLUG)
    ranks = range(1, len(ITEMS) + 1)
    columns = {"elo_rank": ranks, "elo_score": ranks, "name": ITEMS, "elo_matches": ranks}
    rewards = by_transformers(network, tokenizer)
    pl.DataFrame({**columns, MODEL: rewards}).write_csv(folder / "elo.csv")
    ids = [tokenizer.convert_tokens_to_ids(item) for item in ITEMS[:4]]
    tokens = {"token_id": ids, "token_name": ITEMS[:4], "token_decoded": ITEMS[:4]}
    prompt = {ELO["elo_greatest"]: rewards[:4]}
    pl.DataFrame({**tokens, **prompt}).write_csv(folder / "tokens.csv")
    return folder


@pytest.fixture
def model(released):
    from engine.checkpoint.card import Checkpoint

    return Checkpoint.open(released / "checkpoint")


@pytest.mark.slow
def test_the_reading_that_made_the_rewards_alone_reproduces_them(released, model):
    choices = Choices(layout="elo", prompt="elo_greatest")
    [right] = published.released(released / "elo.csv", choices, model, 64, 1e-3)
    wrong = dataclasses.replace(right, rewards=(*right.rewards[:-1], 0.0))
    values = values_of(model, TEXT, ("bos", "date", "softcap", "dtype"), **CHOICES)
    names = published.varied(values)
    assert names == ["bos", "date", "softcap", "dtype"]
    outcomes, reasons = published.compare(
        model, [right, wrong], values, build_mesh(), check_memory=True
    )
    assert not reasons
    # Soft-cap, dtype, BOS (none, one, two), date (its own, the released one, an empty one).
    assert len(outcomes) == 2 * 2 * 3 * 3
    own, off = ({c: r[i] for c, r in outcomes.items()} for i in range(2))
    assert [c for c, r in own.items() if right.reproduced(r)] == [MADE_UNDER]
    assert "bos double, date 26 Jul 2024" in published.verdict(right, own, names)
    assert published.table(right, own, names).count(" yes") == 1
    assert "reproduced by none of 36 readings" in published.verdict(wrong, off, names)
    assert " yes" not in published.table(wrong, off, names)
    assert any("template = single" in cells for cells in outcomes)


def test_published_rewards_ask_for_memory_before_a_model_is_loaded(checkpoint, monkeypatch):
    model = checkpoint()
    one = RewardSet(name="x", prompt="?", replies=("a",), rewards=(0.0,), tolerance=1.0)
    tiny_room = machines.DeviceRoom("cpu", 1, 1, usable=1)
    monkeypatch.setattr(machines.DeviceRoom, "of", lambda mesh: tiny_room)
    values = values_of(model, TEXT, ("bos",), **CHOICES)
    with pytest.raises(AssayError, match=r"can be used: tiny: needs .* are free"):
        published.compare_and_show(model, [one], values, build_mesh(), check_memory=True)


FLAGS = ["--config.dimensions=bos,date", "--config.dates=26 Jul 2024", "--config.mode=text"]


@pytest.mark.parametrize(
    ("file", "layout", "rows"),
    [("elo.csv", "elo", "3 items"), ("tokens.csv", "tokens", "3 tokens")],
)
def test_the_command_ends_with_the_verdict(command, released, file, layout, rows):
    done = command(
        "conventions",
        f"--checkpoint={released / 'checkpoint'}",
        f"--published={released / file}",
        f"--layout={layout}",
        *(["--published_prompt=elo_greatest"] if layout == "elo" else []),
        "--config.published_rows=3",
        *FLAGS,
    ).fine()
    assert done.out[-1] == (
        f"tiny-gemma, {file} under 'elo_greatest', {rows}: reproduced by bos double, "
        "date 26 Jul 2024"
    )


def test_a_file_with_other_tokens_is_one_line(command, released, tmp_path):
    path, ids = tmp_path / "tokens.csv", pl.Series("token_id", [3, 4, 5, 6])
    pl.read_csv(released / "tokens.csv").with_columns(ids).write_csv(path)
    checkpoint = f"--checkpoint={released / 'checkpoint'}"
    done = command("conventions", checkpoint, f"--published={path}", "--layout=tokens")
    assert "are others than those of 'tiny-gemma', first token_id 3" in done.refusal()


def test_goldens_are_of_known_models_and_name_their_source():
    assert set(known_goldens.GOLDENS) <= set(known_models.KNOWN)
    assert all(spec.noise for spec in known_models.MODELS.values())
    for golden in (one for own in known_goldens.GOLDENS.values() for one in own):
        assert golden.source and len(golden.replies) == len(golden.rewards)


@pytest.mark.parametrize(("tolerance", "allowed"), [(None, 0.25), (0.5, 0.5)])
def test_cards_are_compared_within_the_tolerance_of_the_setting(tolerance, allowed):
    (one,) = published.of_card("skywork-reward-llama-3.1-8b", tolerance)
    assert one.tolerance == allowed
    assert one.name == "card (model card of Skywork/Skywork-Reward-Llama-3.1-8B)"
    with pytest.raises(AssayError, match=r"^tolerance=-1; allowed: 'auto', or numbers above 0$"):
        published._tolerance(-1)
