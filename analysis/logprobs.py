"""Language models: what they would say next, and whether reward models reward it (Tables A1-A5)."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import polars as pl

from analysis import ranks, tokens
from analysis.load import Run
from engine.runs.schema import Columns


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
        own = _unambiguous(run, language, prompt)
        for model, vocabulary in rewards.items():
            asked = same_text(run, prompt, (p for m, p in run.results if m == model))
            if asked is None:
                continue
            ids, values = run.rewards(model, asked)
            scored = vocabulary.join(
                pl.DataFrame({"token_id": ids, "reward": values}, schema=_REWARDS),
                on="token_id", how="inner", validate="1:1",
            )  # fmt: skip
            both = own.join(scored, on="token", how="inner", validate="1:1").sort("token")
            rows.append(
                {"prompt": prompt, "language_model": language, "model": model, "n": both.height}
                | correlations(both["logprob"].to_numpy(), both["reward"].to_numpy())
            )
    names = dict.fromkeys(("prompt", "language_model", "model"), pl.String)
    numbers = dict.fromkeys(("pearson", "spearman", "kendall"), pl.Float64)
    return pl.DataFrame(rows, schema={**names, "n": pl.Int64, **numbers})


def log_ratio(log_p: np.ndarray, log_q: np.ndarray) -> np.ndarray:
    """The mixture-weighted log-ratio 1/2 (p + q) (log q - log p), element by element.

    Where it is large, q says likely tokens that p does not; where it is small, p does.
    *Reward Models Inherit Value Biases from Pretraining* (ICLR 2026). Natural logarithms.
    """
    log_p, log_q = np.asarray(log_p, np.float64), np.asarray(log_q, np.float64)
    return 0.5 * (np.exp(log_p) + np.exp(log_q)) * (log_q - log_p)


def logprobs_ratio(run: Run, count: int) -> pl.DataFrame:
    """`log_ratio` of each two language models under one prompt, at both ends.

    Over the strings that one token of each decodes to; probabilities are those of the whole
    vocabularies, not scaled to what is shared.

    Returns:
      prompt, p and q (slugs), end ("p" or "q": who says it rather), rank (1 is the extreme),
      token, log_p, log_q, ratio; ties by token.
    """
    frames = [pl.DataFrame(schema=ratio_schema("token"))]
    for prompt in dict.fromkeys(prompt for _, prompt in run.logprobs):
        asked = sorted(model for model, p in run.logprobs if p == prompt)
        for p, q in itertools.combinations(asked, 2):
            both = _unambiguous(run, p, prompt).join(
                _unambiguous(run, q, prompt), on="token", how="inner", validate="1:1", suffix="_q"
            )
            both = both.rename({"logprob": "log_p", "logprob_q": "log_q"})
            ends = ratio_ends(both, "token", count)
            frames.append(named(ends, {"prompt": prompt, "p": p, "q": q}, frames[0].columns))
    return pl.concat(frames)


def ratio_ends(both: pl.DataFrame, key: str, count: int) -> pl.DataFrame:
    """The `count` rows at each end of the `log_ratio` of log_p and log_q; ties by `key`.

    Returns:
      end ("p" or "q": who says it rather), rank (1 is the extreme), the columns of `both`, ratio.
    """
    both = both.with_columns(ratio=log_ratio(both["log_p"].to_numpy(), both["log_q"].to_numpy()))
    rank = pl.int_range(1, pl.len() + 1, dtype=pl.UInt32)
    return pl.concat(
        both.sort("ratio", key, descending=[end == "q", False])
        .head(count)
        .select(pl.lit(end).alias("end"), rank.alias("rank"), pl.all())
        for end in ("p", "q")
    )


def named(frame: pl.DataFrame, names: Mapping[str, str], columns: Sequence[str]) -> pl.DataFrame:
    """`frame` with the same words in every row, `names`, and the columns asked for."""
    literal = {name: pl.lit(value) for name, value in names.items()}
    return frame.with_columns(**literal).select(columns)


_REWARDS: Columns = {"token_id": pl.UInt32, "reward": pl.Float32}


def _unambiguous(run: Run, model: str, prompt: str) -> pl.DataFrame:
    """token, logprob of the strings that one token alone decodes to."""
    frame = run.next_tokens(model, prompt)
    return frame.filter(~pl.col("token").is_duplicated()).select("token", "logprob")


def ratio_schema(key: str) -> Columns:
    """Columns of a table of log-ratios of tokens or of items."""
    return {
        **dict.fromkeys(("prompt", "p", "q", "end"), pl.String),
        "rank": pl.UInt32,
        key: pl.String,
        **dict.fromkeys(("log_p", "log_q"), pl.Float32),
        "ratio": pl.Float64,
    }


def same_text(run: Run, prompt: str, asked: Iterable[str]) -> str | None:
    """The prompt among `asked` that has the text of `prompt`, in the order of the run."""
    there = set(asked)
    alike = (p for p, text in run.prompts.items() if text == run.prompts[prompt])
    return next((p for p in alike if p in there), None)


def _rewards(run: Run, model: str) -> pl.DataFrame:
    """token, token_id of the strings that one token of `model` alone decodes to."""
    named = run.vocabulary(model).select("token", "token_id").collect()
    return named.filter(~pl.col("token").is_duplicated())


def correlations(x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Pearson's r, Spearman's rho and Kendall's tau-b of `x` and `y` [N]."""
    return {
        "pearson": ranks.pearson(x, y),
        "spearman": ranks.spearman(x, y),
        "kendall": ranks.kendall_tau(x, y),
    }
