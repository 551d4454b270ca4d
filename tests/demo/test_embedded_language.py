"""The embedded language model, all of its layers, against transformers on the same folder."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from demo import build
from demo.embedded_models import LANGUAGE_MODEL
from engine.checkpoint.restore import restore
from engine.convert.conversion import convert_model
from engine.convert.hub import fetch
from engine.mesh import build_mesh
from engine.scoring.language_passes import LanguageScorer
from engine.scoring.rows import ContinuationRows
from engine.sweep.logprob_jobs import cue_of
from engine.text.chat_template import TemplatePolicy

PROMPT = "What, in one word, is the greatest thing ever?"
REPLIES = ["Love", "The universe.", "Unconditional love, as far as anyone knows", "é\n", "Zebra"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    [folder] = build.build(tmp_path_factory.mktemp("hf"), [LANGUAGE_MODEL])
    return folder


@pytest.fixture(scope="module")
def checkpoint(folder, tmp_path_factory):
    policy = TemplatePolicy(bos="template", date=None)
    destination = tmp_path_factory.mktemp("checkpoints") / LANGUAGE_MODEL.slug
    source = fetch(str(folder), None)
    return convert_model(source, destination, slug=LANGUAGE_MODEL.slug, policy=policy)


@pytest.fixture(scope="module")
def scorer(checkpoint):
    mesh = build_mesh()
    restored = restore([checkpoint], mesh, np.dtype("float32"))
    return LanguageScorer.build(*restored, mesh, step_size=64)


@pytest.fixture(scope="module")
def by_transformers(folder):
    """Token ids -> log p of every token after each position, float32 [T, V]."""
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def run(ids) -> np.ndarray:
        return torch.log_softmax(network(input_ids=torch.tensor([ids])).logits[0], -1).numpy()

    return run


@pytest.mark.parametrize("form", ["pretrained", "chat"])
def test_log_probabilities_agree_with_transformers(checkpoint, scorer, by_transformers, form):
    rows = ContinuationRows(cue_of(checkpoint, PROMPT, form), REPLIES)
    prefix = list(rows.prompt.prefix)
    opened = scorer.prefill(rows.prompt)
    expected = by_transformers(prefix)[-1]
    np.testing.assert_allclose(opened.logprobs, expected, atol=1e-4 * expected.std(), rtol=0)

    scored = scorer.score(opened, rows, 0, len(rows), lambda done: None)[0][0]
    for own, actual in zip(rows.ids, scored, strict=True):
        logprobs = by_transformers([*prefix, *own])[len(prefix) - 1 : -1]
        assert actual == pytest.approx(logprobs[range(len(own)), own].sum(), rel=1e-4)
