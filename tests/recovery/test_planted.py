"""Planted truth: each analysis finds what was put in, at its rate, and nothing else.

Each claim is made on 200 draws at once: a draw is a "prompt" of the same frame wherever the
analysis treats prompts apart. Bounds are those that a true rate of 95 % (or 5 %) leaves in less
than one of a thousand sets of 200.
"""

import math

import numpy as np
import polars as pl
import pytest

import analysis
from analysis.measures.word_groups.estimates import estimate
from analysis.measures.word_groups.standing import standing
from analysis.statistics import variance
from analysis.statistics.correlation import principal_axes

pytestmark = pytest.mark.slow

DRAWS = 200
COVERED = (180, 199)
ALARMS = 20


@pytest.fixture
def rng():
    return np.random.default_rng(2024)


def covered(truth, low, high):
    return int(np.sum((np.asarray(low) <= truth) & (truth <= np.asarray(high))))


def slopes(table, **keys):
    """Slope and its 95 % interval of each draw."""
    own = table.filter(**keys) if keys else table
    # Some 100 words: Student's t and the normal differ in the second digit.
    half = 1.98 * own["stderr"]
    return own["slope"], own["slope"] - half, own["slope"] + half


def word_frame(rng, words=120, spellings=3):
    """Spellings of words with a value and a log frequency that go together."""
    value = rng.integers(-5, 6, size=words).astype(float)
    log_frequency = 0.4 * value + rng.normal(scale=2.0, size=words)
    word = np.repeat(np.arange(words), spellings)
    columns = {"word": [f"w{i}" for i in word], "value": value[word]}
    columns |= {"log_frequency": log_frequency[word]}
    table = pl.DataFrame(columns).with_row_index("token_id").with_columns(token=pl.col("word"))
    return table, word


def drawn(table, **numbers):
    """`table` once for each draw, which is its prompt, with the draw's numbers [DRAWS, N]."""
    keys = [{"model": pl.lit("m"), "prompt": pl.lit(f"d{d:03d}")} for d in range(DRAWS)]
    return pl.concat(
        table.with_columns(**key, **{name: pl.Series(x[d]) for name, x in numbers.items()})
        for d, key in enumerate(keys)
    )


def scored(rng, table, word, mean):
    """`table` with the rewards of every draw: `mean` [N], what a word shares, and noise."""
    shape = (DRAWS, len(word))
    shared = rng.normal(size=(DRAWS, word.max() + 1))[:, word]
    rewards = (
        mean
        + shared
        + rng.normal(scale=0.5, size=shape) * (1 + 0.2 * abs(table["value"].to_numpy()))
    )
    return drawn(table, reward=rewards)


def test_sentiment_slopes_of_both_valences_are_recovered(rng):
    table, word = word_frame(rng)
    value = table["value"].to_numpy()
    points = scored(rng, table, word, 0.7 * np.maximum(value, 0) + 0.2 * np.minimum(value, 0) - 3)
    found = analysis.sentiment_slopes(points)
    for valence, truth in (("positive", 0.7), ("negative", 0.2)):
        _, low, high = slopes(found, valence=valence)
        assert COVERED[0] <= covered(truth, low, high) <= COVERED[1]
    assert (found.filter(valence="positive")["p"] < 0.05).sum() == DRAWS


def test_where_no_sentiment_was_planted_none_is_found(rng):
    table, word = word_frame(rng)
    found = analysis.sentiment_slopes(scored(rng, table, word, np.zeros(len(word))))
    for valence in ("positive", "negative"):
        assert (found.filter(valence=valence)["p"] < 0.05).sum() <= ALARMS


def test_a_frequency_effect_is_recovered_beside_sentiment(rng):
    table, word = word_frame(rng)
    effect = 0.15 * table["log_frequency"].to_numpy() + 0.5 * table["value"].to_numpy()
    found = analysis.frequency_slopes(scored(rng, table, word, effect))
    _, low, high = slopes(found)
    assert COVERED[0] <= covered(0.15, low, high) <= COVERED[1]


def test_the_share_of_a_framing_axis_is_recovered(rng):
    held = 0
    for _ in range(DRAWS):
        opposed, same = 2 * rng.standard_t(8, size=1000), rng.standard_t(8, size=1000)
        first, second = principal_axes(opposed + same, same - opposed, np.arange(1000))
        held += covered(0.8, first[2].low, first[2].high)
        assert first[:2] == pytest.approx((math.sqrt(0.5), -math.sqrt(0.5)), abs=0.06)
        assert second[0] * second[1] > 0
    assert COVERED[0] <= held <= COVERED[1]


# 24 groups of one axis and 24 placebo kinds on six; each has a place of its own.
KINDS = [(f"axis{k % 6}", f"kind{k}", True) for k in range(24)]
GROUPS = [("x", "slighted", False), ("x", "plain", False), ("x", "other", False)]


def identity_words(rng, bias, kinds=0.0, models=1):
    """Three groups of seven stems, forty neutral ones and placebo kinds, under 200 prompts.

    Stems have two words (of two forms) or one, and a word two surfaces. Models rate words alike.
    """
    groups = [
        *(((a, g, p), 7) for a, g, p in (*GROUPS, *KINDS)),
        (("neutral", "neutral", False), 40),
    ]
    rows = [
        (*group, f"{group[1]}{stem}", f"{group[1]}{stem}{form}", form)
        for group, stems in groups
        for stem in range(stems)
        for form in ("singular", "plural")[: 1 + stem % 2]
    ]
    names = ["axis", "group", "placebo", "stem", "word", "form"]
    words = pl.DataFrame(rows, schema=names, orient="row")
    stem = words["stem"].rank("dense").to_numpy() - 1
    kind = words["group"].rank("dense").to_numpy() - 1
    own = rng.normal(scale=0.07, size=(DRAWS, stem.max() + 1))[:, stem]
    own = own + rng.normal(scale=0.04, size=own.shape)
    own += (
        rng.normal(scale=kinds, size=(DRAWS, kind.max() + 1))[:, kind] * words["placebo"].to_numpy()
    )
    own += 0.45 + np.where(words["group"] == "slighted", bias, 0.0)
    own += np.where(words["form"] == "plural", -0.1, 0.0)
    words = words.join(pl.DataFrame({"surface": ["_a", "-A"]}), how="cross").with_row_index(
        "token_id"
    )
    frames = []
    for model in range(models):
        tokens = (own + rng.normal(scale=0.03, size=own.shape)).repeat(2, axis=1)
        tokens += np.tile([0.0, 0.2], len(rows)) + rng.normal(scale=0.02, size=tokens.shape)
        frames.append(drawn(words, percentile=tokens).with_columns(model=pl.lit(f"m{model}")))
    return pl.concat(frames)


def estimates_of(words, rng):
    return estimate(standing([words]), rng, permutations=999, bootstraps=400)


def test_a_slighted_group_is_found_and_its_difference_recovered(rng):
    found = estimates_of(identity_words(rng, bias=-0.2), rng).groups
    slighted = found.filter(group="slighted")
    assert (slighted["p"] < 0.05).sum() >= 0.95 * DRAWS
    assert (slighted["placebo_share"] <= 0.05).sum() >= 0.95 * DRAWS
    held = covered(-0.2, slighted["contrast_low"], slighted["contrast_high"])
    assert COVERED[0] <= held <= COVERED[1]
    # Seven of ten words in the singular, both surfaces.
    truth = 0.45 + 0.1 - 0.1 * 3 / 10 - 0.2
    held = covered(truth, slighted["ci_low"], slighted["ci_high"])
    assert COVERED[0] <= held <= 200  # forms are fixed, so the bootstrap over stems is cautious


def test_groups_that_are_alike_raise_alarms_at_their_rate(rng):
    found = estimates_of(identity_words(rng, bias=0.0), rng).groups
    for _, group, _ in GROUPS:
        own = found.filter(group=group)
        assert (own["p"] < 0.05).sum() <= ALARMS
        held = covered(0.0, own["contrast_low"], own["contrast_high"])
        assert COVERED[0] <= held <= COVERED[1]


def test_a_group_that_is_as_far_as_placebo_kinds_are_is_seldom_further_than_they(rng):
    words = identity_words(rng, bias=0.0, kinds=0.1)
    kind = pl.col("group").is_in(["kind0", "kind6", "kind12", "kind18"])  # all of axis0
    people = words.filter(pl.col("placebo") | (pl.col("group") == "neutral"))
    found = estimates_of(people.with_columns(placebo=pl.col("placebo") & ~kind), rng).groups
    own = found.filter(group="kind0")
    assert (own["p"] < 0.05).sum() > 3 * ALARMS  # It does differ,
    assert (own["placebo_share"] <= 0.05).sum() <= ALARMS  # and no more than fruits do.


def test_models_that_rate_words_alike_are_no_evidence_by_their_number(rng):
    found = estimates_of(identity_words(rng, bias=0.0, models=5), rng).over_models
    own = found.filter(group="plain")
    assert (own["p_models"] < 0.05).sum() > 2 * ALARMS  # The interval over models, read alone.
    assert (own["p"] < 0.05).sum() <= ALARMS


def test_variance_is_split_as_it_was_made(rng):
    deviations = np.array([1.0, 0.7, 0.5, 0.8])
    models, prompts, tokens = 4, 3, 400
    token, model, prompt, rest = deviations**2
    expected = np.array(
        [
            token + model / models + prompt / prompts + rest / (models * prompts),
            (models - 1) * (model + rest / prompts) / models,
            (prompts - 1) * (prompt + rest / models) / prompts,
            (models - 1) * (prompts - 1) * rest / (models * prompts),
        ]
    )
    held, found = np.zeros(4, dtype=int), []
    for _ in range(DRAWS):
        sizes = (
            (tokens, 1, 1),
            (tokens, models, 1),
            (tokens, 1, prompts),
            (tokens, models, prompts),
        )
        parts = [s * rng.normal(size=size) for s, size in zip(deviations, sizes, strict=True)]
        cube = sum(parts, np.zeros((tokens, models, prompts)))
        _, low, high, _ = variance.shares(cube, np.arange(tokens))
        truth = expected / expected.sum()
        held += (low <= truth) & (truth <= high)
        found.append(variance.estimates(cube))
    assert (held >= COVERED[0]).all()
    assert (held <= COVERED[1] + 1).all()
    np.testing.assert_allclose(np.mean(found, axis=0), deviations**2, rtol=0.03)
