"""Rewards of words in a list or a vocabulary, the same words for every model and prompt."""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import numpy as np
import polars as pl
import scipy.stats

from analysis.run import Run, places
from analysis.statistics import Array
from analysis.statistics.distributions import log_ratio
from analysis.words.stems import folded

VOCABULARY = "vocabulary"
PAIR = "\n"  # Between the two language models of a ratio; no slug holds it.


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordScores:
    """What models gave the same words under the same prompts."""

    source: str  # name of the list, or "vocabulary"
    models: Sequence[str]  # slugs
    prompts: Sequence[str]  # prompt ids, in the order of the run
    words: Sequence[str]  # the words, sorted
    values: Array  # float64 [M, P, W]; NaN where a model was not asked a prompt

    def only(self, words: Sequence[str]) -> "WordScores":
        """The same scores of those of `words` that are there."""
        wanted = set(words)
        kept = [at for at, word in enumerate(self.words) if word in wanted]
        return dataclasses.replace(
            self, words=[self.words[at] for at in kept], values=self.values[:, :, kept]
        )

    def complete(self) -> "WordScores":
        """The same scores under those prompts alone that every model was asked."""
        kept = [at for at in range(len(self.prompts)) if not np.isnan(self.values[:, at]).any()]
        prompts = [self.prompts[at] for at in kept]
        return dataclasses.replace(self, prompts=prompts, values=self.values[:, kept])

    def percentiles(self) -> Array:
        """Share of the words that each word stands above, ties counted half; float64 [M, P, W].

        NaN where a model was not asked a prompt.
        """
        ranks = scipy.stats.rankdata(self.values, method="average", axis=2)
        shares = (ranks - 0.5) / max(len(self.words), 1)
        return np.where(np.isnan(self.values), np.nan, shares)


def of_lists(run: Run, models: Sequence[str], words: Sequence[str]) -> Iterator[WordScores]:
    """Rewards of the `words` among the items of each list, list by list.

    An item is a word whatever its case and outer spaces; several spellings of a word count as one,
    by their mean. Only words that every model was asked under every prompt of its own are kept.
    Lists that searches wrote of their sequences are left out.
    """
    for name in run.item_lists():
        scored_pairs = {(m, p) for items, m, p in run.items if items == name}

        def read(model: str, prompt: str, items: str = name) -> pl.DataFrame:
            return run.item_scores(items, prompt, [model]).select(word="item", value=model)

        yield _scores(name, models, run.prompts, scored_pairs, read, words)


def of_replies(run: Run, items: str, words: Sequence[str]) -> WordScores:
    """Log-probabilities of the `words` among the items of one list, by language models."""
    scored_pairs = {(m, p) for name, m, p in run.item_logprobs if name == items}

    def read(model: str, prompt: str) -> pl.DataFrame:
        return run.replies(items, model, prompt).select(word="item", value="logprob")

    models = list(dict.fromkeys(m for name, m, _ in run.item_logprobs if name == items))
    return _scores(items, models, run.prompts, scored_pairs, read, words)


def with_ratios(scores: WordScores) -> WordScores:
    """Log-probabilities with, for each two language models, their log-ratio as one model more.

    The ratio is `log_ratio.log_ratio`: high where the second model gives a likely word more
    probability than the first.
    """
    pairs = list(itertools.combinations(range(len(scores.models)), 2))
    ratios = [log_ratio(scores.values[p], scores.values[q]) for p, q in pairs]
    names = [f"{scores.models[p]}{PAIR}{scores.models[q]}" for p, q in pairs]
    return dataclasses.replace(
        scores,
        models=[*scores.models, *names],
        values=np.concatenate([scores.values, np.array(ratios)]) if pairs else scores.values,
    )


def of_vocabulary(run: Run, models: Sequence[str], words: Sequence[str]) -> WordScores:
    """Rewards of the `words` among the tokens.

    A token is a word whatever its case and outer spaces. Only spellings that are a token of every
    model count, so that models are compared on the same replies; a word's value is the mean
    reward of its spellings.
    """
    scored = [model for model in models if model in run.vocabulary_models]
    spelt = _spellings(run, scored, words)

    def read(model: str, prompt: str) -> pl.DataFrame:
        token_ids, rewards = run.rewards(model, prompt)
        wanted = spelt[model]["token_id"].to_numpy()
        at, known = places(token_ids, wanted)
        values = pl.Series(rewards[at], dtype=pl.Float64)
        return spelt[model].select("word", value=values).filter(known)

    return _scores(VOCABULARY, scored, run.prompts, run.results, read, words)


def _spellings(run: Run, models: Sequence[str], words: Sequence[str]) -> dict[str, pl.DataFrame]:
    """Model -> token_id and word of the spellings that are a token of every model."""
    first = {run.same_vocabulary(model): model for model in reversed(models)}
    wanted = pl.Series(list(words), dtype=pl.String).implode()
    spelt = {}
    for key, model in first.items():
        tokens = run.vocabulary(model).select("token_id", "token", word=folded(pl.col("token")))
        spelt[key] = tokens.filter(pl.col("word").is_in(wanted)).collect()
    sets = [set(frame["token"]) for frame in spelt.values()]
    common = pl.Series(sorted(set.intersection(*sets)) if sets else [], dtype=pl.String).implode()
    kept = {key: frame.filter(pl.col("token").is_in(common)) for key, frame in spelt.items()}
    return {model: kept[run.same_vocabulary(model)] for model in models}


def _scores(
    source: str,
    models: Sequence[str],
    prompts: Iterable[str],
    scored_pairs: Collection[tuple[str, str]],
    read: Callable[[str, str], pl.DataFrame],
    words: Sequence[str],
) -> WordScores:
    """`WordScores` of `scored_pairs`, of each of which `read` gives words and their values."""
    wanted = pl.Series(sorted(set(words)), dtype=pl.String).implode()
    by_pair: dict[tuple[str, str], dict[str, float]] = {}
    for model, prompt in ((m, p) for m in models for p in prompts if (m, p) in scored_pairs):
        read_words = read(model, prompt).select(folded(pl.col("word")), pl.col("value").cast(float))
        known = read_words.filter(pl.col("word").is_in(wanted))
        means = known.group_by("word", maintain_order=True).agg(pl.col("value").mean())
        by_pair[model, prompt] = dict(means.iter_rows())
    common = sorted(set.intersection(*map(set, by_pair.values()))) if by_pair else []
    shown_models = [m for m in models if any(model == m for model, _ in by_pair)]
    shown_prompts = [p for p in prompts if any(prompt == p for _, prompt in by_pair)]
    values = np.full((len(shown_models), len(shown_prompts), len(common)), np.nan)
    for (model, prompt), value in by_pair.items():
        at = shown_models.index(model), shown_prompts.index(prompt)
        values[at] = [value[word] for word in common]
    return WordScores(
        source=source, models=shown_models, prompts=shown_prompts, words=common, values=values
    )
