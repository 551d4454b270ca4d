import re
import types

import numpy as np
import polars as pl
import pytest

import analysis
from engine.checkpoint.restore import sharing_groups
from engine.errors import AssayError
from engine.runs import schema
from engine.scoring.reward_passes import RewardScorer
from engine.sweep import setup
from engine.sweep.outcomes import SomeFailed
from engine.text.chat_template import ChatTemplate
from tests.support.sweeps import ONE, PROMPTS, SETTINGS, SIZE, plain_rewards, result

RESULT = result()


@pytest.fixture
def family(checkpoint):
    """Two models that read one decoder, at two depths, and one that does not."""
    return [
        checkpoint(num_hidden_layers=2),
        checkpoint("shallow", head_seed=1),
        checkpoint("stranger", seed=3),
    ]


def test_every_token_gets_the_reward_of_the_plain_forward_pass(run, tiny):
    assert run.sweep([tiny], PROMPTS) == 2 * SIZE
    for prompt, text in PROMPTS.items():
        rewards, split = run.rewards("tiny", prompt), tiny.template.split(text)
        plain = plain_rewards(tiny, [[*split.prefix, i, *split.suffix] for i in range(SIZE)])
        np.testing.assert_allclose(rewards, plain, rtol=1e-4, atol=1e-5)
        assert rewards.std() > 0.1


def test_parts_hold_every_token_once_in_order_and_the_result_names_them(run, tiny):
    run.sweep([tiny], ONE)
    assert [p.rsplit("/")[-1] for p in run.parts()] == [
        "part-0000000-0000100.parquet",
        "part-0000100-0000200.parquet",
        "part-0000200-0000288.parquet",
    ]
    frame = run.frame(RESULT)
    assert dict(frame.schema) == schema.SCORE_COLUMNS
    assert frame["token_id"].to_list() == list(range(SIZE))
    result, record = run.results()[RESULT], run.record()
    assert result.complete
    assert {f"{RESULT}/{name}": p.sha256 for name, p in result.parts.items()} == run.hashes()
    assert sum(part.rows for part in result.parts.values()) == SIZE
    assert result.self_check.candidates == SETTINGS.self_check
    assert result.self_check.max_abs_difference <= result.self_check.tolerance
    assert result.identity.checkpoint_hash == tiny.card.checkpoint_hash
    assert record["prompts"] == ONE
    model = record["models"]["tiny"]
    assert model["head"] == tiny.card.head.kind
    vocabulary = pl.read_parquet(run.folder / schema.vocab_path(model["vocab"]))
    assert len(vocabulary) == SIZE


def test_of_a_panel_the_vocabulary_has_its_tokens_and_renders_no_others(tiny, monkeypatch):
    empty, ids, rendered = types.SimpleNamespace(table=lambda _: None), [3, 100, 287], []
    [whole] = setup.vocabularies(empty, [tiny]).values()
    made = ChatTemplate.sequences

    def sequences(self, prompt, texts):
        rendered.extend(texts)
        return made(self, prompt, texts)

    monkeypatch.setattr(ChatTemplate, "sequences", sequences)
    [panel] = setup.vocabularies(empty, [tiny], {tiny.card.tokenizer_hash: ids}).values()
    assert panel.equals(whole.filter(pl.col("token_id").is_in(ids)))
    assert rendered == panel["token"].to_list()
    other = types.SimpleNamespace(run="runs/mine", table=lambda _: panel)
    with pytest.raises(AssayError, match="of 3 token ids, of which 2 are among the 2"):
        setup.vocabularies(other, [tiny], {tiny.card.tokenizer_hash: ids[:2]})


def test_each_finding_is_told_once_when_its_result_is_complete(run, family):
    told = []

    def tell(model, prompt, scores, left):
        rewards = scores.sort("token_id")["reward"].to_numpy()
        np.testing.assert_array_equal(rewards, run.rewards(model, prompt))
        told.append((model, prompt))

    first, second = family[:2]  # on one decoder: both are computed again in one pass
    run.sweep([first], ONE, tell=tell)
    run.sweep([first, second], ONE, tell=tell)
    assert told == [("tiny", "greatest"), ("shallow", "greatest")]


def test_a_run_takes_further_models_and_prompts_without_touching_finished_parts(
    run, other_run, family
):
    run.sweep(family[:1], ONE)
    before = run.parts()
    assert run.sweep(family[1:2], ONE) == SIZE
    assert run.sweep(family, PROMPTS) == (2 * len(family) - 2) * SIZE
    after = run.parts()
    assert len(after) == 2 * len(family) * 3
    assert {path: after[path] for path in before} == before
    other_run.sweep(family[:1], PROMPTS)  # alone as in a pass with another
    np.testing.assert_allclose(
        run.rewards("tiny", "worst"), other_run.rewards("tiny", "worst"), rtol=1e-4, atol=1e-5
    )


def test_a_failed_self_check_names_the_row_and_leaves_the_result_open(run, tiny, monkeypatch):
    original = RewardScorer.plain_rewards

    def wrong(self, sequences, read_at):
        rewards = original(self, sequences, read_at).copy()
        rewards[0, 3] += 0.5
        return rewards

    with monkeypatch.context() as patched:
        patched.setattr(RewardScorer, "plain_rewards", wrong)
        message = rf"self-check of {RESULT}: row \d+ has reward"
        with pytest.raises(AssayError, match=message):
            run.sweep([tiny], ONE)
    assert not run.results()[RESULT].complete
    assert len(run.results()[RESULT].parts) == 3  # saved, whatever fails
    assert run.sweep([tiny], ONE) == 0
    assert run.results()[RESULT].complete


def test_nan_weights_are_reported_by_the_first_bad_token_and_none_of_its_part_is_written(
    run, checkpoint
):
    with pytest.raises(AssayError, match=r"model 'nan': .* not finite for token_id 137 \(1 of 100"):
        run.sweep([checkpoint("nan", nan_token=137)], ONE)
    assert [p.rsplit("/")[-1] for p in run.parts()] == ["part-0000000-0000100.parquet"]
    assert not run.results()["scores/model=nan/prompt=greatest"].complete


@pytest.mark.slow
def test_nan_in_one_model_leaves_the_others_of_its_pass_right(run, other_run, checkpoint, capsys):
    good, bad = checkpoint(), checkpoint("nan-head", nan_head=True, head_seed=4)
    assert len(sharing_groups([good, bad])) == 1
    with pytest.raises(SomeFailed, match="1 of 2 models failed: nan-head"):
        run.sweep([good, bad], ONE)
    assert re.search(r"model 'nan-head': .* token_id 0, 1, 2, 3, 4, …", capsys.readouterr().err)
    assert all("model=tiny" in path for path in run.parts())
    assert run.results()["scores/model=tiny/prompt=greatest"].self_check
    assert run.sweep([good], ONE) == 0
    other_run.sweep([good], ONE)
    np.testing.assert_allclose(
        run.rewards("tiny", "greatest"), other_run.rewards("tiny", "greatest"), rtol=1e-4
    )


def test_models_whose_embeddings_hold_other_ids_of_one_tokenizer_have_a_vocabulary_each(
    run, checkpoint
):
    small, whole = checkpoint("small", vocab_size=286), checkpoint("whole")
    assert run.sweep([small, whole], ONE) == 286 + 288
    found = analysis.load(run.folder)
    assert [len(found.rewards(slug, "greatest")[0]) for slug in ("small", "whole")] == [286, 288]
    with pytest.raises(AssayError, match=r"286; .* 286"):
        run.score([small], ONE, "words", ["love", "\n\n"])  # the tokenizer's last merge
