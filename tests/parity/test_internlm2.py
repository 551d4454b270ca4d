"""InternLM2 reward models are read at `<|reward|>`; test_decoders has their decoder."""

import pytest

from engine.errors import AssayError
from tests.support import folders, internlm2, parity, tiny, torch_models


def check_rendered(pair, change=lambda ids: ids) -> None:
    """Rewards of rendered conversations, as `change` makes the engine see them."""
    replies = ["love", "war", "a", "the best thing of all", "?", "0"]
    sequences = pair.checkpoint.template.sequences("What?", replies)
    assert {ids[-1] for ids in sequences} == {internlm2.REWARD_ID}
    expected = torch_models.rewards(pair.model, sequences)
    actual = pair.restored.scorer.plain_rewards([change(ids) for ids in sequences])[0]
    parity.assert_close(actual, expected, scale=expected.std())


def test_the_reward_is_read_at_the_reward_token_that_the_template_puts_last(pair_of):
    assert pair_of("internlm2").checkpoint.template.split("What?").suffix[-1] == internlm2.REWARD_ID
    check_rendered(pair_of("internlm2"))


@pytest.mark.parametrize(
    "change",
    [lambda ids: ids[:-1], lambda ids: ids[:-2], lambda ids: [*ids, internlm2.REWARD_ID]],
    ids=["at the line end before it", "at the end of the turn", "at a second one"],
)
def test_a_reward_read_at_another_position_fails_parity(pair_of, change):
    with pytest.raises(AssertionError, match="relative error"):
        check_rendered(pair_of("internlm2"), change)


def test_a_template_that_does_not_end_with_the_reward_token_is_refused(tmp_path):
    folder = internlm2.save(tmp_path / "hf", template=tiny.CHATML)
    message = rf"token \(\d+,\); .* reward_token_id={internlm2.REWARD_ID}, which must"
    with pytest.raises(AssayError, match=message):
        folders.convert(folder, tmp_path / "out" / "checkpoint")
    assert not (tmp_path / "out").exists()
