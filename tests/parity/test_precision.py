"""Every matrix product of every compiled pass asks for full precision.

A GPU rounds float32 operands to 10 bits (TF32) and a TPU to 7 (bfloat16) unless a program says
otherwise; a CPU does neither, so that no reward shows it there. What passes ask for is in their
StableHLO, which is the same on every device.
"""

import re

import jax
import numpy as np
import pytest

from engine import mesh as meshes
from engine.scoring.language_passes import LanguageScorer
from engine.search.gcg import build_step, build_step_inputs, start
from tests.parity import test_language_models as language
from tests.support import folders, parity, searches, slow

FULL = "precision = [HIGHEST, HIGHEST]"


def check(*lowered) -> None:
    """The matrix products of lowered programs, of which each has some."""
    for program in lowered:
        text = program.as_text()
        assert "stablehlo.convolution" not in text
        found = re.findall(r"stablehlo\.dot_general .*", text)
        assert found
        assert [line for line in found if FULL not in line] == []


def scoring_programs(scorer, prompt, whole):
    """Prefill, step and plain pass, of one prompt and of two whole sequences."""
    prompt, whole = meshes.put(scorer.mesh, prompt, "P"), meshes.put(scorer.mesh, whole, "CT")
    prefix = jax.eval_shape(scorer.prefill_step, scorer.params, *prompt)
    prefix = prefix[0] if isinstance(scorer, LanguageScorer) else prefix
    candidates = meshes.put(scorer.mesh, parity.whole_candidates(2), "CT")
    yield scorer.prefill_step.lower(scorer.params, *prompt)
    yield scorer.score_step.lower(scorer.params, prefix, candidates)
    yield scorer.plain_step.lower(scorer.params, *whole)


IDS, LAST = np.ones((2, 16), np.int32), np.full(2, 15, np.int32)


def reward_programs(scorer):
    gate_at = np.zeros(len(scorer.gate_patterns), np.int32)
    return scoring_programs(scorer, (IDS[0], gate_at), (IDS, LAST, np.tile(gate_at, (2, 1))))


def language_programs(scorer):
    return scoring_programs(scorer, (IDS[0], LAST[:1]), (IDS, np.zeros(2, np.int32), LAST))


def test_passes_of_a_linear_head_ask_for_full_precision(pair_of):
    check(*reward_programs(pair_of("gemma2").restored.scorer))


@pytest.mark.parametrize("name", slow.all_but(["QRM-Gemma"], ["URM", "INF-ORM"]))
def test_heads_and_gates_ask_for_full_precision(loaded, name):
    check(*reward_programs(loaded(name).restored.scorer))


def test_passes_of_a_language_model_ask_for_full_precision(pair_of, tmp_path):
    source = language.saved(tmp_path / "hf", "gemma2")
    checkpoint = folders.convert(source, tmp_path / "checkpoint")
    check(*language_programs(parity.restore(checkpoint).scorer))


@pytest.mark.slow
def test_a_search_asks_for_full_precision(checkpoint):
    """In a step with its gradient and the distance of embeddings."""
    model = checkpoint()
    objective, scorer = searches.problem(model, method="paper"), searches.scorer(model)
    state = start(np.zeros((2, 2), np.uint32), objective.initial(), objective.settings.buffer)
    arguments = scorer.params, build_step_inputs(objective, scorer), state
    expand, _ = build_step(scorer.graph, scorer.mesh, objective.settings)
    check(expand.lower(*arguments))
