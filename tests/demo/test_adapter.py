"""An adapter on SmolLM2 with a larger vocabulary, merged, against torch that keeps it apart."""

import copy
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from demo import build
from demo.embedded_models import EMBEDDED
from tests.support import adapters, folders, parity

SLUG = "smollm2-135m-d12-imdb-linear"  # the shallowest
CASE = adapters.Adapter(
    rank=16,
    alpha=8,
    rslora=True,
    ranks={"q_proj": 1, "layers.3.mlp.up_proj": 8},
    alphas={"o_proj": 2},
    rows=49_160,
)
REPLIES = 24


@pytest.mark.slow
def test_rewards_of_an_adapter_on_smollm2_are_those_of_torch_unmerged(tmp_path):
    [base] = build.build(tmp_path / "hf", [EMBEDDED[SLUG]])
    trained = AutoModelForSequenceClassification.from_pretrained(base, dtype="bfloat16").eval()
    untouched = copy.deepcopy(trained).float()
    model = adapters.write_on(CASE, trained, tmp_path)
    for file in base.glob("*token*"):  # that of tests has too few tokens for this embedding
        shutil.copy(file, tmp_path / "adapter" / file.name)
    checkpoint = folders.convert(
        tmp_path / "adapter", tmp_path / "checkpoint", merge_dtype="float32"
    )
    restored = parity.restore(checkpoint)
    ids = np.random.default_rng(0).integers(0, CASE.rows, (REPLIES, 32))
    actual = restored.scorer.plain_rewards([list(row) for row in ids])[0]
    with torch.inference_mode():
        expected = model.score(model.model(torch.tensor(ids)).last_hidden_state[:, -1])[:, 0]
        known = torch.tensor(ids % trained.config.vocab_size)
        before = untouched.score(untouched.model(known).last_hidden_state[:, -1])[:, 0]
    assert (expected - before).std() > 0.1 * expected.std()  # the adapter acts
    parity.assert_close(actual, expected.numpy(), scale=float(expected.std()))
