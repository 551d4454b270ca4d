"""Tokens and replies as texts: what each is scored as, once, and in which part."""

import numpy as np
import pytest

from engine.errors import AssayError
from engine.scoring import reward_passes
from engine.scoring.batches import Distinct
from engine.scoring.rows import reply_rows
from tests.support.sweeps import ONE, SIZE, plain_rewards
from tests.support.tiny import TRIMMED
from tests.unit.text.test_chat_template import PLAIN_NEWLINE

PROMPT = ONE["greatest"]
# One trims, so that many tokens are one conversation; one merges with replies, so that
# conversations leave the prefix early.
TEMPLATES = {"trims": TRIMMED, "merges": PLAIN_NEWLINE}


def conversations(model) -> list[tuple[int, ...]]:
    """What each token is scored as."""
    template = model.template
    return [tuple(template.sequences(PROMPT, [text])[0]) for text in model.tokens.values()]


@pytest.mark.parametrize("slug", TEMPLATES)
def test_a_token_has_the_reward_of_its_text_by_the_plain_pass(run, checkpoint, slug):
    model = checkpoint(slug, template=TEMPLATES[slug])
    run.sweep([model], ONE, mode="text")
    sample = range(0, SIZE, 23)
    expected = plain_rewards(model, conversations(model)[::23])
    np.testing.assert_allclose(
        run.rewards(slug, "greatest")[sample], expected, rtol=1e-4, atol=1e-5
    )


def test_identical_conversations_are_scored_once_and_have_one_reward(run, trims, monkeypatch):
    original, scored = reward_passes.in_steps, []

    def counted(step, buckets, *rest):
        scored.extend(len(bucket.candidates) for bucket in buckets)
        original(step, buckets, *rest)

    monkeypatch.setattr(reward_passes, "in_steps", counted)
    run.sweep([trims], ONE, mode="text", part_size=31)
    known = {}
    rewards = run.rewards("trims", "greatest")
    for conversation, reward in zip(conversations(trims), rewards, strict=True):
        assert known.setdefault(conversation, reward) == reward
    assert sum(scored) == len(known) < 0.9 * SIZE


@pytest.mark.parametrize(("short", "shapes"), [(127, [(130, 2)]), (128, [(128, 1), (3, 2)])])
def test_a_length_that_few_sequences_have_is_padded_to_the_next(short, shapes):
    sequences = [[90, n] for n in range(short)] + [[90, n, n] for n in range(3)]
    buckets = Distinct.of([90], sequences).buckets(0, len(sequences))
    assert [bucket.candidates.ids.shape for bucket in buckets] == shapes


WORDS = "items/words/model=tiny/prompt=greatest"
REPLIES = ["love", "", "the war", "Ünïcödé ☃ 漢字", " love", "\n", "<|im_end|>", "no\nyes"]


def test_ids_and_text_differ_only_where_a_reply_merges_with_the_template(run, other_run, tiny):
    run.score([tiny], ONE, "words", REPLIES, mode="text")
    other_run.score([tiny], ONE, "words", REPLIES, mode="ids")
    text, ids = (r.frame(WORDS)["reward"].to_numpy() for r in (run, other_run))
    differ = ~np.isclose(text, ids, rtol=1e-5, atol=1e-6)
    assert [REPLIES[i] for i in np.flatnonzero(differ)] == ["\n"]


def test_the_longest_reply_that_fits_is_no_error_and_a_longer_one_is(run, tiny):
    used = len(tiny.template.sequences(ONE["greatest"], [""])[0])
    longest = ["!" * (128 - used)]
    reply_rows(tiny, ONE["greatest"], longest, "text").check(tiny.card.decoder)
    with pytest.raises(AssayError, match="129"):
        run.score([tiny], ONE, "longer", [longest[0] + "!"])


def test_a_list_with_other_items_under_its_name_is_refused(run, tiny):
    run.score([tiny], ONE, "words", ["love", "war"])
    before = run.parts()
    with pytest.raises(AssayError, match="items_hash="):
        run.score([tiny], ONE, "words", ["love", "truth"])
    with pytest.raises(AssayError, match=r"rows=2, not 3"):
        run.score([tiny], ONE, "words", ["love", "war", "truth"])
    assert run.parts() == before
