"""Language models: their most and least probable next tokens, against rewards (Tables A1-A5)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import polars as pl

from analysis.blocks import Block, Picture
from analysis.charts.estimates import estimates
from analysis.charts.look import Chart
from analysis.columns import (
    KENDALL,
    LANGUAGE_MODEL,
    MODEL,
    PEARSON,
    PROMPT,
    RANK,
    SPEARMAN,
    Column,
    Spec,
)
from analysis.ends import both_ends
from analysis.run import Run, places
from analysis.sentences import count, span
from analysis.statistics.correlation import correlations
from analysis.statistics.distributions import log_ratio
from analysis.study import Analysis, Study, Table, table

AGAINST = (
    *(PROMPT.but(help="of the language model"), LANGUAGE_MODEL, MODEL.but(help="of the rewards")),
    *(Column("n", "count", help="strings"), PEARSON, SPEARMAN, KENDALL),
)
REWARDS = Spec("logprobs_rewards", AGAINST, title="Log-probability against reward")


def ratio_columns(key: str) -> tuple[Column, ...]:
    """Columns of a table of log-ratios of tokens or of items; `key` names what is compared."""
    return (
        *(PROMPT, Column("p"), Column("q", help="language models")),
        Column("end", title="more probable under", help="the language model of higher probability"),
        *(RANK, Column(key, "token")),
        Column("log_p", "number", "log p", dtype=pl.Float32),
        Column("log_q", "number", "log q", "natural", dtype=pl.Float32),
        Column(
            "ratio", "number", "½(p + q)(log q − log p)", "log q − log p, times the mean of p and q"
        ),
    )


_DIFFER = "Where two language models differ most"
RATIO = Spec("logprobs_ratio", ratio_columns("token"), title=_DIFFER)
_P_AND_Q = {"p": False, "q": True}  # The ratio is low where p is higher, high where q is.


def _tables(study: Study) -> Iterator[Table]:
    run = study.run
    unscored = "No reward model was scored under a prompt of the language models."
    alone = "No two language models were given one prompt in one form."
    if not run.logprobs:
        what = "next tokens" if run.item_logprobs else "log-probabilities"
        unscored = alone = f"No language model’s {what} are in the run."
    make = partial(logprobs_rewards, run, study.models)
    yield table(REWARDS.name, make=make, why=unscored)
    yield table(RATIO.name, make=partial(logprobs_ratio, run, study.settings.top), why=alone)


def logprobs_rewards(run: Run, models: Sequence[str]) -> pl.DataFrame:
    """The table `REWARDS`: on the strings that decode from one token of each model.

    A prompt in another form (`greatest.chat`) is compared with the rewards under the same text.

    Args:
      run: the run.
      models: slugs of the reward models, in the order of the rows.
    """
    each = []
    scored = [model for model in models if model in run.vocabulary_models] if run.logprobs else []
    vocabularies = {run.same_vocabulary(model): model for model in scored}
    tokens = {
        key: _unambiguous(run.vocabulary(model).collect(), "token_id")
        for key, model in vocabularies.items()
    }
    for language, prompt in run.logprobs:
        logprobs = _unambiguous(run.next_tokens(language, prompt), "logprob")
        common = {
            key: logprobs.join(known, on="token", how="inner", validate="1:1").sort("token")
            for key, known in tokens.items()
        }
        for model in scored:
            same = same_text(run, prompt, (p for m, p in run.results if m == model))
            if same is None:
                continue
            both = common[run.same_vocabulary(model)]
            at, known = places(run.rewards(model, same)[0], both["token_id"].to_numpy())
            x, y = both["logprob"].to_numpy()[known], run.rewards(model, same)[1][at[known]]
            keys = {"prompt": prompt, "language_model": language, "model": model}
            each.append({**keys, "n": len(x), **correlations(x, y)})
    return REWARDS.frame(each)


def logprobs_ratio(run: Run, count: int) -> pl.DataFrame:
    """The table `RATIO`: `log_ratio` of each two language models under one prompt, at both ends.

    Over the strings that decode from one token of each; probabilities are those of the whole
    vocabularies, not rescaled to the shared strings.
    """
    frames = []
    for prompt in dict.fromkeys(prompt for _, prompt in run.logprobs):
        models = [model for model, p in run.logprobs if p == prompt]
        logprobs = {m: _unambiguous(run.next_tokens(m, prompt), "logprob") for m in models}
        frames.append(ratio_ends(logprobs, RATIO, "token", count, prompt=prompt))
    return RATIO.concat(frames)


def ratio_ends(
    logprobs: Mapping[str, pl.DataFrame], spec: Spec, key: str, count: int, **same: str
) -> pl.DataFrame:
    """The `count` rows at each end of the `log_ratio` of every two language models.

    Args:
      logprobs: slug -> what is compared, and its logprob.
      spec: the table.
      key: what is compared, "token" or "item": ties go by it.
      count: rows at each end.
      same: columns that are the same in every row.
    """
    frames = []
    for p, q in itertools.combinations(logprobs, 2):
        both = logprobs[p].rename({"logprob": "log_p"})
        other = logprobs[q].rename({"logprob": "log_q"})
        on = [name for name in other.columns if name != "log_q"]
        both = both.join(other, on=on, how="inner", validate="1:1").sort(key, maintain_order=True)
        ratio = log_ratio(both["log_p"].to_numpy(), both["log_q"].to_numpy())
        ends = both.with_columns(ratio=pl.Series(ratio, dtype=pl.Float64))
        frames.append(spec.frame(both_ends(ends, "ratio", count, _P_AND_Q), p=p, q=q, **same))
    return spec.concat(frames)


def same_text(run: Run, prompt: str, prompts: Iterable[str]) -> str | None:
    """The first prompt among `prompts`, in the order of the run, that has the text of `prompt`."""
    ids = set(prompts)
    alike = (p for p, text in run.prompts.items() if text == run.prompts[prompt])
    return next((p for p in alike if p in ids), None)


def _unambiguous(tokens: pl.DataFrame, column: str) -> pl.DataFrame:
    """Token and a column of the strings that decode from one token alone."""
    return tokens.filter(~pl.col("token").is_duplicated()).select("token", column)


def against(table: pl.DataFrame, names: Mapping[str, str], prompts: Mapping[str, str]) -> Chart:
    """Spearman’s ρ of rewards with log-probabilities, one panel for each language model.

    Args:
      table: model, prompt, language_model and spearman.
      names: slug -> nickname.
      prompts: prompt -> how the page calls it.
    """
    shown = table.with_columns(pl.col("prompt").replace(prompts))
    label = "Spearman’s ρ of reward and log-probability"
    draw = partial(estimates, shown, names, label, value="spearman")
    return draw(row="prompt", panel="language_model", width=300)


def described(compared: pl.DataFrame, what: str) -> str:
    """How rewards go with log-probability in all rankings.

    Args:
      compared: one row per ranking, with the column spearman.
      what: is ranked, such as "tokens".
    """
    rho = compared["spearman"].fill_nan(None).drop_nulls()
    if not len(rho):
        return ""
    return (
        f"Rewards go with a language model’s log-probabilities of {what} by a Spearman’s ρ of "
        f"{span(rho.to_numpy())}, in {count(len(rho), 'ranking')}: one for each reward model, "
        "language model and prompt."
    )


def _rewards_drawn(study: Study) -> Iterator[Block]:
    made = study.tables[REWARDS.name]
    caption = "Right of zero, a model rates high what the language model would probably say."
    draw = partial(against, made, study.names, study.prompt_names)
    yield Picture("logprobs_rewards", caption, draw)
    yield from REWARDS.rows(made)


RATIO_CAVEAT = (
    "Two models are compared by ½(p + q)(log q − log p), which gives little weight to what neither "
    "would say."
)
ANALYSIS = Analysis(
    id="logprobs",
    title="Language models",
    lead="Does a reward model rate high what a language model would have said?",
    make=_tables,
    parts=(_rewards_drawn, lambda study: RATIO.rows(study.tables[RATIO.name])),
    described=lambda study: described(study.tables[REWARDS.name], "tokens"),
    caveats=lambda study: (
        "The next token’s probability also depends on grammar: a reward need not.",
        RATIO_CAVEAT,
    ),
)
