"""Implicit rewards: β (log π - log π_ref) is torch's, and each way of getting it wrong shows."""

import copy

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import engine
from engine.runs import implicit
from engine.scoring.conversations import ConversationReplies
from engine.scoring.language_passes import LanguageScorer
from tests.parity.test_language_models import by_torch
from tests.support import folders, parity, slow, torch_models
from tests.support.planted import instead

PROMPT, BETA = "What is it?", 0.1
TURNS = [{"role": "user", "content": PROMPT}]
REPLIES = ["!", "no", "a longer one", "~", "it", "another, longer"]  # a byte a token


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The policy and its reference in torch, and what the engine made of both."""
    config = torch_models.CONFIGS["gqa-llama3"]()
    reference = torch_models.enlarged(config, AutoModelForCausalLM, embedding=0.5)
    policy = copy.deepcopy(reference)
    drawn = torch.Generator().manual_seed(1)
    for weight in policy.parameters():  # further training
        weight.data += 0.2 * weight.data.std() * torch.randn(weight.shape, generator=drawn)
    models, paths = (policy, reference), []
    for name, model in zip(("policy", "reference"), models, strict=True):
        folder = tmp_path_factory.mktemp(name)
        torch_models.save(model, folder / "hf")
        paths.append(folders.convert(folder / "hf", folder / "checkpoint", name).path)
    return models, engine.reward_of(*paths, beta=BETA, mesh=parity.make_mesh())


def rendered(prompt: str = PROMPT) -> list[int]:
    """The prompt in the chat template with its generation prompt."""
    turns = [{"role": "user", "content": prompt}]
    made = torch_models.tokenizer().apply_chat_template(turns, add_generation_prompt=True)
    return made["input_ids"]


def check_vocabulary(models, rewards) -> None:
    """Every token as the next one."""
    prompt, swept = rendered(), rewards.sweep(TURNS).sort("token_id")
    policy, reference = (by_torch(model, prompt)[-1] for model in models)
    expected = BETA * (policy - reference)[swept["token_id"].to_numpy()]
    parity.assert_close(swept["reward"].to_numpy(), expected, scale=expected.std())


def check_replies(models, rewards) -> None:
    """Replies of several lengths: the tokens of the reply alone, without an end of turn."""
    expected = [of_torch(models, PROMPT, reply) for reply in REPLIES]
    parity.assert_close(rewards.score(PROMPT, REPLIES), np.array(expected), scale=np.std(expected))


def of_torch(models, prompt: str, reply: str) -> float:
    prompt = rendered(prompt)
    own = torch_models.tokenizer()(reply, add_special_tokens=False)["input_ids"]
    places = range(len(prompt) - 1, len(prompt) - 1 + len(own))
    policy, reference = (by_torch(model, [*prompt, *own])[places, own] for model in models)
    return BETA * (policy - reference).sum()


def check_pairs(models, rewards) -> None:
    """Replies under prompts of their own, of several lengths."""
    asked = [PROMPT, "And what else, then?", PROMPT, "Why?"]
    rows = [
        {
            "prompt": prompt,
            "chosen": REPLIES[number],
            "rejected": REPLIES[-number - 1],
            "id": number,
        }
        for number, prompt in enumerate(asked)
    ]
    judged = rewards.score_pairs(rows)
    for side in ("chosen", "rejected"):
        expected = np.array([of_torch(models, row["prompt"], row[side]) for row in rows])
        parity.assert_close(judged[f"reward_{side}"].to_numpy(), expected, scale=expected.std())
    assert judged["id"].to_list() == [0, 1, 2, 3]


CHECKS = {"vocabulary": check_vocabulary, "replies": check_replies, "pairs": check_pairs}


@pytest.mark.parametrize("check", CHECKS)
def test_implicit_rewards_are_those_of_torch(pair, check):
    CHECKS[check](*pair)


def prompt_counted(right, self, opened, rows, *span):
    """The probability of the prompt's own tokens counts too."""
    if isinstance(rows, ConversationReplies):
        rows.given[:] = 1
        return right(self, opened, rows, *span)
    return [
        rewards + self.plain([rows.prompt.prefix], 1)[0]
        for rewards in right(self, opened, rows, *span)
    ]


BUGS = {
    "swapped": instead(implicit, "difference", lambda right, own, other, b: right(other, own, b)),
    "no beta": instead(implicit, "difference", lambda right, own, other, b: right(own, other, 1.0)),
    "the prompt counted": instead(LanguageScorer, "score", prompt_counted),
}


@pytest.mark.parametrize("bug", slow.all_but(["swapped"], BUGS))
def test_a_planted_bug_fails_parity(pair, monkeypatch, bug):
    BUGS[bug](monkeypatch)
    for check in CHECKS.values():
        with pytest.raises(AssertionError, match="relative error"):
            check(*pair)
