"""Language models on a list of replies: the probability of each reply, against its rewards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import polars as pl

from analysis.blocks import Block, Files, Folded, Picture
from analysis.chapters import language_models
from analysis.chapters.items import FEW, FRAMING, QUESTION
from analysis.charts.clouds import clouds
from analysis.columns import KENDALL, LANGUAGE_MODEL, LIST, MODEL, SPEARMAN, Column, Spec
from analysis.run import Run
from analysis.statistics import ranks
from analysis.statistics.correlation import correlations
from analysis.study import Analysis, Study, Table, required, table

_PER_TOKEN = Column("spearman_per_token", "fixed", "ρ per token")
REWARDS = Spec(
    "item_logprobs",
    (
        LIST,
        *(c if c.key == "model" else c.but(help="") for c in language_models.AGAINST),
        _PER_TOKEN,
    ),
    title="Log-probability against reward",
)
QUESTIONS = Spec(
    "item_logprobs_questions",
    (
        *(LIST, QUESTION, FRAMING, LANGUAGE_MODEL, MODEL, Column("prompts", "count")),
        SPEARMAN.but(title="mean ρ", help="mean over the prompts"),
        Column("spearman_spread", "fixed", "spread", "standard deviation"),
        KENDALL.but(title="mean τ"),
        _PER_TOKEN.but(title="mean ρ per token"),
    ),
    page="list question language_model model prompts spearman spearman_spread kendall "
    "spearman_per_token",
    title="Log-probability against reward, question by question",
)
RATIO = Spec(
    "item_logprobs_ratio",
    (LIST, *language_models.ratio_columns("item")),
    title="Replies on which two language models differ most",
    help="columns as in logprobs_ratio.csv",
)


def _tables(study: Study) -> Iterator[Table]:
    """For charts of lists under few prompts: ("item_logprobs_points", list, prompt, model)."""
    run, why = study.run, "No language model scored a list of items."
    if run.item_logprobs:
        why = "No reward model scored a list that a language model scored, under its prompt."
    make = partial(item_logprobs_rewards, run, study.models)
    yield table(REWARDS.name, make=make, why=why)
    compared = study.tables.get(REWARDS.name)
    if compared is not None:
        keys = compared.select("list", "prompt", "language_model").unique(maintain_order=True)
        few = keys.filter(~pl.col("list").is_in(lists_of_many_prompts(compared)))
        for items, prompt, model in few.iter_rows():
            make = partial(item_logprobs_points, run, items, prompt, model, study.models)
            yield table("item_logprobs_points", items, prompt, model, make=make, file=False)
    yield table(QUESTIONS.name, make=partial(_questions, study))
    why = "No two language models scored one list under one prompt."
    yield table(RATIO.name, make=partial(item_logprobs_ratio, run, study.settings.top), why=why)


def lists_of_many_prompts(compared: pl.DataFrame) -> list[str]:
    """The lists of `item_logprobs.csv` that are read by question: those under many prompts."""
    counts = compared.group_by("list", maintain_order=True).agg(n=pl.col("prompt").n_unique())
    return counts.filter(pl.col("n") > FEW)["list"].to_list()


def item_logprobs_points(
    run: Run, items: str, prompt: str, language_model: str, models: Sequence[str]
) -> pl.DataFrame:
    """Log-probabilities and rewards of one list under one prompt, one row per item.

    Args:
      run: the run.
      items: name of the list.
      prompt: the language model's prompt; it is compared with rewards under the same text, whatever
        its form.
      language_model: its slug.
      models: slugs of the reward models, in the order of the columns; those that did not score
        the list under that text are left out.

    Returns:
      item_id, item, tokens (of the language model's reply), logprob (natural; their sum), and one
      float32 column per model; sorted by item_id. Items that are not scored by every model are
      left out.
    """
    points = run.replies(items, language_model, prompt)
    for model in models:
        scored = [p for name, m, p in run.items if (name, m) == (items, model)]
        same = language_models.same_text(run, prompt, scored)
        if same is not None:
            rewards = run.item_scores(items, same, [model]).drop("item")
            points = points.join(rewards, on="item_id", how="inner", validate="1:1")
    return points.sort("item_id")


def item_logprobs_rewards(run: Run, models: Sequence[str]) -> pl.DataFrame:
    """Correlation of the rewards of each list with its log-probabilities.

    A reply's log-probability sums over its tokens, so that long replies are improbable whatever
    they say; `spearman_per_token` takes the mean over the tokens.

    Returns:
      The table `REWARDS`.
    """
    each = []
    for items, language, prompt in run.item_logprobs:
        for model in models:
            points = item_logprobs_points(run, items, prompt, language, [model])
            if model not in points.columns:
                continue
            logprob, reward = points["logprob"].to_numpy(), points[model].to_numpy()
            per_token = (points["logprob"] / points["tokens"].clip(1)).to_numpy()
            numbers = correlations(logprob, reward)
            numbers["spearman_per_token"] = ranks.spearman(per_token, reward)
            keys = {"list": items, "prompt": prompt, "language_model": language, "model": model}
            each.append({**keys, "n": points.height, **numbers})
    return REWARDS.frame(each)


def item_logprobs_ratio(run: Run, count: int) -> pl.DataFrame:
    """The table `RATIO`: `log_ratio` of each two language models on one list under one prompt.

    Probabilities are those of the replies among all possible ones, not rescaled to the list.
    """
    frames = []
    for items, prompt in dict.fromkeys((items, prompt) for items, _, prompt in run.item_logprobs):
        logprobs = {
            model: run.replies(items, model, prompt).select("item_id", "item", "logprob")
            for name, model, p in run.item_logprobs
            if (name, p) == (items, prompt)
        }
        same = {"list": items, "prompt": prompt}
        frames.append(language_models.ratio_ends(logprobs, RATIO, "item", count, **same))
    return RATIO.concat(frames)


def _questions(study: Study) -> pl.DataFrame:
    """The table `QUESTIONS`: means over the wordings of each question, by the text of a prompt."""
    compared, prompts = study.tables[REWARDS.name], study.tables["items_prompts"]
    text = pl.col("prompt").replace(dict(study.run.prompts))
    by_text = prompts.select("list", "question", "framing", text=text)
    by_text = by_text.unique(["list", "text"], maintain_order=True)
    joined = compared.with_columns(text=text).join(
        by_text, on=["list", "text"], how="inner", validate="m:1", maintain_order="left"
    )
    keys = ["list", "question", "framing", "language_model", "model"]
    means = joined.group_by(keys, maintain_order=True).agg(
        pl.len().alias("prompts"),
        pl.col("spearman").std().alias("spearman_spread"),
        pl.col("spearman", "kendall", "spearman_per_token").mean(),
    )
    return required(QUESTIONS.frame(means), "No language model was asked such a question.")


def _correlations(study: Study) -> Iterator[Block]:
    """Correlations by prompt, or by question where a list has many prompts."""
    compared, made = study.tables[REWARDS.name], study.tables
    many = lists_of_many_prompts(compared)
    in_many = pl.col("list").is_in(many)
    by_question = made.get(QUESTIONS.name)
    for (name,), part in compared.group_by("list", maintain_order=True):
        if name in many and by_question is not None:
            part = by_question.filter(list=name).rename({"question": "prompt"})
        caption = (
            f"The items of “{name}”: right of zero, a model rates high what the language model "
            "would probably say."
        )
        draw = partial(language_models.against, part, study.names, study.prompt_names)
        yield Picture(f"item_logprobs_{name}", caption, draw)
    yield from REWARDS.rows(compared.filter(~in_many))
    if by_question is not None:
        yield from QUESTIONS.rows(by_question.filter(in_many))


def _items_drawn(study: Study) -> Iterator[Block]:
    pictures = []
    for (items, prompt, language), points in study.tables.of("item_logprobs_points").items():
        models = [model for model in study.names if model in points.columns]
        each = points.unpivot(models, index=["item", "logprob"], variable_name="model")
        titles = ("log-probability of the item (natural)", "reward")
        draw = partial(clouds, each, study.names, titles, x="logprob", y="value")
        said = f"The items of “{items}” under {study.prompt_names[prompt]}: reward against the "
        said += f"log-probability that {language} gives them."
        pictures.append(Picture(f"item_logprobs_{items}_{prompt}_{language}", said, draw))
    if pictures:
        yield Folded("Item by item", pictures)


def _differences(study: Study) -> Iterator[Block]:
    """Where two language models differ, and the files of what is too long to show."""
    compared, made = study.tables.get(REWARDS.name), study.tables
    many = [] if compared is None else lists_of_many_prompts(compared)
    if (ratio := made.get(RATIO.name)) is not None:
        yield from RATIO.rows(ratio.filter(~pl.col("list").is_in(many)))
    if many:
        yield Files([f"{s.name}.csv" for s in (REWARDS, RATIO) if s.name in made.files])


ANALYSIS = Analysis(
    id="item_logprobs",
    title="Language models on lists",
    lead="Does a reward model rate high those replies of a list that a language model would "
    "have given?",
    make=_tables,
    parts=(_correlations, _items_drawn, _differences),
    described=lambda study: language_models.described(study.tables[REWARDS.name], "items"),
    caveats=lambda study: (
        "A long reply is improbable whatever it says: ρ per token takes the mean over its "
        "tokens, which in turn favours long words whose later tokens are predictable.",
        language_models.RATIO_CAVEAT,
    ),
    every_prompt=True,
)
