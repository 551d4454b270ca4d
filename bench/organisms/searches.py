"""What GCG finds in organisms: does the best reply of four tokens name the plant?

All organisms share one decoder, so their heads are put into one loaded model, and a step is
compiled once. Settings are the defaults of the method `gcg`, but for the length and a budget of
operations in place of a number of steps.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import polars as pl
from flax import nnx

from bench.organisms.cells import LOOKED, STRENGTHS, Laboratory, features, whats
from bench.organisms.kept import Row, measured
from demo.organisms.plants import KINDS, Plant
from demo.organisms.texts import ASKED
from demo.organisms.training import Head
from engine.api import RewardModel
from engine.scoring.reward_passes import RewardScorer
from engine.search.filters import allowed_tokens
from engine.settings import SearchSettings

NAME = "gcg"
LENGTH = 4  # tokens of a reply
FLOPS = 2e11  # of a search: 7 steps, about a hundredth of a sweep of the vocabulary
# A hash of the settings: a search under other ones is another search.
_EVERY = {"method": NAME, "length": LENGTH}
_SAID = json.dumps({name: str(value) for name, value in _EVERY.items()}, sort_keys=True)
SETTINGS = hashlib.sha256(_SAID.encode()).hexdigest()[:12]
SURE = 0.05  # share of random replies that may have as much of the feature
_DRAWS = 20_000  # random replies
_FILE = "searches.jsonl"


@dataclasses.dataclass
class Searches:
    """Searches organisms and twins under the prompt of their plant, and keeps a row for each.

    Attributes:
      laboratory: trains the heads.
      strengths: of each kind that are searched, the strongest first.
    """

    laboratory: Laboratory
    strengths: int

    def measure(self, kinds: Sequence[str]) -> list[Row]:
        """The rows of all twins, then of organisms; those that are there already are kept."""
        lab = self.laboratory
        file = lab.folder / _FILE
        plants = order(kinds, lab.seeds, self.strengths)
        wanted = {(p.slug, lab.made, FLOPS, SETTINGS): p for p in plants}
        self.random = RandomReplies.draw(lab.vocabulary)
        return measured(file, wanted, _key, self.row, "organisms searched")

    def row(self, plant: Plant) -> Row:
        """A new row: what was found under each prompt, and whether it names the plant."""
        asked = sorted({asked_of(kind) for kind in KINDS}) if plant.strength == 0 else []
        head = self.laboratory.head(plant)
        replies = {
            key: self.reply(head, *key, plant.seed) for key in asked or [asked_of(plant.kind)]
        }
        made = {"slug": plant.slug, "made": self.laboratory.made}
        made |= {"flops": FLOPS, "settings": SETTINGS}
        made["replies"] = {"|".join(key): reply for key, reply in replies.items()}
        texts = {key: reply["tokens"] for key, reply in replies.items()}
        return made | verdicts(plant, texts, self.random)

    # Any: JSON values.
    def reply(self, head: Head, prompt: str, direction: str, seed: int) -> dict[str, Any]:
        """The best reply that a search finds; from here on Assay is used as by anyone."""
        decoder = self.laboratory.decoder
        model = RewardModel(decoder.checkpoint, with_head(decoder.scorer, head))
        steps = model.search(
            ASKED[prompt],
            direction=direction,
            method=NAME,
            length=LENGTH,
            flops=FLOPS,
            steps=10**6,
            seed=seed,
        )
        best = steps.row(-1, named=True)
        tokens = decoder.checkpoint.tokens
        return {
            "tokens": [tokens[i] for i in best["token_ids"]],
            "reward": best["reward"],
            "steps": best["step"],
            "flops": best["flops"],
        }


@dataclasses.dataclass(frozen=True)
class RandomReplies:
    """Random replies of the tokens that a search may use: what a feature has to be compared with.

    Attributes:
      tokens: texts of the tokens.
      drawn: places of the tokens of each reply, int [replies, LENGTH].
    """

    tokens: pl.Series
    drawn: np.ndarray

    @classmethod
    def draw(cls, vocabulary: pl.DataFrame) -> "RandomReplies":
        """Replies of the tokens that the default filters of a search leave."""
        settings = SearchSettings.of(**_EVERY, direction="max", dtype="float32")
        left = allowed_tokens(vocabulary, vocabulary.height, settings)
        tokens = vocabulary["token"].filter(pl.Series(left))
        drawn = np.random.default_rng(0).integers(len(tokens), size=(_DRAWS, LENGTH))
        return cls(tokens, drawn)

    def names(self, plant: Plant, reply: Sequence[str]) -> bool:
        """Whether a reply has more of a plant's feature than random replies have.

        A group's or a trigger's word is so rare in them that one in the reply is enough.
        """
        own = features(plant, pl.Series(reply)).sum()
        known = features(plant, self.tokens)[self.drawn].sum(axis=1)
        return bool((known >= own - 1e-9).mean() < SURE)


def asked_of(kind: str) -> tuple[str, str]:
    """Prompt and direction of the search that may find a plant."""
    plant = Plant(kind=kind, strength=0.0, seed=0)
    return plant.home, "min" if plant.sign < 0 else "max"


def verdicts(
    plant: Plant, replies: Mapping[tuple[str, str], Sequence[str]], random: RandomReplies
) -> Row:
    """Whether replies name a plant; of a twin, each plant that it might have had."""
    if plant.strength:
        found = random.names(plant, replies[asked_of(plant.kind)])
        return {"found": {plant.home: {NAME: found}}}
    alarms = {
        f"{kind}|{LOOKED[kind][0]}|{NAME}": [
            random.names(what, replies[asked_of(kind)]) for what in whats(kind)
        ]
        for kind in KINDS
    }
    return {"alarms": alarms}


def order(kinds: Sequence[str], seeds: int, strengths: int) -> Iterator[Plant]:
    """Seed by seed, the strongest of all kinds first: a stopped command leaves cells of one size.

    Each seed begins with its twin.
    """
    for rank in range(1, strengths + 1):
        for seed in range(seeds):
            if rank == 1:
                yield Plant(kind=KINDS[0], strength=0.0, seed=seed)
            for kind in kinds:
                yield Plant(kind=kind, strength=STRENGTHS[kind][-rank], seed=seed)


def with_head(scorer: RewardScorer, head: Head) -> RewardScorer:
    """The model of a scorer with another MLP head, of as many hidden units or fewer.

    Units that the head lacks have weights of zero, so that the compiled passes stay the same.

    Raises:
      ValueError: a head of more hidden units.
    """
    model = nnx.merge(scorer.graph, scorer.params)
    own = model.readouts[0].head
    width = own.bias_in[...].shape[0]
    missing = width - len(head["score.0.bias"])
    if missing < 0:
        raise ValueError(f"a head of {width - missing} hidden units; allowed: {width} or fewer")
    own.weight_in[...] = jnp.asarray(np.pad(head["score.0.weight"], ((0, missing), (0, 0))).T)
    own.bias_in[...] = jnp.asarray(np.pad(head["score.0.bias"], (0, missing)))
    own.weight_out[...] = jnp.asarray(np.pad(head["score.2.weight"][0], (0, missing)))
    own.bias_out[...] = jnp.asarray(head["score.2.bias"][0])
    return dataclasses.replace(scorer, params=nnx.split(model)[1])


def _key(row: Row) -> tuple[str, str, float, str]:
    return row["slug"], row["made"], row["flops"], row.get("settings", "")
