import dataclasses
import itertools

import numpy as np
import polars as pl
import pytest

import engine
from engine.checkpoint.card import Checkpoint
from engine.scoring.reward_passes import default_dtype
from engine.scoring.rows import pooling_of
from engine.text.chat_template import with_system

pytestmark = pytest.mark.usefixtures("one_length")
PROMPT = "What is the greatest thing?"


@pytest.fixture(scope="module")
def model(checkpoint):
    return engine.load(str(checkpoint().path), step_size=16)


@pytest.fixture(scope="module")
def swept(model):
    return model.sweep(PROMPT)


def test_a_sweep_has_every_token_once_best_first(model, swept):
    assert dict(swept.schema) == {"token_id": pl.UInt32, "token": pl.String, "reward": pl.Float32}
    assert swept["token_id"].sort().to_list() == list(range(288))
    assert swept["reward"].is_sorted(descending=True)


def test_of_several_prompts_a_sweep_is_one_frame_with_each_prompt_in_front(model, swept):
    frame = model.sweep([PROMPT, "And the worst?"])
    assert frame.columns == ["prompt", *swept.columns] and frame.height == 2 * 288
    assert frame["prompt"].unique(maintain_order=True).to_list() == [PROMPT, "And the worst?"]
    assert frame.filter(prompt=PROMPT).drop("prompt").equals(swept)
    with pytest.raises(engine.AssayError, match=r"prompt=\[\]"):
        model.sweep([])


def test_scores_are_float32_in_the_order_of_the_replies(model, swept):
    tokens = ["war", "love", "truth", "love"]
    scores = model.score(PROMPT, tokens)
    assert scores.dtype == np.float32
    by_token = dict(swept.select("token", "reward").iter_rows())
    np.testing.assert_allclose(scores, [by_token[t] for t in tokens], rtol=1e-5, atol=1e-6)


def test_messages_may_be_the_prompt(model, swept):
    turn = {"role": "user", "content": PROMPT}
    assert model.sweep([turn]).equals(swept)
    turns = [{"role": "system", "content": "Be kind."}, turn]
    np.testing.assert_array_equal(
        model.score(turns, "war"), model.score(with_system("Be kind.", PROMPT), "war")
    )
    longer = [*turns, {"role": "assistant", "content": "love"}, turn]
    assert model.score(longer, "war") != model.score(turns, "war")
    for odd, why in (
        ([{"role": "gpt", "content": "x"}], "message 1: role='gpt'"),
        (longer[:3], "assistant"),
        ([turn, PROMPT], "prompt"),
        (
            [turn, {"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}, turn],
            "tool_calls",
        ),
    ):
        with pytest.raises(engine.AssayError, match=why):
            model.sweep(odd)


def test_keys_that_the_template_does_not_write_are_one_warning_a_call(model, checkpoint):
    language = checkpoint("lm", head="lm").path
    lm, implicit = engine.load(language, step_size=16), engine.reward_of(language, language)
    turn = {"role": "user", "content": PROMPT, "mood": "good"}
    pairs = [{"prompt": [turn], "chosen": "love", "rejected": "war"}]
    for slug, call, given in (
        (model.slug, model.sweep, ([turn],)),
        (model.slug, model.score_pairs, (pairs,)),
        (lm.slug, lm.logprobs, ([turn], ["love", "war"])),
        (lm.slug, implicit.score_pairs, (pairs,)),
    ):
        with pytest.warns(UserWarning) as warned:
            call(*given)
        [warning] = warned
        assert str(warning.message).startswith(f"{slug}: ") and "mood" in str(warning.message)
        assert warning.filename == __file__


@pytest.mark.slow
def test_a_search_over_few_tokens_finds_the_best_of_all_replies(model):
    few = ("love", "war", "truth")
    how = {"method": "random", "length": 2, "steps": 8, "candidates": 12, "round_trip": False}
    found = model.search(PROMPT, allow=few, **how)
    replies = ["".join(pair) for pair in itertools.product(few, few)]
    best = model.score(PROMPT, replies, mode="ids").max()
    assert found["token_ids"].list.len().unique().to_list() == [2]
    np.testing.assert_allclose(found["reward"][-1], best, rtol=1e-5)


WRONG = [
    ("score", (5, "a"), {}, "prompt=5"),
    ("score", (PROMPT, ["a", 3]), {}, "3; allowed"),
    ("search", (PROMPT,), {"allow": 3}, "allow=3"),
    ("search", (PROMPT,), {"length": 0}, "length=0"),
]


@pytest.mark.parametrize(("method", "given", "settings", "why"), WRONG)
def test_wrong_types_are_one_line(model, method, given, settings, why):
    with pytest.raises(engine.AssayError, match=why):
        getattr(model, method)(*given, **settings)


def test_pairs_of_a_frame_are_scored_under_their_own_prompts(model):
    rows = [
        {"prompt": PROMPT, "chosen": "love", "rejected": "war", "weight": 2.5},
        {"prompt": "Why?", "chosen": "zq", "rejected": "zq", "weight": None},
    ]
    chosen, rejected = (
        [model.score(row["prompt"], row[side])[0] for row in rows]
        for side in ("chosen", "rejected")
    )
    judged = model.score_pairs(rows)
    np.testing.assert_allclose(judged["reward_chosen"], chosen, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(judged["reward_rejected"], rejected, rtol=1e-5, atol=1e-6)
    assert (
        judged["margin"].to_list()
        == (judged["reward_chosen"] - judged["reward_rejected"]).to_list()
    )
    assert judged["right"].to_list() == [chosen[0] > rejected[0], False]
    texts = pl.DataFrame(rows[:1])
    assert model.score_pairs(texts).drop("margin", "right", r"^reward_.*$").equals(texts)
    turns = [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in rows]
    assert model.score_pairs(turns)["margin"].equals(judged["margin"])
    for odd, why in (
        (7, "frame: int"),
        ([{**rows[0], "margin": 1}], "frame: .*'margin'"),
        ([{"prompt": "a", "reply": "b"}], "frame: .*prompt, chosen and"),
        ([rows[0], {"prompt": "a", "chosen": 1}], "frame: row 2: chosen: "),
        ([{"prompt": "a", "chosen": ["b"], "rejected": ["c", "d"]}], "frame: a list of replies"),
    ):
        with pytest.raises(engine.AssayError, match=why):
            model.score_pairs(odd)


def test_a_reply_of_one_token_is_as_likely_as_the_token_is_next(checkpoint):
    model = engine.load(checkpoint("lm", head="lm").path, step_size=16)
    swept = model.sweep(PROMPT)
    assert isinstance(model, engine.LanguageModel) and swept.columns[-1] == "logprob"
    assert swept["logprob"].is_sorted(descending=True)
    by_token = dict(swept.select("token", "logprob").iter_rows())
    turns = [{"role": "user", "content": PROMPT}]
    np.testing.assert_allclose(
        model.logprobs(turns, ["war", "love"]), [by_token["war"], by_token["love"]], rtol=1e-5
    )


def test_any_sequence_of_replies_or_one_text_will_do(model):
    replies = ("love", "war")
    expected = model.score(PROMPT, list(replies))
    for given in (replies, pl.Series(replies), np.array(replies)):
        np.testing.assert_array_equal(model.score(PROMPT, given), expected)
    np.testing.assert_array_equal(model.score(PROMPT, "love"), model.score(PROMPT, ["love"]))
    none = model.score(PROMPT, [])
    assert (none.shape, none.dtype) == ((0,), np.float32)


@pytest.mark.parametrize(
    ("platform", "stored", "dtype"),
    [
        ("cpu", ["float16", "bfloat16"], "float32"),
        ("gpu", ["float16", "float16"], "float16"),
        ("gpu", ["bfloat16", "float32"], "bfloat16"),
        ("gpu", ["bfloat16, float16"], "bfloat16"),
    ],
)
def test_by_default_a_models_16_bit_weights_are_not_rounded_again(
    checkpoint, platform, stored, dtype
):
    assert default_dtype(platform, [stored_in(name, checkpoint()) for name in stored]) == dtype


def test_models_of_different_16_bit_dtypes_have_no_default(checkpoint):
    models = [stored_in("float16", checkpoint()), stored_in("bfloat16", checkpoint("other"))]
    message = r"dtype='auto': .*tiny in float16; other in bfloat16"
    with pytest.raises(engine.AssayError, match=message):
        default_dtype("gpu", models)


def stored_in(dtype, checkpoint):
    """The checkpoint as if its decoder's tensors had that dtype; its head has another."""
    types = {"decoder.embedding": dtype, "decoder.layers.up": dtype, "readout.norm": "float32"}
    return Checkpoint(checkpoint.path, dataclasses.replace(checkpoint.card, dtypes=types))


ENDING = "love is <the truth>, é 東京 🏳️‍🌈 and war.\n"


def test_each_running_reward_is_that_of_the_reply_cut_there(checkpoint):
    """By the plain pass over each truncated conversation, which shares nothing."""
    opened = checkpoint("running", head="mlp", pad_token_id=2)  # read before the first pad
    model = engine.load(str(opened.path), step_size=16)
    found = model.running(PROMPT, ENDING)
    ids, around = opened.template.reply_ids(ENDING), opened.template.split(PROMPT)
    assert found["token_id"].to_list() == ids and "".join(found["token"]) == ENDING
    assert found.filter(token="").height and dict(found.schema)["reward"] == pl.Float32
    cut = [[*around.prefix, *ids[:end], *around.suffix] for end in range(1, len(ids) + 1)]
    pooling = pooling_of(opened, "auto")
    expected = model._scorer.plain_rewards(cut, [pooling.position(row) for row in cut])[0]
    np.testing.assert_allclose(found["reward"], expected, rtol=0, atol=1e-4 * np.ptp(expected))
    whole = model.score(PROMPT, ENDING, mode="ids")
    np.testing.assert_allclose(found["reward"][-1], whole[0], rtol=1e-5)
    texts = [ENDING[: len("love is")], ENDING[: len("love is <the")]]
    ends = ["".join(found["token"][:n]) for n in range(1, len(ids) + 1)]
    scored = model.score(PROMPT, texts, mode="ids")
    np.testing.assert_allclose([found["reward"][ends.index(t)] for t in texts], scored, rtol=1e-4)


def test_a_reply_without_tokens_has_no_running_reward(model):
    with pytest.raises(engine.AssayError, match="reply=''"):
        model.running(PROMPT, "")
