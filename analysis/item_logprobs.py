"""Language models on a list of replies: how probable each is, and whether rewards follow."""

import itertools
from collections.abc import Sequence

import polars as pl

from analysis import logprobs, ranks
from analysis.load import Run
from engine.runs.schema import Columns

_KEYS: Columns = dict.fromkeys(("list", "prompt", "language_model"), pl.String)


def item_logprobs_points(
    run: Run, items: str, prompt: str, language_model: str, models: Sequence[str]
) -> pl.DataFrame:
    """Log-probabilities and rewards of one list under one prompt, a row an item.

    Args:
      run: the run.
      items: name of the list.
      prompt: the language model's prompt; rewards under the same text meet it, whatever its form.
      language_model: its slug.
      models: slugs of the reward models, in the order of the columns; those that did not score
        the list under that text are left out.

    Returns:
      item_id, item, tokens (of the language model's reply), logprob (natural; their sum), and a
      float32 column a model; sorted by item_id. Items that one of them lacks are left out.
    """
    table = run.replies(items, language_model, prompt)
    for model in models:
        asked = [p for name, m, p in run.items if (name, m) == (items, model)]
        same = logprobs.same_text(run, prompt, asked)
        if same is not None:
            own = run.item_scores(items, same, [model]).drop("item")
            table = table.join(own, on="item_id", how="inner", validate="1:1")
    return table.sort("item_id")


def item_logprobs_rewards(run: Run, models: Sequence[str]) -> pl.DataFrame:
    """How far the rewards of each list follow its log-probabilities.

    A reply's log-probability sums over its tokens, so that long replies are improbable whatever
    they say; `spearman_per_token` takes the mean over the tokens.

    Returns:
      The table `item_logprobs.csv`: list, prompt and language_model, model (of the rewards), n
      (items), pearson, spearman, kendall, spearman_per_token.
    """
    rows = []
    for items, language, prompt in run.item_logprobs:
        about = dict(zip(_KEYS, (items, prompt, language), strict=True))
        for model in models:
            points = item_logprobs_points(run, items, prompt, language, [model])
            if model not in points.columns:
                continue
            logprob, reward = points["logprob"].to_numpy(), points[model].to_numpy()
            each = (points["logprob"] / points["tokens"].clip(1)).to_numpy()
            found = logprobs.correlations(logprob, reward)
            found["spearman_per_token"] = ranks.spearman(each, reward)
            rows.append({**about, "model": model, "n": points.height, **found})
    numbers = dict.fromkeys(("pearson", "spearman", "kendall", "spearman_per_token"), pl.Float64)
    return pl.DataFrame(rows, schema={**_KEYS, "model": pl.String, "n": pl.Int64, **numbers})


def item_logprobs_ratio(run: Run, count: int) -> pl.DataFrame:
    """`logprobs.log_ratio` of each two language models on one list under one prompt.

    Probabilities are those of the replies among all that could be said, not scaled to the list.

    Returns:
      list, then the columns of `logprobs.logprobs_ratio`, with `item` for `token`.
    """
    frames = [pl.DataFrame(schema={"list": pl.String, **logprobs.ratio_schema("item")})]
    asked = dict.fromkeys((items, prompt) for items, _, prompt in run.item_logprobs)
    for items, prompt in asked:
        there = sorted(m for name, m, p in run.item_logprobs if (name, p) == (items, prompt))
        for p, q in itertools.combinations(there, 2):
            log_p, log_q = (run.replies(items, model, prompt) for model in (p, q))
            log_q = log_q.select("item_id", log_q="logprob")
            both = log_p.join(log_q, on="item_id", how="inner", validate="1:1")
            ends = logprobs.ratio_ends(both.rename({"logprob": "log_p"}), "item", count)
            named = {"list": items, "prompt": prompt, "p": p, "q": q}
            frames.append(logprobs.named(ends, named, frames[0].columns))
    return pl.concat(frames)
