"""The gradient by one-hot rows, against that of torch in float64."""

import copy
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from engine.models import heads, layer
from engine.search.objective import StepInputs, slopes_of
from tests.support import parity, torch_models
from tests.support.heads import last_occurrence, prompt
from tests.support.planted import instead
from tests.support.searches import settings

DECODERS = {"linear": "gqa-llama3", "on a mixture": "mixtral", "on the delta rule": "qwen3_5"}
# Weights by the response; a gate that reads the prompt, with an embedding that is scaled.
HEADS = ("URM", "QRM-Gemma")
PROMPTS = (5, 60, 200)  # of the delta rule: less than a chunk, less than the padded one, several
SIGNS = (1.0, -1.0)
REPLY = parity.random_ids(4, seed=5)
GATED = prompt()  # a gate reads in it


@pytest.fixture(scope="module")
def case_of(loaded, pair_of):
    """Name -> torch trunk and head, both in float64, and the engine's scorer."""

    @functools.cache
    def build(name):
        if name in DECODERS:
            pair = pair_of(DECODERS[name])
            model, scorer = copy.deepcopy(pair.model).double(), pair.restored.scorer
            return model.base_model, lambda hidden: model.score(hidden[-1])[0], scorer
        case, at_gate = loaded(name), last_occurrence(GATED.prefix)
        head = copy.deepcopy(case.head).double()
        trunk = copy.deepcopy(case.trunk).double()
        return trunk, lambda hidden: head(hidden[-1], hidden[at_gate]).reward, case.restored.scorer

    return build


def by_torch(trunk, head, asked) -> np.ndarray:
    """The reward's gradient with respect to the reply's one-hot rows: float64 [T, V]."""
    one_hot = torch.eye(torch_models.VOCAB_SIZE, dtype=torch.float64)
    reply = one_hot[REPLY].requires_grad_()
    whole = torch.cat([one_hot[list(asked.prefix)], reply])
    embedding = trunk.get_input_embeddings()(torch.arange(len(one_hot)))
    hidden = trunk(inputs_embeds=(whole @ embedding)[None]).last_hidden_state[0]
    head(hidden).backward()
    return reply.grad.numpy()


def slopes(scorer, asked) -> np.ndarray:
    """The engine's gradients of the signed rewards: [A, T, V]."""
    room = max(PROMPTS) + len(REPLY) - len(asked.prefix)  # so that a model is compiled once
    what = StepInputs(
        prefix=scorer.prefill(asked, room),
        length=jnp.array(len(asked.prefix)),
        suffix=jnp.zeros(0, jnp.int32),
        allowed=jnp.ones(torch_models.VOCAB_SIZE, bool),
        signs=jnp.array(SIGNS),
    )
    parents = jnp.asarray(np.tile(REPLY, (2, 1)))

    @jax.jit
    def gradients(params, what):
        with jax.default_matmul_precision("highest"):
            return slopes_of(
                nnx.merge(scorer.graph, params), what, parents, settings(), scorer.mesh
            )[1]

    return np.asarray(gradients(scorer.params, what))


def check(case, asked=GATED):
    trunk, head, scorer = case
    expected, found = by_torch(trunk, head, asked), slopes(scorer, asked)
    for sign, gradient in zip(SIGNS, found, strict=True):
        parity.assert_close(gradient, sign * expected, scale=np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear", "on a mixture", *HEADS])
def test_the_one_hot_gradient_is_that_of_torch(case_of, name):
    check(case_of(name))


@pytest.mark.slow
@pytest.mark.parametrize("positions", PROMPTS)
def test_the_one_hot_gradient_behind_a_prompt_of_any_length_is_that_of_torch(case_of, positions):
    check(case_of("on the delta rule"), parity.prompt_ids(positions))


def without_gradient(right, *args, **kw):
    return jax.lax.stop_gradient(right(*args, **kw))


BUGS = {
    "URM's weights taken for constants": ("URM", jax.nn, "selu"),
    "the router taken for a constant": ("on a mixture", layer, "route"),
    "the last norm taken for a constant": ("linear", heads, "final_norm"),
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_gradient_that_leaves_something_out_differs(case_of, monkeypatch, bug):
    name, owner, function = BUGS[bug]
    case = case_of(name)
    instead(owner, function, without_gradient)(monkeypatch)
    with pytest.raises(AssertionError, match="relative error"):
        check(case)
