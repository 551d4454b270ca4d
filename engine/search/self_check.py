"""The self-check of a search: its last sequence, by the pass that shares nothing."""

import polars as pl

from engine.errors import AssayError
from engine.scoring.reward_passes import RewardScorer
from engine.search.objective import SearchObjective
from engine.sweep.self_check import SELF_CHECK_TOLERANCE


def self_check(
    objective: SearchObjective,
    scorer: RewardScorer,
    steps: pl.DataFrame,
    path: str,
) -> dict[str, int | float]:
    """Scores the last sequence of a trace again by the plain pass.

    Args:
      objective: of the search.
      scorer: the model, in the dtype of the search.
      steps: from `trace_frame`.
      path: of the result, for the message.

    Returns:
      The entry of the manifest: the difference between the two rewards, its tolerance, and the
      reward of the conversation that is tokenised from the sequence's text.

    Raises:
      AssayError: the difference exceeds the tolerance.
    """
    last = steps.row(-1, named=True)
    ids = [[*p.prefix, *last["token_ids"], *p.suffix] for p in objective.prompts]
    texts = [objective.template.sequences(p.prompt, [last["text"]])[0] for p in objective.prompts]
    read_at = [len(one) - 1 for one in ids] + [objective.pooling.position(one) for one in texts]
    plain = scorer.plain_rewards([*ids, *texts], read_at)[0].reshape(2, -1).mean(1)
    tolerance = SELF_CHECK_TOLERANCE[objective.settings.dtype]
    difference, allowed = abs(plain[0] - last["reward"]), tolerance * max(1.0, abs(plain[0]))
    if not difference <= allowed:
        raise AssayError(
            f"self-check of {path}: reward {last['reward']:.6g}, the plain pass gives "
            f"{plain[0]:.6g}; allowed difference {allowed:.2g}"
        )
    return {
        "candidates": 1,
        "max_abs_difference": float(difference),
        "tolerance": tolerance,
        "reward_from_text": float(plain[1]),
    }
