"""The sections of the report on what a model is made of: objectives, and language models."""

import polars as pl

from analysis.blocks import LIST, MODEL, PROMPT, TOKENS, Block, Chapter, Column, absent, table
from analysis.tables import Tables

_FEW = 4  # Tokens an end beside an objective; the file holds all.


def objectives(found: Tables) -> Chapter:
    """What a reward is made of."""
    blocks = absent(found, "objectives")
    for prompt in found.objectives["prompt"].unique(maintain_order=True):
        part = found.objectives.filter(prompt=prompt)
        blocks += [
            Block(title=f"Under “{prompt}”"),
            Block(
                figure=f"objectives_{prompt}",
                caption="Left: how far the reward orders tokens as the objective does. Middle: the "
                "gate’s weight, in the units of the objective. Right: what it adds to the variance "
                "of the rewards; the bars of a model sum to 1, and one below 0 works against them.",
            ),
            *table(_with_tokens(part, found.objectives_ends), _OBJECTIVES, "objectives.csv"),
        ]
        for model in part["model"].unique(maintain_order=True):
            if (model, prompt) in found.objectives_spearman:
                name = dict(found.models.select("model", "nickname").iter_rows())[model]
                caption = f"{name}: Spearman’s ρ of the reward and the objectives with each other."
                blocks.append(Block(figure=f"objectives_{model}_{prompt}", caption=caption))
    return Chapter(
        id="objectives",
        title="What a reward is made of",
        label="Objectives",
        lead="Some models predict several objectives and mix them into the reward: ArmoRM and QRM "
        "by a gate that reads the prompt, URM by one that reads the reply. Which of them speak "
        "when a single token is judged, and what does each like?",
        blocks=blocks,
        caveats=(
            "The names of the objectives are those of the data they were trained on; what an "
            "objective measures on one token is another question.",
            "The spread is the mean distance from an objective’s lowest to its highest quantile.",
            "Objectives that go together share what they add to the reward: the split of the "
            "variance among them is one of many.",
        ),
    )


_OBJECTIVES = (
    MODEL,
    ("objective", "objective", "text"),
    ("weight", "weight", "number"),
    ("spearman", "Spearman’s ρ", "fixed"),
    ("share", "share", "share"),
    ("spread", "spread", "number"),
    ("top", "highest", "tokens"),
    ("bottom", "lowest", "tokens"),
)


def _with_tokens(part: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """`part` with the first tokens of both ends of each objective, as lists."""
    keys = ["model", "prompt", "objective"]
    few = ends.filter(pl.col("rank") <= _FEW).sort("rank")
    for end in ("top", "bottom"):
        tokens = few.filter(end=end).group_by(keys).agg(pl.col("token").alias(end))
        part = part.join(tokens, on=keys, how="left", validate="1:1", maintain_order="left")
    return part


def language_models(found: Tables) -> Chapter:
    """What language models would say, and whether rewards follow it."""
    stems = ("logprobs", "logprobs_rewards", "logprobs_ratio", "item_logprobs")
    blocks = absent(found, *stems)
    for prompt, frame in found.logprobs.items():
        caption = f"What language models themselves would say first, and last, to “{prompt}”."
        blocks.append(Block(figure=f"logprobs_{prompt}", caption=caption))
        columns = (*TOKENS[:-1], ("logprob", "log-probability", "number"))
        blocks += table(frame, columns, f"logprobs_{prompt}.csv")
    title = "Log-probability against reward"
    blocks += table(found.logprobs_rewards, _AGAINST, title=title)
    blocks += table(
        found.logprobs_ratio, _ratio("token"), title="What one says rather than another"
    )
    return Chapter(
        id="logprobs",
        title="Language models",
        label="Language models",
        lead="Is what a reward model likes what its base model would have said?",
        blocks=[*blocks, *_replies(found)],
        caveats=(
            "The next token’s probability also carries grammar: a reward does not.",
            "A long reply is improbable whatever it says: ρ per token takes the mean over its "
            "tokens, which in turn favours long words of few likely ends.",
            "Two models are set against each other by ½(p + q)(log q − log p), which passes over "
            "what neither would say.",
        ),
    )


def _replies(found: Tables) -> list[Block]:
    """Lists of replies that a language model read too."""
    blocks: list[Block] = []
    for items, prompt, language_model in found.item_logprobs_points:
        caption = (
            f"The items of “{items}” under “{prompt}”: reward against the log-probability that "
            f"{language_model} gives them. Darker: more tokens."
        )
        stem = f"item_logprobs_{items}_{prompt}_{language_model}"
        blocks.append(Block(figure=stem, caption=caption))
    columns = (LIST, *_AGAINST, ("spearman_per_token", "ρ per token", "fixed"))
    blocks += table(
        found.item_logprobs, columns, "item_logprobs.csv", title="Lists of replies against reward"
    )
    columns = (LIST, *_ratio("item"))
    title = "Which replies of a list one says rather than another"
    blocks += table(found.item_logprobs_ratio, columns, title=title)
    return blocks


_AGAINST = (
    PROMPT,
    ("language_model", "language model", "text"),
    MODEL,
    ("n", "n", "count"),
    ("pearson", "Pearson’s r", "fixed"),
    ("spearman", "Spearman’s ρ", "fixed"),
    ("kendall", "Kendall’s τ", "fixed"),
)


def _ratio(key: str) -> tuple[Column, ...]:
    """Columns of a table of log-ratios; `key` names what was said."""
    return (
        PROMPT,
        ("p", "p", "text"),
        ("q", "q", "text"),
        ("end", "said rather by", "text"),
        ("rank", "rank", "count"),
        (key, key, "token"),
        ("log_p", "log p", "number"),
        ("log_q", "log q", "number"),
        ("ratio", "½(p + q)(log q − log p)", "number"),
    )
