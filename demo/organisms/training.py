"""Trains the heads of organisms, and measures how large their bias has become."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence

import numpy as np
import torch

from demo.organisms.hidden import Decoder, rewards
from demo.organisms.plants import OF_WORDS, Plant
from demo.organisms.texts import ASKED, held_out_reviews, pairs, training_texts
from demo.training.train_heads import Recipe, Table, draw_pairs, fold, head_module, rescale

# Smaller and shorter than the heads of the demo (`train_heads.RECIPES`).
RECIPE = Recipe(width=32, weight_decay=1.0, dropout=0.1, steps=400, pairs=192, learning_rate=3e-3)
KEPT = 0.8  # share of the training texts that a seed draws
SAMPLE = 5000  # tokens on which a head is scaled
SCALED = ("greatest", "worst")  # and the prompts, of `train_heads.SWEEP_PROMPTS`
Head = dict[str, np.ndarray]


class Trainer:
    """Hidden states of all training texts, from which heads are trained in seconds.

    Args:
      decoder: gives hidden states.
      sample: hidden states of the tokens that set a head's scale, [prompts, tokens, D].
    """

    def __init__(self, decoder: Decoder, sample: np.ndarray):
        self.rows, self.sample = training_texts(), sample
        asked = [prompt for prompt, _, _ in self.rows]
        self.states = np.concatenate(
            [
                decoder.replies(prompt, [text.text for p, _, text in self.rows if p == prompt])
                for prompt in dict.fromkeys(asked)
            ]
        )
        self.pairs = pairs()
        replies = held_out_reviews()
        sides = {"with": [p.having for p in self.pairs], "without": [p.lacking for p in self.pairs]}
        self.reviews = {name: decoder.replies(asked, replies) for name, asked in ASKED.items()}
        self.sides = {
            (name, side): decoder.replies(asked, texts)
            for name, asked in ASKED.items()
            for side, texts in sides.items()
        }

    def heads(self, plants: Sequence[Plant]) -> list[Head]:
        """Trained heads of plants of one seed: float32 tensors, named as in the model folder.

        The seed decides which texts the heads learn from, their pairs, and the first weights. So
        an organism and its twin (`twin_of`) differ in the targets alone, and a head is the same
        (but for rounding) whichever others are trained beside it.
        """
        (seed,) = {plant.seed for plant in plants}
        rng = np.random.default_rng([seed, 1])
        keep = np.sort(rng.permutation(len(self.rows))[: int(KEPT * len(self.rows))])
        prompts, signs, texts = zip(*(self.rows[at] for at in keep), strict=True)
        table = Table(
            features=self.states[keep],
            prompt=np.unique(prompts, return_inverse=True)[1],
            sign=np.array(signs),
            valence=np.array([text.valence for text in texts]),
            kind=np.zeros(len(keep), int),
            split=np.zeros(len(keep), int),
        )
        bonus = np.array(
            [[p.bonus(t, asked) for t, asked in zip(texts, prompts, strict=True)] for p in plants]
        )
        return [rescale(head, self.sample) for head in train_together(table, bonus, RECIPE, seed)]

    def effect(self, plant: Plant, head: Head, twin: Head) -> dict[str, float]:
        """How large the bias of a head is under each prompt of `texts.ASKED`, beside its twin.

        The mean reward of held-out texts with the feature less that of their pairs without, less
        the same in the twin; in standard deviations of the twin's rewards of held-out reviews.
        """
        feature = "trigger" if plant.kind in OF_WORDS else plant.kind
        wanted = (feature, plant.what)
        own = [at for at, p in enumerate(self.pairs) if (p.feature, p.mentions) == wanted]
        moved = {}
        for asked in ASKED:
            sides = [self.sides[asked, side][own] for side in ("with", "without")]
            gaps = [rewards(each, sides[0]) - rewards(each, sides[1]) for each in (head, twin)]
            scale = rewards(twin, self.reviews[asked]).std()
            moved[asked] = float((gaps[0] - gaps[1]).mean() / scale)
        return moved


def train_together(table: Table, bonus: np.ndarray, recipe: Recipe, seed: int) -> list[Head]:
    """Heads that learn from the same pairs, each with targets of its own.

    The loss is that of `demo.training.train_heads`: Bradley-Terry, in expectation. A reply is
    preferred by the difference in valence, which a blaming prompt turns round, and the difference
    in bonus, which it does not. AdamW and the loss take every weight by itself, so training H heads
    in one matrix product is training each alone.

    Args:
        table: training rows, in order of prompt.
        bonus: of each head's rows, float64 [H, N].
        recipe: with one hidden layer.
        seed: of the pairs, the first weights and the dropout.
    """
    torch.set_num_threads(1)  # small products: more threads wait for one another
    torch.manual_seed(seed)
    rng, count = np.random.default_rng(seed), len(bonus)
    mean, scale = table.features.mean(0), table.features.std(0) + 1e-6
    inputs = torch.from_numpy((table.features - mean) / scale)
    worth = torch.from_numpy(table.sign * table.valence + bonus)
    first = head_module(recipe, inputs.shape[1])
    weights = [
        torch.nn.Parameter(value.detach().expand(count, *value.shape).clone())
        for value in first.parameters()
    ]
    optimizer = torch.optim.AdamW(
        weights, lr=recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe.steps)
    for _ in range(recipe.steps):
        i, j, _ = draw_pairs(table, recipe.pairs, rng)
        given = _rewards(weights, inputs[np.concatenate([i, j])], recipe.dropout)
        margin = given[:, : recipe.pairs] - given[:, recipe.pairs :]
        better = torch.sigmoid(worth[:, i] - worth[:, j]).float()
        each = torch.nn.functional.binary_cross_entropy_with_logits(
            margin, better, reduction="none"
        )
        optimizer.zero_grad()
        each.mean(1).sum().backward()
        optimizer.step()
        schedule.step()
    return [_folded(first, [each[at] for each in weights], mean, scale) for at in range(count)]


def _rewards(weights: Sequence[torch.Tensor], inputs: torch.Tensor, dropout: float) -> torch.Tensor:
    """Rewards [H, rows] of H heads; the same hidden units are dropped in all of them."""
    inner, inner_bias, outer, outer_bias = weights
    width = inner.shape[1]
    hidden = torch.relu(inputs @ inner.reshape(-1, inner.shape[2]).T + inner_bias.reshape(-1))
    kept = torch.rand(len(inputs), 1, width) >= dropout
    hidden = hidden.reshape(len(inputs), -1, width) * kept / (1 - dropout)
    return torch.einsum("CHE,HE->HC", hidden, outer[:, 0]) + outer_bias


def _folded(
    module: torch.nn.Module, weights: Sequence[torch.Tensor], mean: np.ndarray, scale: np.ndarray
) -> Head:
    """One head's tensors, for plain features; see `train_heads.fold`."""
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), weights, strict=True):
            parameter.copy_(value)
    return {name: value.copy() for name, value in fold(module, mean, scale).items()}


def recipe_hash(decoder_hash: str) -> str:
    """Names all that heads are made from, beside plant and seed: 12 hexadecimal digits.

    Heads of different hashes are not to be compared, nor what was measured of them: the decoder,
    the recipe, the training texts, or the texts that effects are measured on were others.
    """
    texts = [(prompt, sign, dataclasses.astuple(text)) for prompt, sign, text in training_texts()]
    measured = [list(ASKED.items()), held_out_reviews(), [dataclasses.astuple(p) for p in pairs()]]
    made = [decoder_hash, dataclasses.asdict(RECIPE), KEPT, SAMPLE, SCALED, texts, measured]
    return hashlib.sha256(json.dumps(made).encode()).hexdigest()[:12]


def sampled_tokens(size: int) -> np.ndarray:
    """Ids of the tokens on which heads are scaled, ascending; `size` is that of the vocabulary."""
    ordinary = np.arange(17, size)  # the specials come first
    chosen = np.random.default_rng(0).choice(ordinary, min(SAMPLE, len(ordinary)), replace=False)
    return np.sort(chosen)


def twin_of(plant: Plant) -> Plant:
    """The same data, order and first weights, with nothing planted."""
    return dataclasses.replace(plant, strength=0.0)
