"""Language models: their most and least probable next tokens, against rewards (Tables A1-A5)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import polars as pl

from analysis.blocks import (
    KENDALL,
    MODEL,
    PEARSON,
    PROMPT,
    SPEARMAN,
    TOKENS,
    Block,
    Column,
    Picture,
    Section,
    notes,
    rows,
)
from analysis.chapters import framed_logprobs
from analysis.ends import TOKEN_ENDS, both_ends, token_ends
from analysis.figures import token_bars
from analysis.run import Run, places
from analysis.statistics.correlation import correlations
from analysis.statistics.distributions import log_ratio
from analysis.study import Absent, Study, Table, required, table
from engine.runs.schema import Columns

AGAINST: Columns = {
    **dict.fromkeys(("prompt", "language_model", "model"), pl.String),
    "n": pl.Int64,
    **dict.fromkeys(("pearson", "spearman", "kendall"), pl.Float64),
}
_ENDS: Columns = {**TOKEN_ENDS, "logprob": pl.Float32}
_P_AND_Q = {"p": False, "q": True}  # The ratio is low where p is higher, high where q is.


def tables(study: Study) -> Iterator[Table]:
    """logprobs_<prompt>.csv, logprobs_rewards.csv and logprobs_ratio.csv."""
    run, top = study.run, study.settings.top
    yield from framed_logprobs.tables(study)
    for prompt in dict.fromkeys(prompt for _, prompt in run.logprobs):
        yield table("logprobs", prompt, make=partial(logprobs_ends, run, prompt, top))
    yield table("logprobs_rewards", make=partial(_rewards_of, study))
    yield table("logprobs_ratio", make=partial(_ratio_of, study))


def logprobs_ends(run: Run, prompt: str, count: int) -> pl.DataFrame:
    """The most and least probable next tokens of each language model under one prompt.

    Returns:
      The table `logprobs_<prompt>.csv`: model, end ("top" or "bottom"), rank (1 is the extreme),
      token_id, token, logprob (natural); by model. Ties go to the lower token_id.
    """
    frames = [pl.DataFrame(schema=_ENDS)]
    for model, asked in run.logprobs:
        if asked == prompt:
            scores = run.next_tokens(model, prompt)
            token_ids, values = scores["token_id"].to_numpy(), scores["logprob"].to_numpy()
            frames.append(token_ends(run, model, token_ids, values, count, _ENDS))
    return pl.concat(frames)


def logprobs_rewards(run: Run, models: Sequence[str]) -> pl.DataFrame:
    """Log-probability against reward, on the strings that decode from one token of each model.

    Args:
      run: the run.
      models: slugs of the reward models, in the order of the rows.

    Returns:
      prompt (the language model's), language_model, model, n (strings), pearson, spearman,
      kendall. A prompt in another form (`greatest.chat`) is compared with the rewards under the
      same text.
    """
    each = []
    scored = [model for model in models if model in run.vocabulary_models]
    vocabularies = {run.same_vocabulary(model): model for model in scored}
    tokens = {key: _unambiguous_tokens(run, model) for key, model in vocabularies.items()}
    for language, prompt in run.logprobs:
        own = _unambiguous(run, language, prompt)
        common = {
            key: own.join(known, on="token", how="inner", validate="1:1").sort("token")
            for key, known in tokens.items()
        }
        for model in scored:
            asked = same_text(run, prompt, (p for m, p in run.results if m == model))
            if asked is None:
                continue
            both = common[run.same_vocabulary(model)]
            at, known = places(run.rewards(model, asked)[0], both["token_id"].to_numpy())
            x, y = both["logprob"].to_numpy()[known], run.rewards(model, asked)[1][at[known]]
            keys = {"prompt": prompt, "language_model": language, "model": model}
            each.append({**keys, "n": len(x), **correlations(x, y)})
    return pl.DataFrame(each, schema=AGAINST)


def logprobs_ratio(run: Run, count: int) -> pl.DataFrame:
    """`log_ratio` of each two language models under one prompt, at both ends.

    Over the strings that decode from one token of each; probabilities are those of the whole
    vocabularies, not rescaled to the shared strings.

    Returns:
      prompt, p and q (slugs), end ("p" or "q": which model gives the higher probability), rank (1
      is the extreme), token, log_p, log_q, ratio; ties by token.
    """
    frames = [pl.DataFrame(schema=ratio_schema("token"))]
    for prompt in dict.fromkeys(prompt for _, prompt in run.logprobs):
        asked = sorted(model for model, p in run.logprobs if p == prompt)
        for p, q in itertools.combinations(asked, 2):
            both = _unambiguous(run, p, prompt).join(
                _unambiguous(run, q, prompt), on="token", how="inner", validate="1:1", suffix="_q"
            )
            both = both.rename({"logprob": "log_p", "logprob_q": "log_q"})
            keys = {"prompt": prompt, "p": p, "q": q}
            frames.append(ratio_ends(both, "token", count, keys))
    return pl.concat(frames)


def ratio_ends(both: pl.DataFrame, key: str, count: int, keys: Mapping[str, str]) -> pl.DataFrame:
    """The `count` rows at each end of the `log_ratio` of log_p and log_q; ties by `key`.

    Returns:
      `keys`, the same in every row, then the columns of `ratio_schema(key)`.
    """
    ratio = log_ratio(both["log_p"].to_numpy(), both["log_q"].to_numpy())
    both = both.with_columns(ratio=pl.Series(ratio, dtype=pl.Float64)).sort(key)
    ends = both_ends(both, "ratio", count, _P_AND_Q)
    columns = dict.fromkeys([*keys, *ratio_schema(key)])
    named = ends.with_columns(**{name: pl.lit(value) for name, value in keys.items()})
    return named.select(list(columns))


def ratio_schema(key: str) -> Columns:
    """Columns of a table of log-ratios of tokens or of items; `key` names what is compared."""
    return {
        **dict.fromkeys(("prompt", "p", "q", "end"), pl.String),
        "rank": pl.UInt32,
        key: pl.String,
        **dict.fromkeys(("log_p", "log_q"), pl.Float32),
        "ratio": pl.Float64,
    }


def same_text(run: Run, prompt: str, asked: Iterable[str]) -> str | None:
    """The first prompt among `asked`, in the order of the run, that has the text of `prompt`."""
    ids = set(asked)
    alike = (p for p, text in run.prompts.items() if text == run.prompts[prompt])
    return next((p for p in alike if p in ids), None)


def no_language_model(run: Run) -> Absent:
    """The reason where no language model's next tokens are in the run."""
    what = "next tokens" if run.item_logprobs else "log-probabilities"
    return Absent(f"No language model’s {what} are in the run.")


def _rewards_of(study: Study) -> pl.DataFrame:
    if not study.run.logprobs:
        raise no_language_model(study.run)
    why = "No reward model was scored under a prompt of the language models."
    return required(logprobs_rewards(study.run, study.models), why)


def _ratio_of(study: Study) -> pl.DataFrame:
    if not study.run.logprobs:
        raise no_language_model(study.run)
    why = "No two language models were given one prompt in one form."
    return required(logprobs_ratio(study.run, study.settings.top), why)


def _unambiguous(run: Run, model: str, prompt: str) -> pl.DataFrame:
    """token, logprob of the strings that decode from one token alone."""
    frame = run.next_tokens(model, prompt)
    return frame.filter(~pl.col("token").is_duplicated()).select("token", "logprob")


def _unambiguous_tokens(run: Run, model: str) -> pl.DataFrame:
    """token, token_id of the strings that decode from one token of `model` alone."""
    tokens = run.vocabulary(model).select("token", "token_id").collect()
    return tokens.filter(~pl.col("token").is_duplicated())


def section(study: Study) -> Section:
    """Both ends of each language model, and their correlation with rewards."""
    made = study.tables
    names = ("logprobs_rewards", "logprobs_ratio")
    blocks: list[Block] = notes(made.reason(name) for name in names)
    for (prompt,), ends in made.of("logprobs").items():
        caption = f"The most and least probable next tokens of language models to “{prompt}”."
        top = study.settings.figure_top
        draw = partial(token_bars.ends, ends, study.names, top, "logprob", "log-probability")
        blocks.append(Picture(f"logprobs_{prompt}", caption, draw))
        columns = (*TOKENS, ("logprob", "log-probability", "number"))
        blocks += rows(ends, columns, f"logprobs_{prompt}.csv")
    blocks += framed_logprobs.blocks(study)
    title = "Log-probability against reward"
    blocks += rows(made.get("logprobs_rewards"), AGAINST_COLUMNS, "logprobs_rewards.csv", title)
    title = "Where two language models differ most"
    ratio = made.get("logprobs_ratio")
    blocks += rows(ratio, ratio_columns("token"), "logprobs_ratio.csv", title)
    return Section(
        id="logprobs",
        title="Language models",
        label="Language models",
        lead="Does a reward model rate high what its base model would have said?",
        blocks=blocks,
        caveats=(
            "The next token’s probability also depends on grammar: a reward need not.",
            RATIO_CAVEAT,
        ),
    )


RATIO_CAVEAT = (
    "Two models are compared by ½(p + q)(log q − log p), which gives little weight to what neither "
    "would say."
)
AGAINST_COLUMNS: tuple[Column, ...] = (
    PROMPT,
    ("language_model", "language model", "text"),
    MODEL,
    ("n", "n", "count"),
    PEARSON,
    SPEARMAN,
    KENDALL,
)


def ratio_columns(key: str) -> tuple[Column, ...]:
    """Columns of a table of log-ratios on the page; `key` names what is compared."""
    return (
        PROMPT,
        ("p", "p", "text"),
        ("q", "q", "text"),
        ("end", "more probable under", "text"),
        ("rank", "rank", "count"),
        (key, key, "token"),
        ("log_p", "log p", "number"),
        ("log_q", "log q", "number"),
        ("ratio", "½(p + q)(log q − log p)", "number"),
    )
