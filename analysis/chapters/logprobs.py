"""Language models against rewards: their next tokens (Tables A1-A3), and replies of a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import polars as pl

from analysis.blocks import Block, Picture
from analysis.charts.estimates import estimates
from analysis.columns import (
    KENDALL,
    LANGUAGE_MODEL,
    LIST,
    MODEL,
    PEARSON,
    PROMPT,
    SPEARMAN,
    Column,
    Spec,
)
from analysis.run import Run, places
from analysis.sentences import count, span
from analysis.statistics import ranks
from analysis.statistics.correlation import correlations
from analysis.study import Analysis, Study, Table, table

REWARDS = Spec(
    "logprobs_rewards",
    (
        *(PROMPT.but(help="of the language model"), LANGUAGE_MODEL),
        *(MODEL.but(help="of the rewards"), Column("n", "count", help="strings")),
        *(PEARSON, SPEARMAN, KENDALL),
    ),
    title="Log-probability against reward",
)
ITEMS = Spec(
    "logprobs_items",
    (
        *(LIST, *(column.but(help="") for column in REWARDS.columns)),
        Column("spearman_per_token", "fixed", "ρ per token", "of the mean over a reply's tokens"),
    ),
    title="Lists: log-probability against reward",
    help="other columns as in logprobs_rewards.csv",
)


def _tables(study: Study) -> Iterator[Table]:
    run = study.run
    unscored = "No reward model was scored under a prompt of the language models."
    if not run.logprobs:
        what = "next tokens" if run.item_logprobs else "log-probabilities"
        unscored = f"No language model’s {what} are in the run."
    make = partial(logprobs_rewards, run, study.models)
    yield table(REWARDS.name, make=make, why=unscored)
    why = "No language model scored a list of items."
    if run.item_logprobs:
        why = "No reward model scored a list that a language model scored, under its prompt."
    yield table(ITEMS.name, make=partial(logprobs_items, run, study.models), why=why)


def logprobs_rewards(run: Run, models: Sequence[str]) -> pl.DataFrame:
    """The table `REWARDS`: on the strings that decode from one token of each model.

    A prompt in another form (`greatest.chat`) is compared with the rewards under the same text.

    Args:
      run: the run.
      models: slugs of the reward models, in the order of the rows.
    """
    rows = []
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
            strings = common[run.same_vocabulary(model)]
            at, known = places(run.rewards(model, same)[0], strings["token_id"].to_numpy())
            x, y = strings["logprob"].to_numpy()[known], run.rewards(model, same)[1][at[known]]
            keys = {"prompt": prompt, "language_model": language, "model": model}
            rows.append({**keys, "n": len(x), **correlations(x, y)})
    return REWARDS.frame(rows)


def logprobs_items(run: Run, models: Sequence[str]) -> pl.DataFrame:
    """The table `ITEMS`: rewards of each list with its log-probabilities.

    A reply's log-probability sums over its tokens, so that long replies are improbable whatever
    they say; `spearman_per_token` takes the mean over the tokens. A language model's prompt is
    compared with rewards under the same text, whatever its form.
    """
    rows = []
    for items, language, prompt in run.item_logprobs:
        replies = run.replies(items, language, prompt)
        for model in models:
            scored = [p for name, m, p in run.items if (name, m) == (items, model)]
            same = same_text(run, prompt, scored)
            if same is None:
                continue
            rewards = run.item_scores(items, same, [model]).drop("item")
            scored_replies = replies.join(rewards, on="item_id", how="inner", validate="1:1").sort(
                "item_id"
            )
            logprob, reward = scored_replies["logprob"].to_numpy(), scored_replies[model].to_numpy()
            numbers = correlations(logprob, reward)
            per_token = (scored_replies["logprob"] / scored_replies["tokens"].clip(1)).to_numpy()
            numbers["spearman_per_token"] = ranks.spearman(per_token, reward)
            keys = {"list": items, "prompt": prompt, "language_model": language, "model": model}
            rows.append({**keys, "n": scored_replies.height, **numbers})
    return ITEMS.frame(rows)


def same_text(run: Run, prompt: str, prompts: Iterable[str]) -> str | None:
    """The first prompt among `prompts`, in the order of the run, that has the text of `prompt`."""
    ids = set(prompts)
    alike = (p for p, text in run.prompts.items() if text == run.prompts[prompt])
    return next((p for p in alike if p in ids), None)


def _unambiguous(tokens: pl.DataFrame, column: str) -> pl.DataFrame:
    """Token and a column of the strings that decode from one token alone."""
    return tokens.filter(~pl.col("token").is_duplicated()).select("token", column)


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
        f"Spearman’s ρ between rewards and a language model’s log-probabilities of {what} is "
        f"{span(rho.to_numpy())}, in {count(len(rho), 'ranking')} (one for each reward model, "
        "language model and prompt); no test says whether it differs from 0."
    )


def _rewards_drawn(study: Study) -> Iterator[Block]:
    made = study.tables[REWARDS.name]
    shown = made.with_columns(pl.col("prompt").replace(study.prompt_names))
    draw = partial(estimates, shown, study.names, _LABEL, value="spearman", row="prompt")
    draw = partial(draw, panel="language_model", width=300)
    yield Picture("logprobs_rewards", _CAPTION, draw)
    yield from REWARDS.rows(made)


_LABEL = "Spearman’s ρ of reward and log-probability"
_CAPTION = "Right of zero, a model rates high what the language model would probably say."


def _items_drawn(study: Study) -> Iterator[Block]:
    """One chart for each list that language models scored, a dot for each prompt."""
    if not study.run.item_logprobs:
        return
    made = study.tables[ITEMS.name]
    for (name,), part in made.group_by("list", maintain_order=True):
        draw = partial(estimates, part, study.names, _LABEL, value="spearman", mean="name")
        draw = partial(draw, panel="language_model", width=300)
        caption = f"The items of “{name}”: one dot per prompt, strokes are means. {_CAPTION}"
        yield Picture(f"logprobs_items_{name}", caption, draw)
    yield from ITEMS.rows(made)


def _described(study: Study) -> str:
    tokens, items = (study.tables.get(spec.name) for spec in (REWARDS, ITEMS))
    if tokens is not None:
        return described(tokens, "tokens")
    return "" if items is None else described(items, "items")


ANALYSIS = Analysis(
    id="logprobs",
    title="Language models",
    lead="Does a reward model rate high what a language model would have said?",
    make=_tables,
    parts=(_rewards_drawn, _items_drawn),
    described=_described,
    caveats=lambda study: (
        "The next token’s probability also depends on grammar: a reward need not.",
        "A long reply is improbable whatever it says: ρ per token takes the mean over its tokens, "
        "which in turn favours long words whose later tokens are predictable.",
    ),
)
