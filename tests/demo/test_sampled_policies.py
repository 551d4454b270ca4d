"""Exact policies over the real vocabulary against sampling, within Monte Carlo error."""

import dataclasses

import numpy as np
import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM

from analysis.measures.policies import BEST_OF_N, OPTIMAL, policies_of
from analysis.measures.reference_policy import VOCABULARY, Replies
from analysis.statistics.exact_policies import best_of, normalised
from demo import build
from demo.embedded_models import EMBEDDED, LANGUAGE_MODEL
from engine import api
from engine.convert.conversion import convert_model
from engine.convert.hub import fetch
from engine.text.chat_template import TemplatePolicy

SLUG = "smollm2-135m-d12-imdb-linear"
PROMPT = "What, in one word, is the greatest thing ever?"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """An embedded head behind two of its twelve layers: 49,152 rewards in seconds."""
    shallow = dataclasses.replace(EMBEDDED[SLUG], depth=2)
    [folder] = build.build(tmp_path_factory.mktemp("hf"), [shallow])
    policy = TemplatePolicy(bos="template", date=None)
    destination = tmp_path_factory.mktemp("checkpoints") / SLUG
    convert_model(fetch(str(folder), None), destination, slug=SLUG, policy=policy)
    return api.load(destination, dtype="float32")


@pytest.fixture(scope="module")
def replies(model, tmp_path_factory):
    """Every token of the vocabulary: its probability in SmolLM2, and its reward."""
    [whole] = build.build(tmp_path_factory.mktemp("lm"), [LANGUAGE_MODEL])
    network = AutoModelForCausalLM.from_pretrained(whole, dtype=torch.float32).eval()
    prefix = torch.tensor([model._checkpoint.template.split(PROMPT).prefix])
    with torch.inference_mode():
        logits = network(input_ids=prefix).logits[0, -1].double()
    swept = model.sweep(PROMPT).sort("token_id")
    return Replies(
        of=VOCABULARY,
        prompt="greatest",
        reference=LANGUAGE_MODEL.slug,
        form="greatest",
        ids=swept["token_id"].to_numpy(),
        texts=swept["token"],
        log_p=normalised(torch.log_softmax(logits, -1).numpy()[swept["token_id"].to_numpy()]),
        covered=1.0,
        models=(SLUG,),
        rewards=swept["reward"].to_numpy().astype(np.float64)[None],
    )


def drawn(replies, rng, size):
    """Tokens (places) that are drawn from the reference policy."""
    total = np.cumsum(np.exp(replies.log_p))
    return np.searchsorted(total, rng.random(size) * total[-1], side="right")


@pytest.mark.parametrize("nats", [0.5, 1.0, 2.0])
def test_exact_policies_of_the_real_vocabulary_agree_with_sampling(replies, nats):
    """Draws from the reference, weighted by exp(r / β), against the closed forms."""
    assert len(replies.log_p) == 49_152
    table = policies_of(replies).filter(pl.col("kl").round(6) == nats, method=OPTIMAL)
    (exact,) = table.to_dicts()
    picked = drawn(replies, np.random.default_rng(0), 400_000)
    r, log_p = replies.rewards[0, picked], replies.log_p[picked]
    exponent = r / exact["beta"]
    top = exponent.max()
    weights = np.exp(exponent - top)
    log_z = np.log(weights.mean()) + top
    weights /= weights.mean()
    log_ratio = exponent - log_z  # of the optimal policy to the reference
    measured = {"reward": r, "kl": log_ratio, "entropy": -log_p - log_ratio}
    for name, values in measured.items():
        found = (weights * values).mean()
        # log Z has an error of its own, of the weights.
        own = {"kl": 1 - weights, "entropy": weights - 1}.get(name, 0.0)
        error = np.std(weights * (values - found) + own) / np.sqrt(len(picked))
        assert 0 < error < 0.05 * abs(found), name
        assert abs(found - exact[name]) < 4 * error, name


@pytest.mark.parametrize("n", [4, 64])
def test_best_of_n_of_the_real_vocabulary_agrees_with_sampling(replies, n):
    """The best of n draws, drawn many times, against the closed form."""
    (exact,) = policies_of(replies).filter(n=n, method=BEST_OF_N).to_dicts()
    picked = drawn(replies, np.random.default_rng(n), (40_000, n))
    rewards = replies.rewards[0]
    best = picked[np.arange(len(picked)), rewards[picked].argmax(axis=1)]
    policy = best_of(replies.log_p, rewards, n)
    measured = {
        "reward": rewards[best],
        "kl": policy[best] - replies.log_p[best],
        "entropy": -policy[best],
        "top_share": (replies.ids[best] == exact["top_id"]).astype(float),
    }
    for name, values in measured.items():
        error = values.std() / np.sqrt(len(values))
        assert 0 < error < 0.05 * abs(values.mean()), name
        assert abs(values.mean() - exact[name]) < 4 * error, name
