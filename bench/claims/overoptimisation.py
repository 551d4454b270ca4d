"""Claims about over-optimisation: rewards that only rise together, but for errors.

The chapter on exact policies makes no claim of its own: its numbers are closed forms.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from analysis.chapters import overoptimisation
from analysis.measures.overoptimisation import curves_of, pairs_of, with_p
from analysis.measures.reference_policy import VOCABULARY, Replies
from analysis.run import Run
from analysis.statistics import Array
from analysis.statistics.exact_policies import normalised
from analysis.statistics.multiplicity import with_q
from analysis.words.stems import stem_numbers
from bench.claims import Rate

_CLAIM = "over-optimisation: more of one reward costs the other"
_TOKENS = 2_000  # of a draw
_AGREE = 0.5  # correlation from which the chapter speaks of a pair


def rates(run: Run, draws: int) -> Iterator[Rate]:
    """How often the sentence appears where a reward never falls with another one.

    Args:
      run: a run folder with real rewards.
      draws: draws of each null.
    """
    rng = np.random.default_rng(0)
    for name, said in (("linear", 1.0), ("saturating", 0.4)):
        drawn = (claimed(made_up(rng, said), rng) for _ in range(draws))
        yield Rate.of(_CLAIM, f"3 made-up rewards, {name}, noise", drawn)
    prompt = next(iter(run.vocabulary_prompts))
    if len(run.models_under(prompt)) > 1:
        drawn = (claimed(real(run, prompt, rng), rng) for _ in range(draws))
        yield Rate.of(_CLAIM, "real pair, signs of the errors drawn by word", drawn)


def made_up(rng: np.random.Generator, bend: float) -> Replies:
    """Three rewards of a common taste, which may saturate, with errors by word.

    The language model finds some replies much more probable than others.
    """
    texts = pl.Series([f"{space}word{i}" for i in range(_TOKENS // 2) for space in ("", " ")])
    words = np.repeat(np.arange(_TOKENS // 2), 2)
    taste = rng.normal(size=_TOKENS // 2)[words]
    rewards = [np.sign(taste) * np.abs(taste) ** bend + 0.6 * _errors(words, rng) for _ in range(3)]
    return _replies(texts, 2 * rng.normal(size=_TOKENS), np.array(rewards))


def real(run: Run, prompt: str, rng: np.random.Generator) -> Replies:
    """A real reward, and what another one makes of it on average, with its errors' signs drawn."""
    model, other = rng.permutation(run.models_under(prompt))[:2]
    ids, reward = run.rewards(model, prompt)
    theirs = dict(zip(("token_id", "reward"), run.rewards(other, prompt), strict=True))
    tokens = run.vocabulary(model).select("token_id", "token").collect()
    both = pl.DataFrame({"token_id": ids, "own": reward}).join(
        pl.DataFrame(theirs), on="token_id", how="inner", validate="1:1"
    )
    some = both.join(tokens, on="token_id", how="left", validate="1:1").sample(
        _TOKENS, seed=int(rng.integers(2**31))
    )
    own, read = (some[name].to_numpy().astype(np.float64) for name in ("own", "reward"))
    order = np.argsort(own)
    rising = np.empty_like(read)
    rising[order] = pl.Series(read[order]).rolling_mean(201, min_samples=1, center=True).to_numpy()
    rising[order] = np.maximum.accumulate(rising[order])
    words = stem_numbers(some["token"])
    signs = rng.choice([-1.0, 1.0], int(words.max()) + 1)[words]
    rewards = np.array([own, rising + signs * (read - rising)])
    return _replies(some["token"], 2 * rng.normal(size=_TOKENS), rewards)


def claimed(replies: Replies, rng: np.random.Generator) -> bool:
    """Whether the chapter says that a pair of them turns down."""
    pairs = pairs_of(replies, curves_of(replies))
    table = with_q(with_p(replies, pairs, _AGREE, int(rng.integers(2**31))))
    names = {model: model for model in replies.models}
    return bool(overoptimisation.findings(table, names, ()))


def untested(replies: Replies) -> bool:
    """Whether a pair turns down at all: what the sentence would say if it asked for no test.

    The control of `claimed`: it shows that the nulls hold what the test has to refuse.
    """
    pairs = with_q(pairs_of(replies, curves_of(replies)).with_columns(p=pl.lit(0.0)))
    names = {model: model for model in replies.models}
    return bool(overoptimisation.findings(pairs, names, ()))


def _errors(words: Array, rng: np.random.Generator) -> Array:
    """Errors of heavier tails than normal, in part those of the word."""
    own = rng.standard_t(5, size=len(words))
    return np.asarray(0.8 * rng.standard_t(5, size=int(words.max()) + 1)[words] + 0.6 * own)


def _replies(texts: pl.Series, logits: Array, rewards: Array) -> Replies:
    return Replies(
        of=VOCABULARY,
        prompt="greatest",
        reference="lm",
        form="greatest",
        ids=np.arange(len(texts)),
        texts=texts,
        log_p=normalised(logits),
        covered=1.0,
        models=tuple(f"m{i}" for i in range(len(rewards))),
        rewards=rewards,
    )
