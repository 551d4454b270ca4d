"""A word list against every vocabulary of a run: matched tokens with their rewards."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

import polars as pl

from analysis.run import Run, places
from analysis.words.matching import match
from engine.runs.result import Result
from engine.runs.schema import LOGPROBS_DIR, Columns

# A vocabulary -> its matched tokens, as `words.matching` gives them.
Matcher: TypeAlias = Callable[[pl.DataFrame], pl.DataFrame]
CELL: Columns = {"model": pl.String, "prompt": pl.String}
_POINT: Columns = {**CELL, "token_id": pl.UInt32, "token": pl.String}


def matched_rewards(
    run: Run, models: Sequence[str], matcher: Matcher, percentile: bool = False
) -> pl.DataFrame:
    """Matched tokens with their rewards, one row per token, model and prompt.

    model, prompt, token_id, token, the matcher's columns, reward, and with `percentile` the token's
    in the model's whole vocabulary, 0 to 1; float64. `models` are slugs in the order of the rows.
    """
    matched = _by_model(run, models, matcher)
    frames = []
    for prompt in run.vocabulary_prompts:
        for model in (model for model in matched if (model, prompt) in run.results):
            token_ids, rewards = run.rewards(model, prompt)
            wanted = matched[model]["token_id"].to_numpy()
            at, scored = places(token_ids, wanted)
            chosen = rewards[at[scored]]
            numbers = {"reward": pl.Series(chosen, dtype=pl.Float64)}
            if percentile:
                shares = run.ranked(model, prompt).percentiles
                numbers["percentile"] = pl.Series(shares[at[scored]])
            keys = (pl.lit(model).alias("model"), pl.lit(prompt).alias("prompt"))
            frames.append(matched[model].filter(scored).select(*keys, pl.all(), **numbers))
    return pl.concat(frames) if frames else pl.DataFrame(schema=_POINT)


def trims(result: Result, match_trim: str) -> bool:
    """Whether a token matches a word whatever its outer spaces; see `Options.match_trim`.

    The next tokens of a language model are ids, too.
    """
    if match_trim == "auto":
        return result.kind == LOGPROBS_DIR or result.identity.mode == "ids"
    return match_trim == "always"


def lexicon_rewards(
    run: Run, models: Sequence[str], lexicon: pl.DataFrame, match_trim: str = "auto"
) -> pl.DataFrame:
    """Tokens that are words of a lexicon, with their rewards.

    The lexicon has word (lower-case, once each), and more columns; the table has model, prompt,
    token_id, token, word, the lexicon's columns, reward. `match_trim` is as in `Options`; "auto" is
    decided for each model and prompt. `models` are slugs in the order of the rows.
    """
    points = matched_rewards(run, models, partial(match, lexicon=lexicon, trim=True))
    if points.height == 0:
        return points
    rules = [(*key, trims(result, match_trim)) for key, result in run.results.items()]
    rule = pl.DataFrame(rules, schema={**CELL, "trims": pl.Boolean}, orient="row")
    joined = points.join(rule, on=list(CELL), how="left", validate="m:1", maintain_order="left")
    exact = pl.col("token").str.to_lowercase() == pl.col("word")
    return joined.filter(pl.col("trims") | exact).drop("trims")


def by_model_and_prompt(points: pl.DataFrame) -> Iterator[tuple[dict[str, str], pl.DataFrame]]:
    """The rows of each model and prompt, with {"model": …, "prompt": …}."""
    for key, rows in points.group_by("model", "prompt", maintain_order=True):
        yield dict(zip(CELL, map(str, key), strict=True)), rows


def _by_model(run: Run, models: Sequence[str], matcher: Matcher) -> dict[str, pl.DataFrame]:
    """Model -> matched tokens of its vocabulary; a vocabulary that models share is matched once."""
    scored = [model for model in models if model in run.vocabulary_models]
    first = {run.same_vocabulary(model): model for model in reversed(scored)}
    matched = {key: matcher(run.vocabulary(model).collect()) for key, model in first.items()}
    return {model: matched[run.same_vocabulary(model)] for model in scored}
