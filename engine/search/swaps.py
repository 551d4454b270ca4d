"""Every swap of one token of a reply: whether one improves it."""

from collections.abc import Callable

import numpy as np

from engine.runs.result import Certificate
from engine.runs.schema import LARGEST, SINGLE, tolerance
from engine.scoring.batches import token_candidates
from engine.scoring.reward_passes import RewardScorer
from engine.search.objective import SearchObjective, not_finite


def certificate(
    objective: SearchObjective,
    scorer: RewardScorer,
    ids: np.ndarray,
    advance: Callable[[int], object] = lambda replies: None,
) -> Certificate:
    """Scores every swap of one token of a reply for another that is allowed.

    Called again with `best_ids` while `better` is not 0, it is coordinate ascent.

    Args:
      objective: of a search in one direction; its filters hold for the swaps too.
      scorer: the model.
      ids: the reply, int32 [T]; its own tokens need not be allowed.
      advance: called with numbers of replies that were scored.

    A swap improves the reply if it gains more than the tolerance of the self-check, relative to
    max(1, |reward|): both rewards come from one program. Raises AssayError for a reward that is
    not finite.
    """
    tokens, sign = np.flatnonzero(objective.allowed), float(objective.signs[0])
    prefix, rewards = scorer.prefill(objective.prompt), []
    # The last row is the reply itself.
    for position in range(len(ids)):
        rows = np.tile(ids, (len(tokens) + 1, 1))
        rows[:-1, position] = tokens
        scored = scorer.rewards(prefix, token_candidates(objective.prompt, rows), advance)[0]
        if not np.isfinite(scored).all():
            raise not_finite(rows[np.argmin(np.isfinite(scored))])
        rewards.append(sign * scored.astype(np.float64))
    own = np.array(rewards)[:, -1]
    same = tokens == ids[:, None]  # [T, tokens]: the swap that changes nothing
    gains = np.where(same, -np.inf, np.array(rewards)[:, :-1] - own[:, None])
    kind = SINGLE if objective.config.experts else LARGEST
    margin = tolerance(objective.settings.dtype, kind) * max(1.0, float(np.abs(own).max()))
    better, best = 0, None
    for index in np.argsort(-gains, axis=None, kind="stable"):
        position, token = np.unravel_index(index, gains.shape)
        improves = gains[position, token] > margin
        if (best is not None and not improves) or gains[position, token] == -np.inf:
            break
        changed = ids.copy()
        changed[position] = tokens[token]
        if objective.passes(changed):
            better += int(improves)
            best = best or (changed, sign * rewards[position][token])
    return Certificate(
        swaps=int(np.isfinite(gains).sum()),
        better=better,
        best_ids=best and tuple(best[0].tolist()),
        best_text=best and objective.text(best[0]),
        best_reward=best and float(best[1]),
    )
