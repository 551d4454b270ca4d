"""Reward heads with attributes and gates, against references written in torch from the formulas.

The published classes are custom code, which is never executed: here each head is plain torch on a
random LlamaModel or Gemma2Model, saved under the key names and module indices of its checkpoints.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from safetensors.torch import load_file, save_file
from torch import nn

from engine.checkpoint import gating, hf
from engine.checkpoint.store import Card, Checkpoint
from engine.errors import AssayError
from engine.models import heads
from engine.models.reward_model import RewardModels
from engine.prompts import TemplatePolicy
from engine.scoring import Scorer, gate_position
from engine.types import PromptIds
from tests.models import families, parity, reference

PATTERN = (7, 11, 13)  # stands for the published patterns, whose ids a tiny vocabulary lacks
HIDDEN = 20
QUANTILES = 19


class URM(nn.Module):
    """weights.fc: Linear, SELU, Linear, SELU, Linear."""

    gated = False

    def __init__(self, width: int, helpfulness: bool = False):
        super().__init__()
        self.helpfulness = helpfulness
        self.score = nn.Linear(width, 10, bias=False)
        self.weights = nn.Module()
        self.weights.fc = nn.Sequential(
            nn.Linear(width, HIDDEN), nn.SELU(), nn.Linear(HIDDEN, 16), nn.SELU(), nn.Linear(16, 5)
        )

    def forward(self, h, at_gate):
        means = self.score(h).reshape(5, 2)[:, 0]
        reward = means[0] if self.helpfulness else (means * self.weights.fc(h)).sum()
        return reward, means


class Gated(nn.Module):
    """ArmoRM and QRM; `modules` is the gate with the published indices."""

    gated = True

    def __init__(self, width, modules, *, objectives, quantiles, transform, temperature):
        super().__init__()
        self.gating = nn.Module()
        self.gating.layers = nn.ModuleList(modules)
        self.gating.logit_scale = nn.Parameter(torch.tensor(1.296875))
        self.regression_layer = nn.Linear(width, objectives * quantiles, bias=False)
        self.reward_transform_matrix = (
            nn.Parameter(torch.eye(objectives) + 0.3 * torch.randn(objectives, objectives))
            if transform
            else None
        )
        self.shape, self.temperature = (objectives, quantiles), temperature

    def gate(self, at_gate):
        x = at_gate[None]
        for index, module in enumerate(self.gating.layers):
            x = module(x)
            if len(self.gating.layers) == 4 and index < 3:  # ArmoRM: ReLU outside of the list
                x = torch.relu(x)
        return torch.softmax(x[0] / self.temperature, dim=-1) * self.gating.logit_scale

    def forward(self, h, at_gate):
        objectives = self.regression_layer(h).reshape(self.shape).mean(-1)
        mixed = objectives
        if self.reward_transform_matrix is not None:
            mixed = objectives @ self.reward_transform_matrix
        return (self.gate(at_gate) * mixed).sum(), objectives

    def coefficients(self, at_gate):
        """They sum the objectives to the reward."""
        gate = self.gate(at_gate)
        return gate if self.reward_transform_matrix is None else self.reward_transform_matrix @ gate


def armorm(width: int) -> Gated:
    sizes = [width, HIDDEN, HIDDEN, HIDDEN, 19]
    modules = [nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
    return Gated(width, modules, objectives=19, quantiles=1, transform=True, temperature=10.0)


def _blocks(width: int, dropout: bool) -> list[nn.Module]:
    """Three of Linear (no bias), ReLU, BatchNorm, and in QRM-Gemma Dropout between them."""
    modules: list[nn.Module] = []
    for block in range(3):
        modules += [nn.Linear(width, HIDDEN, bias=False), nn.ReLU(), nn.BatchNorm1d(HIDDEN)]
        modules += [nn.Dropout(0.2)] * (dropout and block < 2)
        width = HIDDEN
    return modules


def qrm_llama(width: int, objectives: int = 19) -> Gated:
    modules = [*_blocks(width, dropout=False), nn.Linear(HIDDEN, objectives)]
    return Gated(width, modules, objectives=objectives, quantiles=QUANTILES, transform=True,
                 temperature=5.0)  # fmt: skip


def qrm_gemma(width: int, temperature: float = 1.0) -> Gated:
    modules = [*_blocks(width, dropout=True), nn.Linear(HIDDEN, 5)]
    return Gated(width, modules, objectives=5, quantiles=QUANTILES, transform=False,
                 temperature=temperature)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Case:
    """A head, the trunk it is published on, and what its config.json and the user say."""

    head: Callable[[int], nn.Module]
    trunk: str = "gqa-llama3"
    architecture: str = "LlamaForRewardModelWithGating"
    config: tuple[tuple[str, object], ...] = ()
    variant: str = ""


CASES = {
    "URM": Case(URM, architecture="LlamaForSequenceClassificationWithNormal_Weights"),
    "URM's helpfulness": Case(
        lambda width: URM(width, helpfulness=True),
        architecture="LlamaForSequenceClassificationWithNormal_Weights",
        variant="urm-helpfulness",
    ),
    "ArmoRM": Case(armorm),
    "QRM-Llama": Case(qrm_llama),
    "QRM-Llama v2": Case(lambda width: qrm_llama(width, objectives=5)),
    "QRM-Gemma": Case(qrm_gemma, "gemma2", "Gemma2ForRewardModelWithGating"),
    "QRM-Gemma, temperature in the config": Case(
        lambda width: qrm_gemma(width, temperature=2.5),
        "gemma2",
        "Gemma2ForRewardModelWithGating",
        (("gating_temperature", 2.5),),
    ),
}
GATED = [name for name in CASES if not name.startswith("URM")]


@dataclasses.dataclass(frozen=True)
class Loaded:
    """Torch trunk and head, and what conversion made of them."""

    trunk: torch.nn.Module
    head: nn.Module
    checkpoint: Checkpoint
    restored: parity.Restored

    @torch.no_grad()
    def expected(self, sequences: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
        """Rewards and objectives of whole sequences, one at a time."""
        rows = []
        for sequence in sequences:
            h = self.trunk(torch.tensor([list(map(int, sequence))])).last_hidden_state[0]
            gate_at = last_occurrence(sequence) if self.head.gated else 0
            rows.append(self.head(h[-1], h[gate_at]))
        rewards, objectives = zip(*rows, strict=True)
        return torch.stack(rewards).numpy(), torch.stack(objectives).numpy()


def last_occurrence(sequence: Sequence[int]) -> int:
    starts = range(len(sequence) - len(PATTERN) + 1)
    return max(i for i in starts if tuple(sequence[i : i + len(PATTERN)]) == PATTERN)


def trunk_of(name: str):
    return (
        families.build(name) if name in families.CONFIGS else reference.build(reference.SPECS[name])
    )


def random_head(case: Case, width: int) -> nn.Module:
    """Weights so large that every part of the head moves the reward; in evaluation mode."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        head = case.head(width).eval()
        for module in head.modules():
            if isinstance(module, nn.Linear):
                module.weight.data.normal_(0.0, 2.0 * module.in_features**-0.5)
            if isinstance(module, nn.BatchNorm1d):
                module.weight.data.normal_(1.0, 0.3)
                module.bias.data.normal_(0.0, 0.5)
                module.running_mean.normal_(0.5, 0.5)
                module.running_var.uniform_(0.3, 3.0)
        if head.gated:  # the softmax neither flat nor saturated
            for module in head.gating.modules():
                if isinstance(module, nn.Linear):
                    module.weight.data.div_(2.0)
            head.gating.layers[-1].weight.data.mul_(head.temperature)
    return head


def save(case: Case, head: nn.Module, folder: Path) -> Path:
    """As the model is published: trunk, `regression_layer`, `gating` or `weights`, config."""
    reference.save(trunk_of(case.trunk), folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors["score.weight"]
    save_file(tensors | head.state_dict(), folder / "model.safetensors", {"format": "pt"})
    auto_map = {"AutoModelForSequenceClassification": "modeling_custom.Custom"}
    reference.edit_json(folder / "config.json", architectures=[case.architecture],
                        auto_map=auto_map, **dict(case.config))  # fmt: skip
    return folder


def convert(folder: Path, destination: Path, variant: str = ""):
    policy = TemplatePolicy(bos="template", date=None)
    return hf.convert(
        hf.fetch(str(folder), None), destination, slug="model", policy=policy, head=variant
    )


@pytest.fixture(scope="module", autouse=True)
def _patterns_of_a_tiny_vocabulary():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gating, "PATTERNS", {"llama": PATTERN, "gemma2": PATTERN})
        yield


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """Name in `CASES` -> the head in torch and as the engine has it, objectives exposed."""
    built: dict[str, Loaded] = {}

    def build(name: str) -> Loaded:
        if name not in built:
            case, folder = CASES[name], tmp_path_factory.mktemp("head")
            model = trunk_of(case.trunk)
            head = random_head(case, model.config.hidden_size)
            save(case, head, folder / "hf")
            checkpoint = convert(folder / "hf", folder / "checkpoint", case.variant)
            restored = with_objectives(parity.restore(checkpoint))
            built[name] = Loaded(model.model, head, checkpoint, restored)
        return built[name]

    return build


def with_objectives(restored: parity.Restored) -> parity.Restored:
    """The same weights; results have a row an objective after the reward's."""
    scorer = restored.scorer
    merged = nnx.merge(restored.graph, scorer.params)
    merged.objectives = True
    graph, params = nnx.split(merged)
    rebuilt = Scorer.build(graph, params, scorer.mesh, step_size=scorer.step_size)
    return dataclasses.replace(restored, graph=graph, scorer=rebuilt)


def prompt() -> PromptIds:
    """The pattern twice, the last time short of the end; 60 positions."""
    ids = list(map(int, parity.random_ids(60, seed=1)))
    ids[20:23], ids[50:53] = PATTERN, PATTERN
    return PromptIds(prompt="?", prefix=tuple(ids), suffix=())


def candidates():
    """1 to 5 positions behind the whole prefix, in which the gate reads."""
    whole = parity.whole_candidates(5)
    rows = np.arange(len(whole), dtype=np.int32)
    return dataclasses.replace(whole, shared=np.full(len(whole), 60, np.int32), last=rows % 5)


def check(loaded: Loaded, restored: parity.Restored) -> None:
    """Rewards and objectives of the response pass, then of the plain pass."""
    sequences = parity.sequences_of(prompt(), candidates())
    rewards, objectives = loaded.expected(sequences)
    for actual in (
        parity.respond(restored.scorer, prompt(), candidates()),
        restored.scorer.plain_rewards(sequences),
    ):
        parity.assert_close(actual[0], rewards, scale=rewards.std())
        parity.assert_close(actual[1:], objectives.T, scale=objectives.std())


@pytest.mark.parametrize("name", CASES)
def test_rewards_and_objectives_are_those_of_the_formulas(loaded, name):
    case = loaded(name)
    check(case, case.restored)


@pytest.mark.parametrize("name", GATED)
def test_objectives_times_the_gates_coefficients_sum_to_the_reward(loaded, name):
    scorer = loaded(name).restored.scorer
    (coefficients,) = scorer.prefill(prompt()).gates
    reward, *objectives = parity.respond(scorer, prompt(), candidates())
    summed = np.asarray(coefficients) @ np.array(objectives)
    parity.assert_close(summed, reward, scale=reward.std(), tolerance=1e-5)


@pytest.mark.parametrize("name", GATED)
def test_the_gate_of_the_prefix_pass_is_that_of_the_formulas(loaded, name):
    case = loaded(name)
    (actual,) = case.restored.scorer.prefill(prompt()).gates
    prefix = prompt().prefix
    with torch.no_grad():
        hidden = case.trunk(torch.tensor([prefix])).last_hidden_state[0]
        at_gate = hidden[last_occurrence(prefix)]
        gate, expected = case.head.gate(at_gate), case.head.coefficients(at_gate).numpy()
    parity.assert_close(actual, expected, scale=np.abs(expected).max())
    assert gate.max() < 0.9 * gate.sum()  # not saturated: all of the gate shows in rewards


@pytest.mark.parametrize("name", CASES)
def test_a_card_with_its_head_survives_json(loaded, name):
    card = loaded(name).checkpoint.card
    assert Card.from_json(card.to_json()) == card


def test_a_gate_is_the_same_on_a_mesh_of_several_devices(loaded):
    case = loaded("QRM-Llama v2")
    mesh = parity.make_mesh(2, 2)
    check(case, with_objectives(parity.restore(case.checkpoint, mesh=mesh)))


def test_columns_are_named_after_the_objectives(loaded):
    helpsteer = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")
    for name in ("URM", "QRM-Llama v2", "QRM-Gemma"):
        assert loaded(name).restored.scorer.columns == (("reward", *helpsteer),)
    (armorm_columns,) = loaded("ArmoRM").restored.scorer.columns
    assert len(set(armorm_columns)) == 20
    assert armorm_columns[1] == "helpsteer-helpfulness"


@pytest.mark.parametrize(
    ("name", "temperature"),
    [
        ("ArmoRM", 10.0),
        ("QRM-Llama", 5.0),
        ("QRM-Llama v2", 5.0),
        ("QRM-Gemma", 1.0),
        ("QRM-Gemma, temperature in the config", 2.5),
    ],
)
def test_the_temperature_is_the_configs_or_the_published_classs(loaded, name, temperature):
    restored = loaded(name).restored
    readout = nnx.merge(restored.graph, restored.scorer.params).readouts[0]
    assert readout.config.gate_temperature == temperature


def test_the_published_indices_of_the_gates_modules_are_those_saved():
    def indices(head: nn.Module, kind: type) -> list[int]:
        return [i for i, module in enumerate(head.gating.layers) if isinstance(module, kind)]

    assert indices(armorm(8), nn.Linear) == [0, 1, 2, 3]
    assert indices(qrm_llama(8), nn.Linear) == [0, 3, 6, 9]
    assert indices(qrm_llama(8), nn.BatchNorm1d) == [2, 5, 8]
    assert indices(qrm_gemma(8), nn.Linear) == [0, 4, 8, 11]
    assert indices(qrm_gemma(8), nn.BatchNorm1d) == [2, 6, 10]


def test_the_gate_reads_at_the_start_of_the_last_occurrence():
    assert gate_position([*PATTERN, 1, *PATTERN, 2], PATTERN) == 4
    assert gate_position([1, *PATTERN], PATTERN) == 1
    assert gate_position([1, 2], ()) == 0


@pytest.mark.parametrize("ids", [[], [7, 11], [7, 11, 12, 13], [13, 11, 7]])
def test_a_prompt_without_the_gates_pattern_is_refused(ids):
    with pytest.raises(AssayError, match=r"does not hold the tokens \[7, 11, 13\] at which"):
        gate_position(ids, PATTERN)


def gate_read_at_the_end(patch):
    patch.setattr("engine.scoring.gate_position", lambda ids, pattern: len(prompt().prefix) - 1)


def gate_read_at_the_first_occurrence(patch):
    patch.setattr("engine.scoring.gate_position", lambda ids, pattern: 20)


def gate_from(change, temperature=None):
    """`change(head, softmax weights)` in place of the scaled and transformed gate."""

    def plant(patch):
        def gate(self, hidden):
            x = hidden
            for index, layer in enumerate(self.layers):
                x = x @ layer.weight[...] + layer.bias[...]
                x = x if index == len(self.layers) - 1 else jax.nn.relu(x)
            return change(self, jax.nn.softmax(x / (temperature or self.config.gate_temperature)))

        patch.setattr(heads.GatedHead, "gate", gate)

    return plant


def coefficients(self, gate):
    gate = gate * self.logit_scale
    return self.transform[...] @ gate if self.config.transform else gate


def first_quantile(patch):
    def call(self, hidden, gate):
        objectives = jnp.einsum("CD,RD->CR", hidden, self.weight[:, 0])
        return jnp.sum(objectives * gate, axis=-1), objectives

    patch.setattr(heads.GatedHead, "__call__", call)


def urm_weights(change):
    def plant(patch):
        def call(self, hidden, gate):
            return change(self, hidden)

        patch.setattr(heads.URMHead, "__call__", call)

    return plant


def _urm(self, hidden, column=0, squash=lambda weights: weights):
    means = jnp.einsum("CD,RD->CR", hidden, self.weight[:, column])
    x = jax.nn.selu(hidden @ self.weight_in[...] + self.bias_in)
    x = jax.nn.selu(x @ self.weight_mid[...] + self.bias_mid)
    weights = squash(x @ self.weight_out[...] + self.bias_out)
    return jnp.sum(means * weights, axis=-1), jnp.einsum("CD,RD->CR", hidden, self.weight[:, 0])


def relu_for_selu(patch):
    patch.setattr(jax.nn, "selu", jax.nn.relu)


# What is planted, and the head in which it shows.
BUGS = {
    "gate read at the last prefix position": (gate_read_at_the_end, "ArmoRM"),
    "gate read at the first occurrence": (gate_read_at_the_first_occurrence, "QRM-Gemma"),
    "no softmax temperature, ArmoRM": (gate_from(coefficients, temperature=1.0), "ArmoRM"),
    "no softmax temperature, QRM": (gate_from(coefficients, temperature=1.0), "QRM-Llama"),
    "ArmoRM's temperature for QRM": (gate_from(coefficients, temperature=10.0), "QRM-Llama v2"),
    "matrix transposed": (
        gate_from(lambda self, gate: self.transform[...].T @ (gate * self.logit_scale)),
        "QRM-Llama",
    ),
    "matrix left out": (gate_from(lambda self, gate: gate * self.logit_scale), "ArmoRM"),
    "logit_scale ignored": (gate_from(lambda self, gate: gate), "QRM-Gemma"),
    "logit_scale before the softmax": (
        gate_from(lambda self, gate: jax.nn.softmax(jnp.log(gate) * self.logit_scale)),
        "QRM-Gemma",
    ),
    "first quantile for their mean": (first_quantile, "QRM-Gemma"),
    "log-variances for means": (urm_weights(lambda self, h: _urm(self, h, column=1)), "URM"),
    "softmax over the weights": (
        urm_weights(lambda self, h: _urm(self, h, squash=jax.nn.softmax)),
        "URM",
    ),
    "ReLU for SELU": (relu_for_selu, "URM"),
    "all attributes for helpfulness": (urm_weights(_urm), "URM's helpfulness"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_planted_in_a_head_fails_parity(loaded, monkeypatch, bug):
    plant, name = BUGS[bug]
    case = loaded(name)
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="relative error"):
        check(case, case.restored.rebuilt())


def no_batch_norm(index, module):
    return np.ones_like(module["weight"]), np.zeros_like(module["weight"])


def batch_statistics_left_out(index, module):
    return module["weight"], module["bias"]


@pytest.mark.parametrize("affine", [no_batch_norm, batch_statistics_left_out])
@pytest.mark.parametrize("name", ["QRM-Llama v2", "QRM-Gemma"])
def test_a_batch_norm_left_out_fails_parity(loaded, tmp_path, monkeypatch, name, affine):
    monkeypatch.setattr(gating, "_affine", affine)
    case = loaded(name)
    save(CASES[name], case.head, tmp_path / "hf")
    restored = with_objectives(parity.restore(convert(tmp_path / "hf", tmp_path / "checkpoint")))
    with pytest.raises(AssertionError, match="relative error"):
        check(case, restored)


def test_folded_batch_norms_are_those_of_torch_in_float64():
    torch.manual_seed(0)
    head = random_head(CASES["QRM-Gemma"], 8)
    tensors = {name: value.numpy() for name, value in head.state_dict().items()}
    keys = {key for key in tensors if not key.endswith("num_batches_tracked")}
    gate = gating.read_gate(keys, tensors.__getitem__)
    x = np.random.default_rng(0).normal(size=(30, 8))
    expected = torch.tensor(x, dtype=torch.float64)
    for module in head.gating.layers.double():
        expected = module(expected)
    for weight, bias in gate.layers[:-1]:
        x = np.maximum(x @ weight + bias, 0)
    weight, bias = gate.layers[-1]
    np.testing.assert_allclose(x @ weight + bias, expected.detach().numpy(), atol=1e-4)


REFUSED = {
    "a missing logit_scale": (
        lambda tensors: tensors.pop("gating.logit_scale"),
        r"missing tensor 'gating\.logit_scale', a single number$",
    ),
    "a missing running mean": (
        lambda tensors: tensors.pop("gating.layers.2.running_mean"),
        r"gating\.layers\.2: \['bias', 'running_var', 'weight'\] is no linear layer$",
    ),
    "a gate's tensor of another name": (
        lambda tensors: tensors.update({"gating.other": torch.ones(1)}),
        r"tensor 'gating\.other' is part of no gate that is understood$",
    ),
    "missing objectives": (
        lambda tensors: tensors.pop("regression_layer.weight"),
        r"missing tensor 'regression_layer\.weight'$",
    ),
    "rows that are no whole number of quantiles": (
        lambda tensors: tensors.update({"regression_layer.weight": torch.ones(94, 32)}),
        r"tensor 'regression_layer\.weight' has shape \[94, 32\]; config\.json implies \[90, 32\]$",
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_gated_model_is_refused_by_name_for(loaded, tmp_path, reason):
    change, message = REFUSED[reason]
    save(CASES["QRM-Gemma"], loaded("QRM-Gemma").head, tmp_path / "hf")
    tensors = load_file(tmp_path / "hf" / "model.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "hf" / "model.safetensors")
    with pytest.raises(AssayError, match=message):
        convert(tmp_path / "hf", tmp_path / "checkpoint")


def test_a_head_variant_of_other_tensors_is_refused(loaded, tmp_path):
    save(CASES["ArmoRM"], loaded("ArmoRM").head, tmp_path / "hf")
    message = r"head='urm-helpfulness'; allowed for this checkpoint: 'gated'$"
    with pytest.raises(AssayError, match=message):
        convert(tmp_path / "hf", tmp_path / "checkpoint", "urm-helpfulness")


def test_models_without_objectives_asked_for_have_one_column():
    config = heads.HeadConfig(kind="urm", depth=1, width=2, rms_eps=1e-6, objectives=("a", "b"))
    columns = RewardModels.columns.fget
    readout = type("R", (), {"config": config})
    for exposed, expected in ((False, ("reward",)), (True, ("reward", "a", "b"))):
        models = type("M", (), {"readouts": [readout], "objectives": exposed})
        assert columns(models) == (expected,)
