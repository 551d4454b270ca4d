"""Lists of tokens that the paper prints, from what its authors released of them.

The scores of the whole vocabularies are not there. What is: the first and last 20 tokens of every
model on its whole vocabulary (Table A6) and on the shared one (Table A7). From them, with every
string that is listed anywhere, come runs whose shared vocabulary is the paper's as far as it is
known.
"""

import csv

import polars as pl
import pytest

import analysis
from configs import known_models
from launch.common import released_scores
from launch.common.released_files import Choices
from tests.conftest import SHARED

pytestmark = pytest.mark.needs_shared
COUNT = 20
ENDS = ("top", "bottom")
SLUGS = {spec.nickname: spec.slug for spec in known_models.MODELS.values()}


def published(name):
    """Nickname -> its first tokens and its last ones, both from the highest down."""
    with (SHARED / "reference" / name).open(newline="", encoding="utf-8") as file:
        header, *lines = list(csv.reader(file))
    middle = next(i for i, line in enumerate(lines) if line[0] == "...")
    return {
        nickname: ([x[i] for x in lines[:middle]], [x[i] for x in lines[middle + 1 :]])
        for i, nickname in enumerate(header)
    }


@pytest.fixture(scope="module")
def raw():
    return published("table_a6_raw_vocab_greatest.csv")


@pytest.fixture(scope="module")
def shared_lists():
    return published("table_a7_shared_vocab_greatest.csv")


def merged(raw, shared, everywhere):
    """The tokens of both lists, high to low: each of the raw list's own before what follows it.

    Published scores are equal for many neighbours, which the two tables list in different orders:
    the order of the shared list holds, and a shared token that only the raw list has is left out.
    """
    order = list(shared)
    for token in reversed([token for token in raw if token not in everywhere]):
        after = next((t for t in raw[raw.index(token) + 1 :] if t in order), None)
        order.insert(len(order) if after is None else order.index(after), token)
    return order


def test_the_shared_lists_are_the_printed_ones(raw, shared_lists, tmp_path):
    """Every model lists strings of its own among the printed ones; Table A7 lacks exactly these."""
    everywhere = {token for ends in shared_lists.values() for end in ends for token in end}
    own = []
    for nickname, slug in SLUGS.items():
        both = zip(raw[nickname], shared_lists[nickname], strict=True)
        top, bottom = (merged(*ends, everywhere) for ends in both)
        middle = sorted(everywhere - {*top, *bottom})
        rewards = {token: 1000.0 - i for i, token in enumerate(top)}
        rewards |= dict.fromkeys(middle, 0.0)
        rewards |= {token: -1000.0 - i for i, token in enumerate(bottom)}
        tokens = list(rewards)
        columns = {"token_id": range(len(tokens)), "token_name": tokens, "token_decoded": tokens}
        frame = pl.DataFrame({**columns, "greatest": rewards.values()})
        frame.write_csv(tmp_path / f"{known_models.KNOWN[slug].hub_id.replace('/', '--')}.csv")
        own += [token for token in (*top, *bottom) if token not in everywhere]
    assert len(own) == 122
    choices = Choices(layout="tokens")
    released_scores.import_scores(str(tmp_path), str(tmp_path / "run"), choices)
    run = analysis.load(tmp_path / "run")
    shared = analysis.shared_vocabulary(run)
    assert set(shared["token"]) == everywhere
    rewards = analysis.shared_rewards(run, shared, "greatest")
    found = analysis.shared_top_bottom(shared, rewards, list(SLUGS.values()), COUNT)
    for nickname, slug in SLUGS.items():
        top, bottom = (found.filter(model=slug, end=end)["token"].to_list() for end in ENDS)
        assert [top, bottom[::-1]] == list(shared_lists[nickname])
