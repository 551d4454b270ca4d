"""Rewards that were published of the models in configs/known_models.py, as numbers with a source.

`launch.conventions --published=card` looks for the reading of a model that reproduces them.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class RewardSet:
    """Published rewards of replies to one prompt."""

    name: str  # of the set
    source: str = ""  # where the numbers are stated; "" for a file
    prompt: str  # the user's turn
    replies: Sequence[str]  # the assistant's turns; of tokens, their texts
    token_ids: Sequence[int] | None = None  # ids of the tokens that are the replies; None for texts
    rewards: Sequence[float]  # of the replies, in their order
    tolerance: float  # largest difference that counts as the same

    def reproduced(self, rewards: Iterable[float]) -> bool:
        """Whether every reward is within tolerance."""
        pairs = zip(rewards, self.rewards, strict=True)
        return all(abs(float(ours) - theirs) <= self.tolerance for ours, theirs in pairs)


def _read() -> dict[str, list[RewardSet]]:
    """Slug -> the sets of known_goldens.json, whose replies may be those of several models."""
    data = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    goldens: dict[str, list[RewardSet]] = {}
    for entry in data["published"]:
        sets = goldens.setdefault(entry.pop("model"), [])
        sets.append(RewardSet(**data["conversations"][entry.pop("conversation")], **entry))
    return goldens


# Slug -> published rewards of the model, other than those of EloEverything. Those of the Skywork
# cards have a tolerance of 0.25: bfloat16 rewards of about 10 differ so much between libraries and
# devices. The digits of URM's are float32's.
GOLDENS: Mapping[str, Sequence[RewardSet]] = _read()
