import numpy as np
import pytest

from engine.errors import AssayError
from engine.runs import schema
from tests.support.sweeps import ONE, plain_rewards
from tests.unit.text.test_chat_template import PLAIN_NEWLINE

RESULT = "items/words/model=tiny/prompt=greatest"
REPLIES = [
    "love",
    "",
    "the war",
    "love",
    "Ünïcödé ☃ 漢字",
    " love",
    "truth " * 9,
    "\n",
    "<script>",
    "<|im_end|>",
    "no\nyes",
    "the war",
]


def plain(checkpoint, replies):
    """Rewards of the rendered conversations by the plain forward pass."""
    return plain_rewards(checkpoint, checkpoint.template.sequences(ONE["greatest"], replies))


def test_replies_of_any_length_get_the_reward_of_the_plain_forward_pass_in_order(run, tiny):
    assert run.score([tiny], ONE, "words", REPLIES) == len(REPLIES)
    frame = run.frame(RESULT)
    assert dict(frame.schema) == schema.ITEM_COLUMNS
    assert frame["item_id"].to_list() == list(range(len(REPLIES)))
    assert frame["item"].to_list() == REPLIES
    rewards = frame["reward"].to_numpy()
    np.testing.assert_allclose(rewards, plain(tiny, REPLIES), rtol=1e-4, atol=1e-5)
    assert rewards[0] == rewards[3]
    assert len(np.unique(rewards)) == len(set(REPLIES))


def test_ids_and_text_differ_only_where_a_reply_merges_with_the_template(run, other_run, tiny):
    run.score([tiny], ONE, "words", REPLIES, mode="text")
    other_run.score([tiny], ONE, "words", REPLIES, mode="ids")
    text, ids = (r.frame(RESULT)["reward"].to_numpy() for r in (run, other_run))
    differ = ~np.isclose(text, ids, rtol=1e-5, atol=1e-6)
    assert [REPLIES[i] for i in np.flatnonzero(differ)] == ["\n"]


def test_a_reply_that_merges_with_the_template_is_scored_as_the_rendered_text(run, checkpoint):
    model = checkpoint("merging", template=PLAIN_NEWLINE)
    replies = ["love", "\nlove", "\n", "\n\n\nwar"]
    run.score([model], ONE, "words", replies, mode="text")
    rewards = run.frame("items/words/model=merging/prompt=greatest")["reward"]
    np.testing.assert_allclose(rewards, plain(model, replies), rtol=1e-4, atol=1e-5)


def test_the_longest_reply_that_fits_is_scored(run, tiny):
    used = len(tiny.template.sequences(ONE["greatest"], [""])[0])
    longest = ["!" * (128 - used)]
    assert run.score([tiny], ONE, "words", longest) == 1
    rewards = run.frame(RESULT)["reward"]
    np.testing.assert_allclose(rewards, plain(tiny, longest), rtol=1e-4, atol=1e-5)
    with pytest.raises(AssayError, match="a conversation has 129 tokens"):
        run.score([tiny], ONE, "longer", [longest[0] + "!"])


def test_a_list_with_other_items_under_its_name_is_refused(run, tiny):
    run.score([tiny], ONE, "words", ["love", "war"])
    before = run.parts()
    with pytest.raises(AssayError, match="list 'words' is there already with items_hash="):
        run.score([tiny], ONE, "words", ["love", "truth"])
    with pytest.raises(AssayError, match=r"list 'words' is there already with rows=2, not 3"):
        run.score([tiny], ONE, "words", ["love", "war", "truth"])
    assert run.parts() == before


@pytest.mark.parametrize(
    ("name", "replies", "message"),
    [
        ("words", [], "item list 'words': empty; allowed: at least one reply"),
        ("../words", ["love"], r"name '\.\./words'; allowed"),
    ],
)
def test_a_bad_list_is_refused_and_nothing_is_written(run, tiny, name, replies, message):
    with pytest.raises(AssayError, match=message):
        run.score([tiny], ONE, name, replies)
    assert not run.folder.exists()
