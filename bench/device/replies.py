"""Lists of random replies with the lengths that real lists have, as token ids.

A tokenizer is needed for none of this: rendering and tokenising are measured by `bench.speed.text`.
"""

from collections.abc import Mapping

import numpy as np

from engine.types import PromptIds

# Share of replies by their number of tokens, by the tokenizer of SmolLM2 (49,152 tokens).
# text: every token of its vocabulary, decoded and trimmed, as the templates of Llama and Gemma do.
# list: the 7,530 replies of EloEverything; 32 stands for the two that are longer.
LISTS: Mapping[str, Mapping[int, float]] = {
    "text": {1: 25_514, 2: 19_025, 3: 4377, 4: 235},
    "list": {
        1: 274,
        2: 1735,
        3: 2008,
        4: 1300,
        5: 809,
        6: 531,
        7: 351,
        8: 199,
        9: 137,
        10: 74,
        11: 44,
        12: 28,
        13: 11,
        14: 7,
        15: 9,
        16: 6,
        17: 3,
        20: 2,
        32: 2,
    },
}


def reply_sequences(
    prompt: PromptIds, lengths: Mapping[int, float], count: int, vocabulary: int
) -> list[list[int]]:
    """Whole conversations of random replies, in random order.

    Args:
      prompt: the conversation around them.
      lengths: share of replies by their number of tokens; need not add up to 1.
      count: of replies.
      vocabulary: number of token ids.
    """
    rng = np.random.default_rng(0)
    shares = np.array(list(lengths.values()), float)
    sizes = rng.choice(list(lengths), count, p=shares / shares.sum())
    ids = rng.integers(0, vocabulary, sizes.sum()).tolist()
    ends = np.cumsum(sizes).tolist()
    return [
        [*prompt.prefix, *ids[end - size : end], *prompt.suffix]
        for size, end in zip(sizes.tolist(), ends, strict=True)
    ]
