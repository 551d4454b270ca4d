"""Rewards that were published of the models in configs/known_models.py, as numbers with a source.

`launch.conventions --published=card` looks for the reading of a model that reproduces them.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class RewardSet:
    """Published rewards of replies to one prompt.

    Attributes:
      name: of the set.
      source: where the numbers are stated; "" for a file.
      prompt: the user's turn.
      replies: the assistant's turns; of tokens, their texts.
      token_ids: ids of the tokens that are the replies; None for texts.
      rewards: of the replies, in their order.
      tolerance: largest difference that counts as the same.
    """

    name: str
    source: str = ""
    prompt: str
    replies: Sequence[str]
    token_ids: Sequence[int] | None = None
    rewards: Sequence[float]
    tolerance: float

    def reproduced(self, rewards: Iterable[float]) -> bool:
        """Whether every reward is within tolerance."""
        pairs = zip(rewards, self.rewards, strict=True)
        return all(abs(float(ours) - theirs) <= self.tolerance for ours, theirs in pairs)


CARD_TOLERANCE = 0.25  # bfloat16 rewards of about 10 differ so much between libraries and devices

# The example of the Skywork cards, word for word.
_JANE = (
    "Jane has 12 apples. She gives 4 apples to her friend Mark, then buys 1 more apple, and finally"
    " splits all her apples equally among herself and her 2 siblings. How many apples does each"
    " person get?"
)
_STEPS = (
    "1. Jane starts with 12 apples and gives 4 to Mark. 12 - 4 = 8. Jane now has 8 apples.\n"
    "2. Jane buys 1 more apple. 8 + 1 = 9. Jane now has 9 apples.\n"
    "3. Jane splits the 9 apples equally among {0} 9 ÷ {1} apples each. "
    "Each person gets {2} apples."
)
_ANSWERS = (
    _STEPS.format("herself and her 2 siblings (3 people in total).", "3 = 3", 3),
    _STEPS.format("her 2 siblings (2 people in total).", "2 = 4.5", 4),
)


def _apples(right: float, wrong: float, source: str, name: str = "card") -> RewardSet:
    return RewardSet(
        name=name,
        source=source,
        prompt=_JANE,
        replies=_ANSWERS,
        rewards=(right, wrong),
        tolerance=CARD_TOLERANCE,
    )


_GEMMA = "model card of Skywork/Skywork-Reward-Gemma-2-27B"
_LLAMA = "model card of Skywork/Skywork-Reward-Llama-3.1-8B"
_V2 = "model card of Skywork/Skywork-Reward-V2-Llama-3.1-8B"

# Slug -> published rewards of the model, other than those of EloEverything.
GOLDENS: Mapping[str, Sequence[RewardSet]] = {
    "skywork-reward-gemma-2-27b": [_apples(9.1875, -17.875, _GEMMA)],
    "skywork-reward-gemma-2-27b-v0.2": [
        _apples(0.5625, -8.5, f"{_GEMMA}-v0.2"),
        _apples(4.59375, -18.125, f"{_GEMMA}-v0.2, an older revision", "older card"),
    ],
    "skywork-reward-llama-3.1-8b": [_apples(12.625, -15.25, _LLAMA)],
    "skywork-reward-llama-3.1-8b-v0.2": [_apples(13.6875, -9.1875, f"{_LLAMA}-v0.2")],
    "skywork-reward-v2-llama-3.1-8b": [
        _apples(23.0, 3.59375, _V2),
        _apples(23.125, 3.578125, f"{_V2}, served by another engine", "card, another engine"),
    ],
    "skywork-reward-v2-qwen3-0.6b": [
        _apples(
            7.875, 0.9453, "tests of another engine, which quote transformers", "another engine"
        )
    ],
    # Its digits are float32's.
    "urm-llama-3.1-8b": [
        RewardSet(
            name="card",
            source="model card of LxzGordon/URM-LLaMa-3.1-8B",
            prompt="What is the range of the numeric output of a sigmoid node in a neural network?",
            replies=tuple(
                f"The output of a sigmoid node is bounded between {low} and 1." for low in (-1, 0)
            ),
            rewards=(2.3285, 12.438),
            tolerance=0.01,
        )
    ],
}
