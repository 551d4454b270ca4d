"""The embedded reward models, built from the package that ships the weights."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from demo import build
from demo.models import EMBEDDED
from engine import api
from engine.candidates import Bucket, token_candidates
from engine.checkpoint import hf
from engine.prompts import TemplatePolicy
from engine.sweep import score_buckets

SLUG = "smollm2-135m-d12-imdb-linear"  # the shallowest, so that torch's whole passes are affordable
PROMPT = "What, in one word, is the greatest thing ever?"
TOKENS = 1000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    [folder] = build.build(tmp_path_factory.mktemp("hf"), [EMBEDDED[SLUG]])
    return folder


@pytest.fixture(scope="module")
def model(folder, tmp_path_factory):
    policy = TemplatePolicy(bos="template", date=None)
    destination = tmp_path_factory.mktemp("checkpoints") / SLUG
    hf.convert(hf.fetch(str(folder), None), destination, slug=SLUG, policy=policy)
    return api.load(destination, dtype="float32")


@torch.inference_mode()
def by_transformers(folder, sequences: np.ndarray) -> np.ndarray:
    """Rewards of whole conversations by transformers' own class: no shared prefix."""
    network = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    batches = torch.from_numpy(sequences).split(100)
    return torch.cat([network(input_ids=batch).logits[:, 0] for batch in batches]).numpy()


def test_rewards_of_1000_random_tokens_agree_with_transformers(folder, model):
    ids = np.random.default_rng(0).choice(49_152, TOKENS, replace=False)
    prompt = model._checkpoint.template.split(PROMPT)
    rows = np.arange(TOKENS)
    bucket = Bucket(candidates=token_candidates(prompt, ids), rows=rows, row_candidate=rows)
    prefix = model._scorer.prefill(prompt)
    [actual] = score_buckets(model._scorer, prefix, [bucket], TOKENS)
    conversations = np.array([[*prompt.prefix, token, *prompt.suffix] for token in ids])
    expected = by_transformers(folder, conversations)
    assert expected.std() > 0.5
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def test_a_word_scores_the_same_as_text_and_by_id(model):
    by_text = model.score(PROMPT, ["love", "War"])
    by_ids = model.score(PROMPT, ["love", "War"], mode="ids")
    np.testing.assert_allclose(by_text, by_ids, rtol=1e-5)


def test_a_folder_that_is_whole_is_not_built_again(folder):
    before = (folder / "model.safetensors").stat().st_mtime_ns
    build.build(folder.parent, [EMBEDDED[SLUG]])
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
