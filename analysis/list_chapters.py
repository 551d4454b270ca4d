"""The sections of the report on lists of items: what models rate first, and what people do."""

import polars as pl

from analysis import items
from analysis.blocks import LIST, MODEL, PROMPT, Block, Chapter, absent, table
from analysis.tables import Tables

_ENDS = 10  # Rows an end of a list of thousands; the file holds all.


def lists(found: Tables) -> Chapter:
    """What models rate first and last of each list."""
    blocks = absent(found, "items_standing")
    for name, points in found.items_points.items():
        standing = found.items_standing.filter(list=name)
        prompts = items.prompts_of(points)
        if items.one_by_one(prompts):
            for prompt in prompts:
                blocks += _under(name, prompt, standing.filter(prompt=prompt))
        else:
            blocks += _together(name, standing)
    return Chapter(
        id="items",
        title="Lists of replies",
        label="Lists",
        lead="Of the replies of a list, which do the models rate first and last, and do they agree "
        "on it? An item’s percentile is the share of the list that a model rates lower, counting "
        "half of what it rates alike.",
        blocks=blocks,
        caveats=(
            "A longer reply is another reply: models may go by length or spelling, not by meaning.",
            "A middling mean may hide models that rate an item first and last.",
        ),
    )


def _under(name: str, prompt: str, standing: pl.DataFrame) -> list[Block]:
    """One list under one prompt, model by model."""
    caption = (
        "A row an item, from the highest mean down; a column a model. Of a long list, the items of "
        "the highest mean, those of the rest on which models differ most, and those of the lowest."
    )
    stem = f"{name}_{prompt}"
    return [
        Block(title=f"{name}, prompt “{prompt}”"),
        Block(figure=f"items_standing_{stem}", caption=caption),
        Block(figure=f"items_top_bottom_{stem}", caption="What each model rates first and last."),
        *table(items.both_ends(standing, _ENDS), (PROMPT, *_STANDING), "items_standing.csv"),
    ]


def _together(name: str, standing: pl.DataFrame) -> list[Block]:
    """One list under many prompts, taken over the models."""
    caption = (
        "A row an item, from the highest mean down; a column a prompt, the mean over its models. "
        "Of a long list, the items of the highest mean, those of the rest that prompts move most, "
        "and those of the lowest."
    )
    ends = items.both_ends(items.over_prompts(standing), _ENDS)
    return [
        Block(title=name, figure=f"items_prompts_{name}", caption=caption),
        *table(ends, _STANDING, "items_standing.csv", title="Over all prompts"),
    ]


_STANDING = (
    ("item", "item", "token"),
    ("n", "scores", "count"),
    ("mean_percentile", "mean percentile", "share"),
    ("lowest", "lowest", "share"),
    ("highest", "highest", "share"),
)


def humans(found: Tables) -> Chapter:
    """Models beside people who ranked the same items."""
    blocks = absent(found, "humans_correlation", "humans_ranks")
    for name, prompt in found.humans_ranks:
        stem = f"{name}_{prompt}"
        gap = found.humans_gap.filter(list=name, prompt=prompt).sort("gap", descending=True)
        blocks += [
            Block(title=f"{name}, prompt “{prompt}”"),
            Block(
                figure=f"humans_correlation_{stem}",
                caption="1 would be the people’s own order, 0 no relation to it.",
            ),
            Block(
                figure=f"humans_gap_{stem}",
                caption="The items that the models together rank most unlike the people.",
            ),
            Block(
                figure=f"humans_ranks_{stem}",
                caption="A line an item, from the people’s rank through every model’s. Below, the "
                "first thousand ranks on a logarithmic scale.",
            ),
            Block(
                figure=f"humans_kendall_{stem}",
                caption="Kendall’s τ-b of every two orders of the items.",
            ),
        ]
        blocks += table(items.both_ends(gap, _ENDS), _GAPS, "humans_gap.csv")
    columns = (
        LIST,
        PROMPT,
        MODEL,
        ("spearman", "Spearman’s ρ", "fixed"),
        ("kendall", "Kendall’s τ", "fixed"),
    )
    return Chapter(
        id="humans",
        title="Against people",
        label="People",
        lead="Where people have ranked the same items, how close do models come, and what do they "
        "put elsewhere? A positive gap means that the models rank an item lower than people do.",
        blocks=[*blocks, *table(found.humans_correlation, columns, "humans_correlation.csv")],
        caveats=(
            "The people are those who voted on one web site; they stand for nobody else.",
            "The models’ rank is a median: an item on which they differ has no rank of theirs.",
        ),
    )


_GAPS = (
    ("item", "item", "token"),
    ("human_rank", "people’s rank", "count"),
    ("model_rank", "models’ rank", "count"),
    ("gap", "gap", "count"),
)
