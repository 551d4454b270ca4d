"""`assay convert` of heads and templates that the user names, and what it prints of them."""

import pytest
from safetensors.numpy import load_file, save_file

from engine.checkpoint.card import Checkpoint
from tests.support import tiny
from tests.support.folders import edit_json

JUDGE = "{{ messages[0]['content'] }} {{ messages[1]['content'] }} good?"


@pytest.fixture
def judge(tmp_path):
    """A language model without a chat template, and a file that makes a judge of it."""
    folder = tiny.write_model(tmp_path / "judge", head="lm", template=None)
    (tmp_path / "judge.jinja").write_text(JUDGE)
    return folder


@pytest.mark.slow
def test_a_judge_is_converted_and_sweeps_as_a_reward_model(command, judge, tmp_path):
    """Without a template the line names the key."""
    flags = [f"--source={judge}", f"--checkpoint={tmp_path / 'ck'}", "--config.reward=love - war"]
    said = "--config.template"
    assert said in command("convert", *flags).refusal()
    done = command("convert", *flags, f"--config.template={tmp_path / 'judge.jinja'}").fine()
    ids = tiny.tokenizer().convert_tokens_to_ids(["love", "war"])
    said = "'love' (token id {}) minus that of 'war' "
    assert any((said + "(token id {})").format(*ids) in line for line in done.err)
    assert done.out[-1].endswith(": judge, 3 layers, linear head, 320 tokens, float32")
    sweep = [f"--checkpoint={tmp_path / 'ck'}", f"--run={tmp_path / 'run'}", "--prompt=Is it?"]
    assert command("sweep", *sweep).code == 0


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
