"""Rewards that are logits of tokens, and rewards that are read at a token of their class."""

import pytest
import torch

from engine.checkpoint.card import Checkpoint
from engine.convert import templates
from engine.errors import AssayError
from tests.parity import test_language_models as language
from tests.support import folders, parity, tiny, torch_models
from tests.support.heads import FORMS, load

PROMPT, REPLIES = "What is it?", ["love", "7", "a longer reply", "?", "war and peace"]
PROCESS, ATHENE = "Qwen's process reward model", "Athene"


def language_model(name: str, folder, **options) -> tuple[torch.nn.Module, Checkpoint]:
    source = language.saved(folder / "hf", name)
    return language.build(name), folders.convert(source, folder / "checkpoint", **options)


def token_id(text: str) -> int:
    [i] = torch_models.tokenizer()(text, add_special_tokens=False)["input_ids"]
    return i


@torch.no_grad()
def check_logits(model, checkpoint, plus: int, minus: int | None) -> None:
    """The reward is the logit where generation would start, for replies in the chat template."""
    sequences = checkpoint.template.sequences(PROMPT, REPLIES)
    logits = torch.stack([model(torch.tensor([row])).logits[0, -1] for row in sequences])
    expected = logits[:, plus] - (logits[:, minus] if minus is not None else 0)
    actual = parity.restore(checkpoint).scorer.plain_rewards(sequences)[0]
    parity.assert_close(actual, expected.numpy(), scale=expected.std().item())


@pytest.mark.parametrize("name", ["llama, tied", "llama, untied"])
@pytest.mark.parametrize(
    ("reward", "plus", "minus"),
    [("0", 0, None), ("y - n", token_id("y"), token_id("n")), ("'7' - 7", token_id("7"), 7)],
)
def test_the_logit_of_a_token_or_a_difference_is_a_reward(tmp_path, name, reward, plus, minus):
    notes = []
    model, checkpoint = language_model(name, tmp_path, reward=reward, note=notes.append)
    assert checkpoint.card.head.kind == "linear"
    check_logits(model, checkpoint, plus, minus)
    [note] = notes
    assert f"(token id {plus})" in note and ("minus that of" in note) == (minus is not None)


@pytest.mark.parametrize(
    ("name", "reward", "message"),
    [
        ("llama, tied", "yes - no", r"reward: 'yes', token ids \[.*\]; allowed: an id below 264"),
        ("llama, tied", "264", r"reward: '264', token ids \[264\]; allowed: an id below 264"),
        ("llama, tied", "y - y", r"reward='y - y'"),
        ("gemma2", "y", r"reward='y', .*final_logit_softcapping=3\.0"),
    ],
)
def test_what_is_no_token_is_refused(tmp_path, name, reward, message):
    with pytest.raises(AssayError, match=message):
        language_model(name, tmp_path, reward=reward)


def whole_conversation(case, reply: str) -> list[int]:
    """Ids of a conversation in the folder's own template, which conversion may end earlier."""
    tokenizer = torch_models.tokenizer()
    tokenizer.add_tokens([case.token], special_tokens=True)
    messages = [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": reply}]
    return tokenizer.apply_chat_template(messages, chat_template=tiny.CHATML, return_dict=False)


def check_place(case, name: str) -> None:
    """As the published code: in the reply's turn behind each step; behind the conversation."""
    form, inside = FORMS[name], name == PROCESS
    marker = case.checkpoint.tokenizer.convert_tokens_to_ids(form.token)
    published = [
        whole_conversation(form, reply + form.token)
        if inside
        else [*whole_conversation(form, reply), marker]
        for reply in REPLIES
    ]
    ends = [row.index(marker) + 1 for row in published]
    assert all(len(row) > end for row, end in zip(published, ends, strict=True)) == inside
    expected = []
    with torch.no_grad():
        for row, end in zip(published, ends, strict=True):
            hidden = case.trunk(torch.tensor([row])).last_hidden_state[0]
            expected.append(case.head(hidden[end - 1], hidden[0]).reward.item())
    sequences = case.checkpoint.template.sequences(PROMPT, REPLIES)
    scale = torch.tensor(expected).std().item()
    parity.assert_close(case.restored.scorer.plain_rewards(sequences)[0], expected, scale=scale)


@pytest.mark.parametrize("name", [PROCESS, ATHENE])
def test_the_reward_is_read_at_the_classes_token(loaded, name):
    check_place(loaded(name), name)
    template = loaded(name).checkpoint.template
    assert template.tokenizer.decode(template.split(PROMPT).suffix[-1:]) == FORMS[name].token


def test_a_steps_token_behind_the_conversation_fails_parity(tmp_path, monkeypatch):
    monkeypatch.setattr(templates, "BEHIND", templates.BEHIND | templates.INSIDE)
    with pytest.raises(AssertionError, match="relative error"):
        check_place(load(PROCESS, tmp_path), PROCESS)
