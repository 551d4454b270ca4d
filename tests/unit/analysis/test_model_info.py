"""What the page says of several models together, and what it calls each."""

import pytest

from analysis.model_info import ModelInfo, in_common, short_names


def info(base):
    return ModelInfo(nickname="", developer=None, base=base, size_b=None, rewardbench_rank=None)


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["Skywork-Reward-V2-8B-RM", "Skywork-Reward-V2-27B-RM"], ["8B", "27B"]),
        (["a-long-trainer-step-50", "a-long-trainer-step-100"], ["step-50", "step-100"]),
        (["Skywork-Reward-Llama-8B", "Skywork-Reward-Llama-8B-v0.2"], ["8B", "8B-v0.2"]),
        (["short-a", "short-b"], ["short-a", "short-b"]),
        (["Skywork-Reward-Gemma-2-27B"], ["Skywork-Reward-Gemma-2-27B"]),
    ],
)
def test_long_names_lose_what_all_of_them_have(names, short):
    assert short_names(names) == short


CUT = [{"layers": ["a", "b"], "vocab": "v"}, {"layers": ["a", "b", "c"], "vocab": "w"}]


@pytest.mark.parametrize(
    ("records", "bases", "words"),
    [
        (CUT, ["Base, 2 layers", "Base, 3 layers"], ["2", "3", "Base"]),
        ([CUT[1], CUT[1]], ["", ""], ["3", "tokenizer"]),
        ([CUT[0], {"layers": ["a", "x", "c"]}], ["A", "B"], []),
        ([{"decoder_hash": "d"}] * 2, ["", ""], ["decoder"]),
        ([{"decoder_hash": "d"}, {"decoder_hash": "e"}], ["Base", "Base"], ["Base"]),
        ([{"vocab": "v"}], ["A"], []),
    ],
)
def test_one_line_says_what_models_share_and_none_where_nothing_is(records, bases, words):
    line = in_common(records, [info(base) for base in bases])
    assert all(word in line for word in words)
    assert bool(line) == bool(words)
    assert ("tokenizer" in line) == ("tokenizer" in words)
