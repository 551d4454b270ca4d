"""Tokens across vocabularies: what the models share, and what each ranks first and last."""

import functools
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import (
    TOKENS,
    Block,
    Column,
    Finding,
    Folded,
    Heading,
    Picture,
    Section,
    Text,
    rows,
    side_by_side,
)
from analysis.chapters import bloc_sentences
from analysis.ends import TOKEN_ENDS, token_ends
from analysis.figures import token_bars
from analysis.run import Run, places
from analysis.sentences import listed
from analysis.statistics import Array
from analysis.study import NO_VOCABULARY, Absent, Study, Table, table
from analysis.words.stems import stem_numbers
from engine import display
from engine.runs.reader import RunError
from engine.runs.schema import Columns

NOTHING_SHARED = "The models share no tokens, so their orders cannot be compared."

_ENDS: Columns = {**TOKEN_ENDS, "reward": pl.Float32}
_NAMED = 3  # Words at each end that a sentence names.


def tables(study: Study) -> Iterator[Table]:
    """shared_vocabulary.csv and top_bottom_<prompt>.csv.

    For other chapters: ("shared_rewards", prompt), without rows where the models share nothing.
    """
    yield table("shared_vocabulary", make=partial(_shared_vocabulary, study))
    for prompt in study.run.vocabulary_prompts:
        yield table("shared_rewards", prompt, make=partial(_rewards, study, prompt), file=False)
        ends = partial(top_bottom, study.run, prompt, study.settings.top, study.scored)
        yield table("top_bottom", prompt, make=ends)


def shared_vocabulary(
    run: Run, *, trim: bool = False, fold_case: bool = False, round_trip: bool = False
) -> pl.DataFrame:
    """The strings that exactly one token of every model decodes to.

    Case and spaces count by default. A string that comes from more than one id in any
    vocabulary is dropped, because no rule would say which of its scores to take. That is decided
    after trimming and folding, which therefore drop words that have several spellings.

    Args:
      run: the run.
      trim: whether outer white space is stripped first.
      fold_case: whether case is folded first.
      round_trip: whether only tokens are taken whose text tokenises to themselves.

    Returns:
      token, and one column per model (named by its slug, in sorted order) with the token_id there;
      sorted by token. No rows where the models share nothing.

    Raises:
      RunError: `round_trip`, and a vocabulary does not know it (imported scores).
    """
    text = pl.col("token")
    text = text.str.strip_chars() if trim else text
    text = text.str.to_lowercase() if fold_case else text
    models = run.vocabulary_models
    if not models:
        return pl.DataFrame(schema={"token": pl.String})
    first = {run.same_vocabulary(slug): slug for slug in sorted(models, reverse=True)}
    unique = {key: _unambiguous(run, slug, text, round_trip) for key, slug in first.items()}
    frames = [unique[run.same_vocabulary(slug)].rename({"token_id": slug}) for slug in models]
    return functools.reduce(_on_token, frames).sort("token")


def shared_rewards(
    run: Run, shared: pl.DataFrame, prompt: str, models: Sequence[str] | None = None
) -> pl.DataFrame:
    """Rewards of the shared vocabulary under one prompt, one row per token.

    Args:
      run: the run.
      shared: the table of `shared_vocabulary`.
      prompt: id of the prompt.
      models: slugs, in the order of the columns; all that were scored under it by default.

    Returns:
      token, and one float32 column per model; sorted by token. Tokens that are not scored by every
      model are left out.
    """
    scored = np.ones(shared.height, dtype=np.bool_)
    columns: dict[str, Array] = {}
    for model in run.models_under(prompt) if models is None else models:
        token_ids, rewards = run.rewards(model, prompt)
        at, known = places(token_ids, shared[model].to_numpy())
        scored &= known
        columns[model] = rewards[at]
    types: Columns = dict.fromkeys(columns, pl.Float32)
    table = shared.select("token").hstack(pl.DataFrame(columns, schema=types))
    return table.filter(scored).sort("token")


def top_bottom(run: Run, prompt: str, count: int, models: Sequence[str]) -> pl.DataFrame:
    """The `count` highest and lowest tokens of each model's own, whole vocabulary.

    Args:
      run: the run.
      prompt: id of the prompt.
      count: tokens at each end. The ends overlap where the vocabulary is smaller than twice that.
      models: slugs in the order of the rows; those not scored under the prompt are left out.

    Returns:
      The table `top_bottom_<prompt>.csv`: model, end ("top" or "bottom"), rank (1 is the
      extreme), token_id, token, reward. Ties go to the lower token_id.
    """
    empty = pl.DataFrame(schema=_ENDS)
    frames = [
        token_ends(run, model, *run.rewards(model, prompt), count, _ENDS)
        for model in models
        if (model, prompt) in run.results
    ]
    return pl.concat([empty, *frames])


def stems_of(run: Run, model: str, token_ids: Array) -> Array:
    """Number of the stem of each of a model's tokens (`stems.stem_numbers`); int64 [N].

    Args:
      run: the run.
      model: slug of the model.
      token_ids: ascending token ids [N].
    """
    vocabulary = run.vocabulary(model).collect()
    known = np.searchsorted(vocabulary["token_id"].to_numpy(), token_ids)
    return stem_numbers(vocabulary["token"][known])


def _shared_vocabulary(study: Study) -> pl.DataFrame:
    options = study.options
    try:
        shared = shared_vocabulary(
            study.run,
            trim=options.shared_trim,
            fold_case=options.shared_fold_case,
            round_trip=options.shared_round_trip,
        )
    except RunError as error:
        raise Absent(f"{error}.") from error
    return shared.select("token", *study.scored)


def _rewards(study: Study, prompt: str) -> pl.DataFrame:
    models = study.scored_under(prompt)
    shared = study.tables.get("shared_vocabulary")
    if shared is None:
        return pl.DataFrame(schema={"token": pl.String, **dict.fromkeys(models, pl.Float32)})
    return shared_rewards(study.run, shared, prompt, models)


def _unambiguous(run: Run, model: str, text: pl.Expr, round_trip: bool) -> pl.DataFrame:
    vocabulary = run.vocabulary(model).collect()
    if round_trip:
        if vocabulary["round_trip"].null_count():
            raise RunError(f"{model}: its vocabulary does not say which tokens round-trip")
        vocabulary = vocabulary.filter(round_trip="same")
    tokens = vocabulary.select(text.alias("token"), "token_id")
    return tokens.filter(~pl.col("token").is_duplicated())


def _on_token(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    return left.join(right, on="token", how="inner", validate="1:1")


def section(study: Study) -> Section:
    """The highest and lowest tokens of each model, prompt by prompt."""
    columns, count = (*TOKENS, ("reward", "reward", "number")), study.settings.figure_top
    blocks: list[Block] = [] if study.scored else [Text(NO_VOCABULARY, "note")]
    quantiles = study.tables.get("quantiles")  # None without the chapter of distributions
    for (prompt,), ends in study.tables.of("top_bottom").items():
        text = "Bars start at the model’s median reward, so their length is the distance from it."
        drawn: list[Block] = []
        if quantiles is not None:
            medians = quantiles.filter(prompt=prompt)
            draw = partial(token_bars.top_bottom, ends, medians, study.names, count)
            drawn = [Picture(f"top_bottom_{prompt}", text, draw)]
        both = side_by_side(ends, count)
        title = f"The first {len(both[0].rows)} side by side, as text"
        blocks += [
            Heading(f"“{study.run.prompts[prompt]}”", prompt),
            *drawn,
            Folded(title, both),
            *rows(ends, columns, f"top_bottom_{prompt}.csv", "All of them, to sort and filter"),
            *_together(study, prompt),
        ]
    return Section(
        id="tokens",
        title="Top and bottom tokens",
        label="Tokens",
        lead="The highest and lowest tokens of each model’s own vocabulary, special and unused "
        "tokens included. ␣ is a space, ↵ a line end; other invisible characters show their code "
        "point. Models of a bloc, which agree more than chance (see Agreement), also have a common "
        "list.",
        blocks=blocks,
        findings=findings(study),
    )


def findings(study: Study) -> list[Finding]:
    """The words with the highest and lowest mean percentiles over the models of a bloc.

    Nothing is said of models that are in no bloc, and each bloc has a list of its own.
    """
    found = []
    drawn = study.tables.get("quantiles") is not None
    for (prompt,), ends in study.tables.of("consensus").items():
        for models, own in ends.group_by("models", maintain_order=True):
            slugs = str(models[0]).split()
            if len(slugs) > 1:
                text = (
                    f"Under “{prompt}”, of the words of the shared vocabulary (spellings that "
                    f"differ by case or outer spaces are one), {_named(own, 'highest')} have the "
                    f"highest mean percentiles over {bloc_sentences.who(study, slugs)} "
                    f"({_percentiles(own, 'highest')}) and {_named(own, 'lowest')} the lowest "
                    f"({_percentiles(own, 'lowest')})."
                )
                picture = f"top_bottom_{prompt}" if drawn else ""
                found.append(Finding(text=text, picture=picture))
    return found


def _named(table: pl.DataFrame, end: str) -> str:
    """The first words of one end."""
    first = table.filter(end=end).head(_NAMED)
    return listed([f"“{display.plain(token)}”" for token in first["token"]])


def _percentiles(table: pl.DataFrame, end: str) -> str:
    """Mean percentiles of those words, and the one furthest from their end in any model."""
    first = table.filter(end=end).head(_NAMED)
    means = 100 * first["percentile"].to_numpy()
    far = (
        first["lowest"].to_numpy().min() if end == "highest" else first["highest"].to_numpy().max()
    )
    other = "lowest" if end == "highest" else "highest"
    return f"{means[0]:.2f} to {means[-1]:.2f}; the {other} in any model is {100 * far:.2f}"


def _together(study: Study, prompt: str) -> list[Block]:
    """What the models of each bloc score highest and lowest, and what they dispute."""
    table = study.tables.get("consensus", prompt)
    if table is None or len(study.names) == 1:
        return []
    named = bloc_sentences.with_nicknames(table, study, "models")
    title = "Words of the shared vocabulary, by mean percentile over the models of a bloc"
    return rows(named, _CONSENSUS, f"consensus_{prompt}.csv", title)


_CONSENSUS: tuple[Column, ...] = (
    ("models", "models", "text"),
    ("end", "end", "text"),
    ("rank", "rank", "count"),
    ("token", "token", "token"),
    ("percentile", "mean percentile", "share"),
    ("spread", "spread between models", "share"),
    ("lowest", "lowest of a model", "share"),
    ("highest", "highest of a model", "share"),
)
