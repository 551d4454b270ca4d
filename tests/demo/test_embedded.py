"""The embedded models, built from the package that ships the weights, against transformers."""

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from configs import prompts
from demo import build
from demo.embedded_models import EMBEDDED, LANGUAGE_MODEL, PROMPTS, SMALL
from engine import api
from engine.scoring.batches import token_candidates
from engine.scoring.rows import ContinuationRows
from engine.sweep.logprob_jobs import cue_of
from tests.support import folders

SLUG = "smollm2-135m-d12-imdb-linear"  # the shallowest, so that torch's whole passes are affordable
PROMPT = "What, in one word, is the greatest thing ever?"
REPLIES = ["Love", "The universe.", "Unconditional love, as far as anyone knows", "é\n", "Zebra"]
TOKENS = 128


def built(spec, tmp_path_factory):
    """The folder of a model, and what the engine loads of its conversion."""
    [folder] = build.build(tmp_path_factory.mktemp("hf"), [spec])
    converted = folders.convert(folder, tmp_path_factory.mktemp("checkpoints") / spec.slug)
    return folder, api.load(converted.path, dtype="float32")


@pytest.fixture(scope="module")
def reward_model(tmp_path_factory):
    return built(EMBEDDED[SLUG], tmp_path_factory)


@torch.inference_mode()
def by_transformers(folder, asked, ids: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Rewards of tokens behind prompts, [J, C], by transformers' own class: no shared prefix."""
    network = AutoModelForSequenceClassification.from_pretrained(folder, dtype=dtype).eval()
    rewards = []
    for prompt in asked:
        sequences = [[*prompt.prefix, token, *prompt.suffix] for token in ids]
        batches = torch.tensor(sequences).split(64)
        rewards.append(torch.cat([network(input_ids=batch).logits[:, 0] for batch in batches]))
    return torch.stack(rewards).float().numpy()


def by_assay(model, asked, ids: np.ndarray) -> np.ndarray:
    """The same by the engine, behind shared prefixes."""
    scorer = model._scorer
    rewards = [scorer.rewards(scorer.prefill(p), token_candidates(p, ids)) for p in asked]
    return np.concatenate(rewards)


def test_rewards_of_random_tokens_agree_with_transformers(reward_model):
    folder, model = reward_model
    ids = np.random.default_rng(0).choice(49_152, TOKENS, replace=False)
    asked = [model._checkpoint.template.split(PROMPT)]
    actual = by_assay(model, asked, ids)
    expected = by_transformers(folder, asked, ids, torch.float32)
    assert expected.std() > 0.5
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def test_the_error_in_bfloat16_is_no_larger_than_that_of_transformers(reward_model):
    """Over many prompts: what is rounded in a prompt's prefix, all its replies share."""
    folder, model = reward_model
    ids = np.random.default_rng(1).choice(49_152, 4, replace=False)
    texts = list(prompts.FOLLOW_UP.values())[::4]
    asked = [model._checkpoint.template.split(text) for text in texts]
    exact = by_transformers(folder, asked, ids, torch.float32)
    theirs = by_transformers(folder, asked, ids, torch.bfloat16) - exact
    ours = by_assay(api.load(model._checkpoint.path, dtype="bfloat16"), asked, ids) - exact
    print(
        f"{exact.size} rewards of sd {exact.std():.3g}; error rms, largest:",
        *(
            f"{who} {np.sqrt(np.square(e).mean()):.2e} {np.abs(e).max():.2e}"
            for who, e in (("assay", ours), ("transformers", theirs))
        ),
    )
    assert 0 < np.square(ours).mean() <= np.square(theirs).mean()
    assert np.abs(ours).max() <= np.abs(theirs).max()


def test_a_kept_token_of_the_small_model_has_the_reward_of_the_whole_one(
    reward_model, tmp_path_factory
):
    _, small = built(SMALL, tmp_path_factory)
    kept = np.array(build.kept_ids(gguf.GGUFReader(build.find_gguf()), SMALL.vocabulary))
    ids = np.random.default_rng(2).choice(SMALL.vocabulary, 16, replace=False)
    rewards = [
        by_assay(model, [model._checkpoint.template.split(text) for text in PROMPTS], tokens)
        for model, tokens in ((small, ids), (reward_model[1], kept[ids]))
    ]
    np.testing.assert_allclose(*rewards, rtol=1e-5)


def test_log_probabilities_of_the_language_model_agree_with_transformers(tmp_path_factory):
    """All of its layers: next tokens in plain form, replies in that of a chat."""
    folder, model = built(LANGUAGE_MODEL, tmp_path_factory)
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def by_torch(ids) -> np.ndarray:
        """Of every token after each position: float32 [T, V]."""
        return torch.log_softmax(network(input_ids=torch.tensor([ids])).logits[0], -1).numpy()

    def cued(form):
        rows = ContinuationRows(cue_of(model._checkpoint, PROMPT, form), REPLIES)
        return rows.ids, list(rows.prompt.prefix)

    _, prefix = cued("pretrained")
    swept = model.sweep(PROMPT, form="pretrained").sort("token_id")["logprob"]
    expected = by_torch(prefix)[-1]
    np.testing.assert_allclose(swept, expected, atol=1e-4 * expected.std(), rtol=0)
    ids, prefix = cued("chat")
    scored = model.logprobs(PROMPT, REPLIES, form="chat")
    for own, actual in zip(ids, scored, strict=True):
        after = by_torch([*prefix, *own])[len(prefix) - 1 : -1]
        assert actual == pytest.approx(after[range(len(own)), own].sum(), rel=1e-4)
