"""In bfloat16 Assay is no further from float32 than transformers is, on the same weights.

The weights are rounded to bfloat16 first, as published ones are: what remains is what each makes of
activations.
"""

import numpy as np
import pytest
import torch

from engine.scoring.batches import token_candidates
from engine.types import PromptIds
from tests.support import folders, parity, torch_models

PROMPTS = 64  # what is rounded in a prompt's prefix, all its replies share: few prompts are luck
TOKENS = np.arange(0, torch_models.VOCAB_SIZE, 33)
BUILD = {
    "llama": lambda: torch_models.build("gqa-llama3"),
    "gemma2": lambda: torch_models.build("gemma2"),
}


@torch.inference_mode()
def by_transformers(folder, prompts, dtype: torch.dtype) -> np.ndarray:
    """Rewards of each token as the reply to each prompt, whole conversations: [J, C]."""
    kind = type(BUILD[folder.name]())
    network = kind.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
    every = torch.from_numpy(TOKENS)[:, None]
    rewards = []
    for prompt in prompts:
        parts = torch.tensor([prompt.prefix]), torch.tensor([prompt.suffix])
        before, after = (part.expand(len(every), -1) for part in parts)
        hidden = network.model(torch.cat([before, every, after], dim=1)).last_hidden_state
        rewards.append(network.score(hidden[:, -1])[:, 0])  # as the class does, but for pads
    return torch.stack(rewards).float().numpy()


def by_assay(checkpoint, prompts, model: int) -> np.ndarray:
    """The same by the engine in bfloat16, behind a shared prefix, on `model` devices."""
    mesh = parity.make_mesh(1, model)
    scorer = parity.restore(checkpoint, dtype="bfloat16", mesh=mesh).scorer
    rewards = []
    for prompt in prompts:
        steps = scorer.rewards(scorer.prefill(prompt), token_candidates(prompt, TOKENS))
        rewards.append(np.concatenate([step[0] for step in steps]))
    return np.stack(rewards)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 4])  # several add up their parts in bfloat16
@pytest.mark.parametrize("name", BUILD)
def test_the_error_in_bfloat16_is_no_larger_than_that_of_transformers(name, devices, tmp_path):
    model, folder = BUILD[name](), tmp_path / name
    rounded = type(model)(model.config)
    rounded.load_state_dict(model.state_dict())
    torch_models.save(rounded.to(torch.bfloat16).to(torch.float32), folder)
    checkpoint = folders.convert(folder, tmp_path / "checkpoint", slug=name)
    ids = parity.random_ids(PROMPTS, parity.PREFIX_LENGTH + 1, seed=2).tolist()
    prompts = [PromptIds(prompt="?", prefix=tuple(p[:-1]), suffix=tuple(p[-1:])) for p in ids]
    exact = by_transformers(folder, prompts, torch.float32)
    theirs = by_transformers(folder, prompts, torch.bfloat16) - exact
    ours = by_assay(checkpoint, prompts, devices) - exact
    print(
        f"{name} on {devices}: {exact.size} rewards of sd {exact.std():.3g}; error rms, largest:",
        *(
            f"{who} {np.sqrt(np.square(e).mean()):.2e} {np.abs(e).max():.2e}"
            for who, e in (("assay", ours), ("transformers", theirs))
        ),
    )
    assert exact.std() > 0.1
    assert 0 < np.square(ours).mean() <= np.square(theirs).mean()
    assert np.abs(ours).max() <= np.abs(theirs).max()
