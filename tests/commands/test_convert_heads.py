"""`assay convert` of heads that the user names, and what it prints of them."""

from safetensors.numpy import load_file, save_file

from engine.checkpoint.card import Checkpoint
from tests.support import tiny
from tests.support.folders import edit_json


def test_a_value_head_beside_an_output_head_is_a_reward_model_in_one_printed_line(
    command, tmp_path
):
    folder = tiny.write_model(tmp_path / "rm")
    weights = load_file(folder / "model.safetensors")
    head = {"v_head.summary.weight": weights.pop("score.weight")}
    save_file(head, folder / "value_head.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    save_file(weights, folder / "model.safetensors")
    edit_json(folder / "config.json", architectures=["LlamaForCausalLM"])
    done = command("convert", f"--source={folder}", f"--checkpoint={tmp_path / 'ck'}")
    notes = [line for line in done.err if "left out" in line]
    assert notes == ["note: rm: lm_head.weight is left out: the reward head is v_head.summary"]
    assert Checkpoint.open(tmp_path / "ck").card.kind == "reward model"
