"""Rewards/s of response mode `text` against `ids`: one run, one model, the same conversations.

    python -m bench.speed.text [--model=<slug>] [--prompt=greatest] [--rounds=5] [--tokens=4096]

Only tokens are used whose text tokenises back to them, so that both modes score the same distinct
sequences, all of one length. Each mode is timed from the tokens to the rewards; for `text` this is
rendering, tokenising, removing duplicates, and scoring. The modes take turns, and the ratio is
computed within each round. The command fails if the rewards differ.
"""

import time

import numpy as np
from absl import app, flags, logging

from bench.support import embedded_files
from bench.support.table import aligned, machine, spread
from configs.prompts import PROMPTS
from demo.embedded_models import EMBEDDED
from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import restore
from engine.mesh import build_mesh
from engine.scoring.batches import Bucket, token_candidates
from engine.scoring.reward_passes import RewardScorer, dtype_named, score_buckets
from engine.scoring.rows import ReplyRows

_MODEL = flags.DEFINE_enum("model", next(iter(EMBEDDED)), list(EMBEDDED), "Embedded model.")
_PROMPT = flags.DEFINE_enum("prompt", "greatest", list(PROMPTS), "Prompt.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds; each measures both modes.", lower_bound=1)
_TOKENS = flags.DEFINE_integer("tokens", 4096, "Tokens per round.", lower_bound=64)
_STEP_SIZE = flags.DEFINE_integer("step_size", 1024, "Candidates per device step.", lower_bound=1)
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the random tokens.")

TOLERANCE = 1e-4  # largest difference of two rewards, relative to max(1, |reward|)


class Ways:
    """Both modes, on one scorer and one prefilled prompt."""

    def __init__(self, checkpoint: Checkpoint):
        mesh = build_mesh()
        restored = restore([checkpoint], mesh, dtype_named("float32"))
        self.scorer = RewardScorer.build(*restored, mesh, step_size=_STEP_SIZE.value)
        self.template, self.tokens = checkpoint.template, checkpoint.tokens
        self.prompt = self.template.split(PROMPTS[_PROMPT.value])
        self.prefix = self.scorer.prefill(self.prompt)

    def surviving(self) -> np.ndarray:
        """Ids of the tokens whose text tokenises back to them."""
        sequences = self.template.sequences(self.prompt.prompt, list(self.tokens.values()))
        ends = ([*self.prompt.prefix, i, *self.prompt.suffix] for i in self.tokens)
        same = [a == b for a, b in zip(sequences, ends, strict=True)]
        return np.array(list(self.tokens))[same]

    def ids(self, tokens: np.ndarray) -> np.ndarray:
        """Rewards of tokens by id: float32 [C]."""
        rows = np.arange(len(tokens))
        candidates = token_candidates(self.prompt, tokens)
        bucket = Bucket(candidates=candidates, rows=rows, row_candidate=rows)
        return score_buckets(self.scorer, self.prefix, [bucket], len(rows))[0]

    def text(self, tokens: np.ndarray) -> np.ndarray:
        """Rewards of tokens by their text: float32 [C]."""
        replies = [self.tokens[i] for i in tokens]
        rows = ReplyRows(self.prompt, self.template, replies, "text")
        buckets = rows.buckets(0, len(rows))
        return score_buckets(self.scorer, self.prefix, buckets, len(rows))[0]


def main(_) -> None:
    """Measures both modes in turns and prints the table; fails if the rewards differ."""
    logging.set_verbosity(logging.ERROR)
    print(machine())
    ways = Ways(embedded_files.files(_MODEL.value)[1])
    survivors = np.random.default_rng(_SEED.value).permutation(ways.surviving())
    tokens = survivors[: _TOKENS.value]
    rewards = {
        "ids": ways.ids(tokens),
        "text": ways.text(tokens),
    }  # compiles, before anything is timed
    rates: dict[str, list[float]] = {name: [] for name in rewards}
    for _ in range(_ROUNDS.value):
        for name in rates:
            began = time.perf_counter()
            rewards[name] = getattr(ways, name)(tokens)
            rates[name].append(len(tokens) / (time.perf_counter() - began))
    ratios = np.array(rates["text"]) / np.array(rates["ids"])
    print(f"model     {_MODEL.value}: {len(tokens):,} distinct sequences of one length per round")
    rows = [("mode", "rewards/s", "min..max", "of ids", "min..max")]
    rows.append(("ids", *spread(rates["ids"], "{:,.0f}"), "", ""))
    rows.append(("text", *spread(rates["text"], "{:,.0f}"), *spread(ratios, "{:.2f}")))
    print(aligned(rows))
    scale = np.maximum(1, np.abs(rewards["ids"]))
    apart = float(np.max(np.abs(rewards["text"] - rewards["ids"]) / scale))
    print(f"largest difference of rewards {apart:.1e} (allowed {TOLERANCE:g})")
    if not apart <= TOLERANCE:
        raise SystemExit(
            "bench.speed.text: the modes give different rewards; speed counts only when they agree"
        )


if __name__ == "__main__":
    app.run(main)
