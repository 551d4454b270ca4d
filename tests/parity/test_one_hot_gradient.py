"""The gradient by one-hot rows, against finite differences of torch in float64."""

import contextlib
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
from tests.support.searches import settings

DECODERS = {"linear": "gqa-llama3", "linear on a mixture": "mixtral"}
# Weights by the response; a gate that reads the prompt, with an embedding that is scaled.
HEADS = (*DECODERS, "URM", "QRM-Gemma")
LENGTH, WAYS = 4, 6
SIGNS = (1.0, -1.0)
PROMPT = prompt()  # the gate reads in it


@pytest.fixture(scope="module")
def case_of(loaded, pair_of):
    """Name -> torch trunk and head, both in float64, and the engine's scorer."""

    @functools.cache
    def build(name):
        if name in DECODERS:
            pair = pair_of(DECODERS[name])
            model, scorer = copy.deepcopy(pair.model).double(), pair.restored.scorer
            return model.base_model, lambda h, gate: model.score(h)[0], scorer
        case = loaded(name)
        head = copy.deepcopy(case.head).double()
        trunk = copy.deepcopy(case.trunk).double()
        return trunk, lambda h, gate: head(h, gate).reward, case.restored.scorer

    return build


def ids_and_ways(seed=5):
    """A reply [T], and ways to change its one-hot rows [W, T, V]: one token for another, or any."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, torch_models.VOCAB_SIZE, LENGTH)
    ways = rng.standard_normal((WAYS, LENGTH, torch_models.VOCAB_SIZE)) / 10
    for way, token in zip(
        ways[:LENGTH], rng.integers(0, torch_models.VOCAB_SIZE, LENGTH), strict=True
    ):
        place = rng.integers(LENGTH)
        way[:] = 0
        way[place, token], way[place, ids[place]] = 1, -1
    return ids, ways


@contextlib.contextmanager
def doubled():
    """Where a model of any dtype would cast norms and softmax to float32, float64."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "float32", torch.float64)
        patch.setattr(torch, "float", torch.float64)
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        yield


@torch.no_grad()
def differences(trunk, head, step=1e-4):
    """Central differences of the reward along each way: float64 [W]."""
    ids, ways = ids_and_ways()
    embedding = trunk.get_input_embeddings()(torch.arange(torch_models.VOCAB_SIZE))
    one_hot = np.eye(torch_models.VOCAB_SIZE)

    def reward(reply_rows):
        whole = torch.tensor(np.concatenate([one_hot[list(PROMPT.prefix)], reply_rows]))
        hidden = trunk(inputs_embeds=(whole @ embedding)[None]).last_hidden_state[0]
        return float(head(hidden[-1], hidden[last_occurrence(PROMPT.prefix)]))

    reply = one_hot[ids]
    with doubled():
        return np.array(
            [(reward(reply + step * w) - reward(reply - step * w)) / (2 * step) for w in ways]
        )


def slopes(scorer):
    """The engine's gradients of the signed rewards, along each way: [A, W]."""
    what = StepInputs(
        prefix=scorer.prefill(PROMPT, LENGTH),
        length=jnp.array(len(PROMPT.prefix)),
        suffix=jnp.zeros(0, jnp.int32),
        allowed=jnp.ones(torch_models.VOCAB_SIZE, bool),
        signs=jnp.array(SIGNS),
    )
    ids, ways = ids_and_ways()
    parents = jnp.asarray(np.tile(ids, (2, 1)), jnp.int32)

    @jax.jit
    def gradients(params, what):
        with jax.default_matmul_precision("highest"):
            return slopes_of(
                nnx.merge(scorer.graph, params), what, parents, settings(), scorer.mesh
            )[1]

    found = np.asarray(gradients(scorer.params, what), np.float64)
    return np.einsum("ATV,WTV->AW", found, ways)


def check(case):
    trunk, head, scorer = case
    expected, found = differences(trunk, head), slopes(scorer)
    for sign, along in zip(SIGNS, found, strict=True):
        parity.assert_close(along, sign * expected, scale=np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
def test_the_one_hot_gradient_is_the_finite_difference(case_of, name):
    check(case_of(name))


def without_gradient(patch, owner, name):
    right = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **kw: jax.lax.stop_gradient(right(*args, **kw)))


BUGS = {
    "URM's weights taken for constants": ("URM", jax.nn, "selu"),
    "the router taken for a constant": ("linear on a mixture", layer, "route"),
    "the last norm taken for a constant": ("linear", heads, "final_norm"),
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_gradient_that_leaves_something_out_differs(case_of, monkeypatch, bug):
    name, owner, function = BUGS[bug]
    case = case_of(name)
    without_gradient(monkeypatch, owner, function)
    with pytest.raises(AssertionError, match="relative error"):
        check(case)
