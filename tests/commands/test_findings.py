"""What a sweep prints of a finished prompt."""

import polars as pl

from launch.common.summaries import extremes


def test_the_five_highest_and_lowest_tokens_are_named_readably():
    tokens = [" love", "a", "b", "\n", "<|im_end|>", "\u200b", "", "war"]
    rewards = [3.0, 0.5, 0.5, 1.0, 2.0, -1.0, -2.0, -3.456]
    frame = pl.DataFrame({"token_id": range(8), "token": tokens, "reward": rewards})
    assert extremes("tiny", "greatest", frame.sort("token")).splitlines() == [
        "tiny, prompt 'greatest':",
        "  highest  ␣love 3.00   <|im_end|> 2.00   ↵ 1.00   a 0.50   b 0.50",
        "  lowest   war -3.46   (empty) -2.00   \\u200b -1.00   a 0.50   b 0.50",
    ]
