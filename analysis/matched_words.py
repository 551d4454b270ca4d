"""A word list against every vocabulary of a run: matched tokens with their rewards."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import polars as pl

from analysis.blocks import MODEL, Block, rows
from analysis.run import Run
from analysis.statistics import ranks
from analysis.study import Tables
from engine.runs.schema import Columns

# A vocabulary -> its matched tokens, as `words.matching` gives them.
Matcher: TypeAlias = Callable[[pl.DataFrame], pl.DataFrame]
CELL: Columns = {"model": pl.String, "prompt": pl.String}
_POINT: Columns = {**CELL, "token_id": pl.UInt32, "token": pl.String}
_MATCHES: Columns = {
    "source": pl.String,
    "matching": pl.String,
    "model": pl.String,
    **dict.fromkeys(("tokens", "words", "of"), pl.Int64),
}


def matched_rewards(
    run: Run, models: Sequence[str], matcher: Matcher, percentile: bool = False
) -> pl.DataFrame:
    """Matched tokens with their rewards, one row per token, model and prompt.

    Args:
      run: the run.
      models: slugs in the order of the rows.
      matcher: finds the matched tokens of a vocabulary.
      percentile: whether to add the column percentile: the token's, in the model's whole
        vocabulary, 0 to 1.

    Returns:
      model, prompt, token_id, token, the matcher's columns, reward; float64 numbers.
    """
    matched = _by_model(run, models, matcher)
    frames = []
    for prompt in run.vocabulary_prompts:
        for model in (model for model in matched if (model, prompt) in run.results):
            token_ids, rewards = run.rewards(model, prompt)
            scores = {"token_id": token_ids, "reward": rewards}
            schema: Columns = {"token_id": pl.UInt32, "reward": pl.Float64}
            if percentile:
                scores["percentile"] = ranks.percentiles(rewards)
                schema = {**schema, "percentile": pl.Float64}
            own = matched[model].join(
                pl.DataFrame(scores, schema=schema),
                on="token_id",
                how="inner",
                validate="1:1",
                maintain_order="left",
            )
            keys = (pl.lit(model).alias("model"), pl.lit(prompt).alias("prompt"))
            frames.append(own.select(*keys, pl.all()))
    return pl.concat(frames) if frames else pl.DataFrame(schema=_POINT)


def matches(
    run: Run, models: Sequence[str], matcher: Matcher, source: str, matching: str
) -> pl.DataFrame:
    """How many tokens of each model match.

    Returns:
      source (of the word list), matching (how tokens are compared), model, tokens and words (that
      matched), of (tokens in all).
    """
    counts = [
        (
            *(source, matching, model, matched.height, matched["word"].n_unique()),
            run.vocabulary(model).select(pl.len()).collect().item(),
        )
        for model, matched in _by_model(run, models, matcher).items()
    ]
    return pl.DataFrame(counts, schema=_MATCHES, orient="row")


def matches_block(tables: Tables, *analyses: str) -> list[Block]:
    """How many tokens matched the word lists of `analyses`: tables ("matches", analysis)."""
    columns = (
        MODEL,
        ("source", "source", "text"),
        ("matching", "matching", "text"),
        ("tokens", "tokens matched", "count"),
        ("words", "words matched", "count"),
        ("of", "tokens in all", "count"),
    )
    frames = [tables.get("matches", analysis) for analysis in analyses]
    known = [frame for frame in frames if frame is not None]
    return rows(pl.concat(known) if known else None, columns, title="How many tokens matched")


def by_model_and_prompt(points: pl.DataFrame) -> Iterator[tuple[dict[str, str], pl.DataFrame]]:
    """The rows of each model and prompt, with {"model": …, "prompt": …}."""
    for key, own in points.group_by("model", "prompt", maintain_order=True):
        yield dict(zip(CELL, map(str, key), strict=True)), own


def _by_model(run: Run, models: Sequence[str], matcher: Matcher) -> dict[str, pl.DataFrame]:
    """Model -> matched tokens of its vocabulary; a vocabulary that models share is matched once."""
    scored = [model for model in models if model in run.vocabulary_models]
    first = {run.same_vocabulary(model): model for model in reversed(scored)}
    matched = {key: matcher(run.vocabulary(model).collect()) for key, model in first.items()}
    return {model: matched[run.same_vocabulary(model)] for model in scored}
