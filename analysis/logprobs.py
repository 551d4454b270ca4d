"""Language models: what they would say next, and whether reward models reward it (Tables A1-A5)."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from analysis import ranks, tokens
from analysis.load import Run


def logprobs_ends(run: Run, prompt: str, count: int) -> pl.DataFrame:
    """The likeliest and unlikeliest next tokens of each language model under one prompt.

    Returns:
      The table `logprobs_<prompt>.csv`: model, end ("top" or "bottom"), rank (1 is the extreme),
      token_id, token, logprob (natural); by model. Ties go to the lower token_id.
    """
    frames = []
    for model, asked in run.logprobs:
        if asked == prompt:
            scores = run.next_tokens(model, prompt)
            ids, values = scores["token_id"].to_numpy(), scores["logprob"].to_numpy()
            frames.append(tokens.ends(run, model, ids, values, count, "logprob"))
    return pl.concat([pl.DataFrame(schema={**tokens.ENDS, "logprob": pl.Float32}), *frames])


def logprobs_rewards(run: Run, models: Sequence[str]) -> pl.DataFrame:
    """Log-probability against reward, on the strings that one token of each decodes to.

    Args:
      run: the run.
      models: slugs of the reward models, in the order of the rows.

    Returns:
      prompt (the language model's), language_model, model, n (strings), pearson, spearman,
      kendall. A prompt in another form (`greatest.chat`) meets the rewards under the same text.
    """
    rows = []
    rewards = {m: _rewards(run, m) for m in models if m in run.vocabulary_models}
    for language, prompt in run.logprobs:
        own = run.next_tokens(language, prompt)
        own = own.filter(~pl.col("token").is_duplicated()).select("token", "logprob")
        for model, vocabulary in rewards.items():
            asked = _same_text(run, model, prompt)
            if asked is None:
                continue
            ids, values = run.rewards(model, asked)
            scored = vocabulary.join(
                pl.DataFrame({"token_id": ids, "reward": values}),
                on="token_id", how="inner", validate="1:1",
            )  # fmt: skip
            both = own.join(scored, on="token", how="inner", validate="1:1").sort("token")
            rows.append(
                {"prompt": prompt, "language_model": language, "model": model, "n": both.height}
                | _correlations(both["logprob"].to_numpy(), both["reward"].to_numpy())
            )
    names = dict.fromkeys(("prompt", "language_model", "model"), pl.String)
    numbers = dict.fromkeys(("pearson", "spearman", "kendall"), pl.Float64)
    return pl.DataFrame(rows, schema={**names, "n": pl.Int64, **numbers})


def _same_text(run: Run, model: str, prompt: str) -> str | None:
    """The prompt of the text of `prompt` under which `model` scored its vocabulary."""
    alike = [p for p, text in run.vocabulary_prompts.items() if text == run.prompts[prompt]]
    return next((p for p in alike if (model, p) in run.results), None)


def _rewards(run: Run, model: str) -> pl.DataFrame:
    """token, token_id of the strings that one token of `model` alone decodes to."""
    named = run.vocabulary(model).select("token", "token_id").collect()
    return named.filter(~pl.col("token").is_duplicated())


def _correlations(x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    return {
        "pearson": ranks.pearson(x, y),
        "spearman": ranks.spearman(x, y),
        "kendall": ranks.kendall_tau(x, y),
    }
