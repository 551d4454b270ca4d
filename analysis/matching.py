"""A word list against every vocabulary of a run: matched tokens with their rewards."""

from collections.abc import Callable, Iterator, Sequence

import polars as pl

from analysis.load import Run
from analysis.ranks import percentiles
from engine.runs.schema import Columns

Matcher = Callable[[pl.DataFrame], pl.DataFrame]
POINT: Columns = {
    "model": pl.String,
    "prompt": pl.String,
    "token_id": pl.UInt32,
    "token": pl.String,
}


def cells(run: Run, models: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every (model, prompt) that was scored, by prompt, then in the order of `models`."""
    for prompt in run.vocabulary_prompts:
        for model in models:
            if (model, prompt) in run.results:
                yield model, prompt


def by_vocabulary(run: Run, models: Sequence[str], matcher: Matcher) -> dict[str, pl.DataFrame]:
    """Model -> matched tokens of its vocabulary; a vocabulary that models share is matched once."""
    found: dict[str, pl.DataFrame] = {}
    for model in models:
        key = run.same_vocabulary(model)
        if key not in found:
            found[key] = matcher(run.vocabulary(model).collect())
    return {model: found[run.same_vocabulary(model)] for model in models}


def points(
    run: Run, models: Sequence[str], matcher: Matcher, percentile: bool = False
) -> pl.DataFrame:
    """Matched tokens with their rewards, a row a token, model and prompt.

    Args:
      run: the run.
      models: slugs in the order of the rows.
      matcher: vocabulary -> its matched tokens, as `lexicons.match` gives them.
      percentile: add the column percentile: the token's, in its whole vocabulary, 0 to 1.

    Returns:
      model, prompt, token_id, token, the matcher's columns, reward; float64 numbers.
    """
    there = [model for model in models if model in run.vocabulary_models]
    matched = by_vocabulary(run, there, matcher)
    frames = []
    for model, prompt in cells(run, there):
        ids, rewards = run.rewards(model, prompt)
        scores = {"token_id": ids, "reward": rewards}
        schema: Columns = {"token_id": pl.UInt32, "reward": pl.Float64}
        if percentile:
            scores["percentile"] = percentiles(rewards)
            schema = {**schema, "percentile": pl.Float64}
        own = matched[model].join(
            pl.DataFrame(scores, schema=schema),
            on="token_id",
            how="inner",
            validate="1:1",
            maintain_order="left",
        )
        names = {"model": pl.lit(model), "prompt": pl.lit(prompt)}
        frames.append(own.select(**names, **{c: pl.col(c) for c in own.columns}))
    return pl.concat(frames) if frames else pl.DataFrame(schema=POINT)


def matches(
    run: Run, models: Sequence[str], matcher: Matcher, analysis: str, source: str, matching: str
) -> pl.DataFrame:
    """How many tokens matched: analysis, source, matching, model, tokens, words, of (tokens)."""
    there = [model for model in models if model in run.vocabulary_models]
    rows = [
        {
            "analysis": analysis,
            "source": source,
            "matching": matching,
            "model": model,
            "tokens": found.height,
            "words": found["word"].n_unique(),
            "of": run.vocabulary(model).select(pl.len()).collect().item(),
        }
        for model, found in by_vocabulary(run, there, matcher).items()
    ]
    return pl.DataFrame(rows, schema=MATCHES)


MATCHES: Columns = {
    "analysis": pl.String,
    "source": pl.String,
    "matching": pl.String,
    "model": pl.String,
    "tokens": pl.Int64,
    "words": pl.Int64,
    "of": pl.Int64,
}
