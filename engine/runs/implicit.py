"""Implicit rewards: the difference of two language models' log-probabilities, times β.

    r(x, y) = β (log π(y | x) - log π_ref(y | x))

This is the reward that DPO fits (Rafailov et al. 2023, equation 5) without its term β log Z(x),
which is one number for all replies to a prompt. A result of such rewards is made of two results of
the same run: the log-probabilities of the policy π and of the reference π_ref.
"""

import functools

import numpy as np
import polars as pl

from engine.runs import schema
from engine.runs.folder import RunFolder


def rewards(policy: pl.DataFrame, reference: pl.DataFrame, beta: float) -> pl.DataFrame:
    """Rewards of rows from their log-probabilities, as `schema` has them: key columns, reward."""
    numbers = difference(policy["logprob"].to_numpy(), reference["logprob"].to_numpy(), beta)
    return policy.drop("logprob", "tokens", strict=False).with_columns(reward=numbers)


def difference(policy: np.ndarray, reference: np.ndarray, beta: float) -> np.ndarray:
    """β times the difference of float32 log-probabilities, as float32; taken in float64."""
    exact = policy.astype(np.float64) - reference.astype(np.float64)
    return (beta * exact).astype(np.float32)


def inputs_of(run: RunFolder, path: str) -> tuple[str, str] | None:
    """Results of which the rewards in `path` are the difference: the policy's, the reference's.

    None for a model that is no pair of language models.
    """
    folder, _, prompt = path.partition("/prompt=")
    kind, _, slug = folder.partition("model=")
    pair = run.models.get(slug, {}).get(schema.PAIR)
    if pair is None:
        return None
    policy, reference = (pair[side]["slug"] for side in ("policy", "reference"))
    if kind.startswith(f"{schema.CONVERSATIONS_DIR}/"):
        of_list = functools.partial(schema.conversation_logprobs_path, kind.split("/")[1])
        return of_list(policy), of_list(reference)
    asked = schema.prompt_in_form(prompt, pair["form"])
    if kind == f"{schema.SCORES_DIR}/":
        return schema.logprobs_path(policy, asked), schema.logprobs_path(reference, asked)
    items = kind.removeprefix(f"{schema.ITEMS_DIR}/").removesuffix("/")
    return (
        schema.item_logprobs_path(items, policy, asked),
        schema.item_logprobs_path(items, reference, asked),
    )
