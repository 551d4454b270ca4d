"""Language models on a list of replies: the probability of each reply, against its rewards."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import polars as pl

from analysis.blocks import LIST, MODEL, Block, Column, Files, Picture, Section, notes, rows
from analysis.chapters.items import FEW
from analysis.chapters.items_agreement import file_name
from analysis.chapters.items_controls import views
from analysis.chapters.language_models import (
    AGAINST,
    AGAINST_COLUMNS,
    RATIO_CAVEAT,
    ratio_columns,
    ratio_ends,
    ratio_schema,
    same_text,
)
from analysis.figures import style
from analysis.measures.list_scores import ListScores, scores_of
from analysis.run import Run
from analysis.statistics import Array, ranks
from analysis.statistics.correlation import correlations
from analysis.study import Absent, Study, Table, required, table
from engine.runs.schema import Columns

EVERY_PROMPT = True  # see analysis/report/few_prompts.py

_SCHEMA: Columns = {"list": pl.String, **AGAINST, "spearman_per_token": pl.Float64}


def tables(study: Study) -> Iterator[Table]:
    """item_logprobs.csv, item_logprobs_questions.csv and item_logprobs_ratio.csv.

    For the figures: ("item_logprobs_points", list, prompt, language model), and for a list under
    many prompts, where `asked` is as in `items_controls.csv`, ("item_logprobs_means", list, asked,
    language model).
    """
    run = study.run
    yield table("item_logprobs", make=partial(_rewards, study))
    compared = study.tables.get("item_logprobs")
    if compared is not None:
        keys = compared.select("list", "prompt", "language_model").unique(maintain_order=True)
        many = lists_of_many_prompts(compared)
        for items, prompt, model in keys.filter(~pl.col("list").is_in(many)).iter_rows():
            points = partial(item_logprobs_points, run, items, prompt, model, study.models)
            key = ("item_logprobs_points", items, prompt, model)
            yield table(*key, make=points, file=False)
        for items in many:
            scores = scores_of(study, items)
            models = keys.filter(list=items)["language_model"].unique(maintain_order=True)
            for (asked, at), model in itertools.product(views(scores), models):
                means = partial(item_logprobs_means, run, scores, at, model)
                yield table("item_logprobs_means", items, asked, model, make=means, file=False)
    yield table("item_logprobs_questions", make=partial(_questions, study))
    yield table("item_logprobs_ratio", make=partial(_ratio, study))


def lists_of_many_prompts(compared: pl.DataFrame) -> list[str]:
    """The lists of `item_logprobs.csv` that are read by question: those under many prompts."""
    counts = compared.group_by("list", maintain_order=True).agg(n=pl.col("prompt").n_unique())
    return counts.filter(pl.col("n") > FEW)["list"].to_list()


def item_logprobs_means(
    run: Run, scores: ListScores, at: Array, language_model: str
) -> pl.DataFrame:
    """Means over several prompts of the log-probabilities and percentiles of one list.

    Args:
      run: the run.
      scores: the list.
      at: the prompts (indices) of `scores`.
      language_model: its slug.

    Returns:
      item_id, item, tokens, logprob (mean over the language model's prompts with the texts of those
      prompts), and one float64 column per model: its mean percentile over the prompts; sorted by
      item_id.

    Raises:
      Absent: the language model did not score the list under such a prompt.
    """
    texts = {run.prompts[prompt] for prompt in scores.prompts["prompt"].gather(at.tolist())}
    asked = [
        prompt
        for items, model, prompt in run.item_logprobs
        if (items, model) == (scores.name, language_model) and run.prompts[prompt] in texts
    ]
    if not asked:
        raise Absent(f"{language_model} did not score “{scores.name}” under these prompts.")
    read = pl.concat(run.replies(scores.name, language_model, prompt) for prompt in asked)
    each = read.group_by("item_id", "item", maintain_order=True)
    means = each.agg(pl.col("tokens").first(), pl.col("logprob").mean())
    models, percentiles = scores.means(at)
    own = scores.items.select("item_id").with_columns(
        **{
            model: pl.Series(values, dtype=pl.Float64)
            for model, values in zip(models, percentiles, strict=True)
        }
    )
    return means.join(own, on="item_id", how="inner", validate="1:1").sort("item_id")


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
        asked = [p for name, m, p in run.items if (name, m) == (items, model)]
        same = same_text(run, prompt, asked)
        if same is not None:
            own = run.item_scores(items, same, [model]).drop("item")
            points = points.join(own, on="item_id", how="inner", validate="1:1")
    return points.sort("item_id")


def item_logprobs_rewards(run: Run, models: Sequence[str]) -> pl.DataFrame:
    """Correlation of the rewards of each list with its log-probabilities.

    A reply's log-probability sums over its tokens, so that long replies are improbable whatever
    they say; `spearman_per_token` takes the mean over the tokens.

    Returns:
      The table `item_logprobs.csv`: list, prompt and language_model, model (of the rewards), n
      (items), pearson, spearman, kendall, spearman_per_token.
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
    return pl.DataFrame(each, schema=_SCHEMA)


def item_logprobs_ratio(run: Run, count: int) -> pl.DataFrame:
    """`log_ratio` of each two language models on one list under one prompt, at both ends.

    Probabilities are those of the replies among all possible ones, not rescaled to the list.

    Returns:
      list, then the columns of `language_models.logprobs_ratio`, with `item` for `token`.
    """
    frames = [pl.DataFrame(schema={"list": pl.String, **ratio_schema("item")})]
    asked = dict.fromkeys((items, prompt) for items, _, prompt in run.item_logprobs)
    for items, prompt in asked:
        scored = sorted(m for name, m, p in run.item_logprobs if (name, p) == (items, prompt))
        for p, q in itertools.combinations(scored, 2):
            log_p, log_q = (run.replies(items, model, prompt) for model in (p, q))
            log_q = log_q.select("item_id", log_q="logprob")
            both = log_p.join(log_q, on="item_id", how="inner", validate="1:1")
            keys = {"list": items, "prompt": prompt, "p": p, "q": q}
            frames.append(ratio_ends(both.rename({"logprob": "log_p"}), "item", count, keys))
    return pl.concat(frames)


def _rewards(study: Study) -> pl.DataFrame:
    if not study.run.item_logprobs:
        raise Absent("No language model scored a list of items.")
    why = "No reward model scored a list that a language model scored, under its prompt."
    return required(item_logprobs_rewards(study.run, study.models), why)


def _ratio(study: Study) -> pl.DataFrame:
    why = "No two language models scored one list under one prompt."
    return required(item_logprobs_ratio(study.run, study.settings.top), why)


def item_logprobs_questions(compared: pl.DataFrame, asked: pl.DataFrame) -> pl.DataFrame:
    """`item_logprobs.csv` averaged over the wordings of each question.

    Args:
      compared: `item_logprobs.csv`, with a column `text` of the prompt.
      asked: list, text, question, framing.

    Returns:
      The table `item_logprobs_questions.csv`: list, question, framing, language_model, model,
      prompts, then the means over them of spearman (with its standard deviation, spearman_spread),
      kendall and spearman_per_token.
    """
    joined = compared.join(
        asked, on=["list", "text"], how="inner", validate="m:1", maintain_order="left"
    )
    keys = ["list", "question", "framing", "language_model", "model"]
    spearman = pl.col("spearman")
    return joined.group_by(keys, maintain_order=True).agg(
        prompts=pl.len().cast(pl.Int64),
        spearman=spearman.mean(),
        spearman_spread=spearman.std(),
        kendall=pl.col("kendall").mean(),
        spearman_per_token=pl.col("spearman_per_token").mean(),
    )


def _questions(study: Study) -> pl.DataFrame:
    compared, prompts = study.tables["item_logprobs"], study.tables["items_prompts"]
    texts = pl.DataFrame(
        {"prompt": list(study.run.prompts), "text": list(study.run.prompts.values())}
    )
    asked = prompts.join(texts, on="prompt", how="left", validate="m:1", maintain_order="left")
    asked = asked.select("list", "text", "question", "framing").unique(
        ["list", "text"], maintain_order=True
    )
    named = compared.join(texts, on="prompt", how="left", validate="m:1", maintain_order="left")
    return required(
        item_logprobs_questions(named, asked), "No language model was asked such a question."
    )


_LONGEST = 4  # Tokens; longer replies have its colour.


@style.styled
def against_logprobs(
    points: pl.DataFrame, names: Mapping[str, str], label: str = "reward"
) -> style.Figure:
    """Reward of each item against its log-probability, one panel per model.

    Longer items are darker.

    Args:
      points: what `item_logprobs_points` returns.
      names: slug -> nickname, in the order of the panels; models without a column are left out.
      label: what the numbers of the models are.
    """
    models = [model for model in names if model in points.columns]
    figure, axes = style.panels(names, models, 4, (2.6, 2.4))
    lengths = range(1, min(_LONGEST, points["tokens"].to_numpy().max()) + 1)
    looks = {n: style.shade("viridis_r", 0.08 + 0.9 * n / _LONGEST) for n in lengths}
    for model, ax in axes.items():
        for length, colour in looks.items():
            own = points.filter(pl.col("tokens").clip(1, _LONGEST) == length)
            style.cloud(ax, own["logprob"].to_numpy(), own[model].to_numpy(), colour)
    figure.supxlabel("log-probability of the item (natural)", fontsize=9)
    figure.supylabel(label, fontsize=9)
    said = {
        n: f"{n} token{'s' if n > 1 else ''}{' or more' if n == _LONGEST else ''}" for n in looks
    }
    style.legend(figure, {said[n]: (colour, "o") for n, colour in looks.items()})
    return figure


def section(study: Study) -> Section:
    """Reward against log-probability, list by list."""
    made = study.tables
    blocks: list[Block] = notes([made.reason("item_logprobs")])
    for (items, prompt, language_model), points in made.of("item_logprobs_points").items():
        caption = (
            f"The items of “{items}” under “{prompt}”: reward against the log-probability that "
            f"{language_model} gives them. Darker: more tokens."
        )
        stem = f"item_logprobs_{items}_{prompt}_{language_model}"
        blocks.append(Picture(stem, caption, partial(against_logprobs, points, study.names)))
    blocks += [_means(study, *key) for key in made.of("item_logprobs_means")]
    compared = made.get("item_logprobs")
    many = [] if compared is None else lists_of_many_prompts(compared)
    blocks += _tables(study, many)
    return Section(
        id="item_logprobs",
        title="Language models on lists",
        label="Language models on lists",
        lead="Does a reward model rate high those replies of a list that a language model would "
        "have given?",
        blocks=blocks,
        caveats=(
            "A long reply is improbable whatever it says: ρ per token takes the mean over its "
            "tokens, which in turn favours long words whose later tokens are predictable.",
            RATIO_CAVEAT,
        ),
    )


def _means(study: Study, items: str, asked: str, language_model: str) -> Picture:
    """Percentiles of a list under many prompts against its log-probabilities."""
    points = study.tables["item_logprobs_means", items, asked, language_model]
    caption = (
        f"The items of “{items}”, prompts “{asked}”: mean percentile over the prompts against the "
        f"mean log-probability that {language_model} gives them. Darker: more tokens."
    )
    stem = f"item_logprobs_{items}_{file_name(asked)}_{language_model}"
    label = "mean percentile, 0 to 1"
    return Picture(stem, caption, partial(against_logprobs, points, study.names, label))


def _tables(study: Study, many: list[str]) -> list[Block]:
    """The tables of the section; of the lists `many`, means over the wordings of a question."""
    made = study.tables

    def shown(frame: pl.DataFrame | None, by_question: bool) -> pl.DataFrame | None:
        return None if frame is None else frame.filter(pl.col("list").is_in(many) == by_question)

    columns = (LIST, *AGAINST_COLUMNS, ("spearman_per_token", "ρ per token", "fixed"))
    title = "Log-probability against reward"
    own = shown(made.get("item_logprobs"), False)
    blocks = rows(own, columns, "item_logprobs.csv", title)
    title = "Log-probability against reward, question by question"
    own = shown(made.get("item_logprobs_questions"), True)
    blocks += rows(own, _QUESTION_COLUMNS, "item_logprobs_questions.csv", title)
    title = "Replies on which two language models differ most"
    own = shown(made.get("item_logprobs_ratio"), False)
    columns = (LIST, *ratio_columns("item"))
    blocks += rows(own, columns, "item_logprobs_ratio.csv", title)
    whole = ["item_logprobs.csv", "item_logprobs_ratio.csv"]
    files = [name for name in whole if name.removesuffix(".csv") in made.files]
    return [*blocks, Files(files)] if many else blocks


_QUESTION_COLUMNS: tuple[Column, ...] = (
    LIST,
    ("question", "question", "text"),
    ("language_model", "language model", "text"),
    MODEL,
    ("prompts", "prompts", "count"),
    ("spearman", "mean ρ", "fixed"),
    ("spearman_spread", "spread", "fixed"),
    ("kendall", "mean τ", "fixed"),
    ("spearman_per_token", "mean ρ per token", "fixed"),
)
