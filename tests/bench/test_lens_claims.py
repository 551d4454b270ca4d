"""A short version of the null of `bench.claims.lens`, and that its sentences can appear in it."""

import numpy as np
import polars as pl
import pytest

from analysis.measures import lens as measures
from analysis.words import lexicons
from bench.claims import lens


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.fixture(scope="module")
def terms():
    return lexicons.identity("")


def test_of_layers_at_the_edge_of_chance_little_is_said(rng, terms):
    run = lens.null(lens.made_up(terms, rng), rng)
    assert sum(lens.said(run, terms, rng).values()) <= 1
    order = measures.by_layer(run, ["a", "b"], ("best", "worst"), ("greatest", "best")).order
    edge = order.filter(of="all tokens", layer=lens._LAYERS - 1)["kendall"]
    assert edge.mean() == pytest.approx(0.5, abs=0.03)  # ± 0.01 by chance


def test_what_is_planted_is_said(rng, terms):
    run = lens.null(lens.made_up(terms, rng), rng)
    word = run.tokens["a"]["token"].str.strip_chars()
    first = terms.filter(axis="gender").filter(pl.col("group") != lexicons.NEUTRAL)
    high = word.is_in(first.filter(group=first["group"][0])["word"].implode()).to_numpy()
    for (_, prompt), layers in run.values.items():
        layers[-1] += 9 * high
        layers[-2] = layers[-1]
        if prompt == "worst":
            layers[-2:] *= -1
    assert all(lens.said(run, terms, rng).values())
