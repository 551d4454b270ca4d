"""Made-up runs of any size, for benchmarks: any number of models, prompts and tokens.

`paper_run` has the paper's size, `large_run` any. Rewards come from a few common causes, so that
every analysis has something to find: a word's value, which depends on the lexicons; the taste of a
base, of a developer and of a model; and the prompt, which asks for good or for bad.
"""

import itertools
import pathlib
from collections.abc import Mapping

import numpy as np
import polars as pl

from analysis.model_info import ModelInfo
from analysis.words import lexicons
from configs.known_models import KNOWN
from engine.runs import schema
from tests.support.runs import AWKWARD, PROMPTS, add_result, write_run

PAPER = {slug: "gemma" if "gemma" in slug else "llama" for slug in itertools.islice(KNOWN, 10)}
PAPER_SIZES = {"llama": 128_256, "gemma": 256_000}
_BROKEN = 100  # Tokens of each vocabulary that decode to nothing.
_PART = 16_384  # Rows, the default of `part_size`.
_BASES = ("Made-up A", "Made-up B", "Made-up C", "Made-up D", "Made-up E")
_SIZES = (2.0, 3.0, 8.0, 27.0)
# The first three are the paper's; the others ask the same in other words.
_GOOD = ("greatest", "best", "finest", "most wonderful", "most valuable", "most important")
_BAD = ("worst", "most terrible", "most awful", "most harmful", "most worthless", "vilest")
_THINGS = ("thing ever", "thing in the world", "thing there is", "thing of all", "concept", "idea")


def paper_run(run: pathlib.Path, rng: np.random.Generator) -> pathlib.Path:
    """Ten models of the paper's vocabularies under its three prompts; about 5 million rewards."""
    return _write(run, rng, PAPER, PAPER_SIZES, PROMPTS, spare=4 / 3)


def large_run(
    run: pathlib.Path, rng: np.random.Generator, *, models: int, prompts: int, tokens: int
) -> pathlib.Path:
    """`models` models of two vocabularies of `tokens` tokens, nine tenths in common.

    Args:
      run: the folder, which is made.
      rng: draws the words and the rewards.
      models: number of models; `infos` describes them.
      prompts: number of prompts, at most 72; the first three are the paper's.
      tokens: tokens of each vocabulary, at least 8,192: the words of the lexicons must fit in.
    """
    names = {slug: "one" if at % 2 else "two" for at, slug in enumerate(infos(models))}
    sizes = {name: tokens for name in sorted(set(names.values()))}
    return _write(run, rng, names, sizes, _questions(prompts), spare=1.1)


def infos(models: int) -> dict[str, ModelInfo]:
    """Slug -> metadata of the models of `large_run`: five bases, six developers, four sizes."""
    return {
        f"made-up-{at:02d}": ModelInfo(
            nickname=f"M{at:02d}",
            developer=f"Developer {at % 6}",
            base=_BASES[at % len(_BASES)],
            size_b=_SIZES[at % len(_SIZES)],
            rewardbench_rank=at + 1,
        )
        for at in range(models)
    }


def _questions(count: int) -> dict[str, str]:
    """The first `count` prompts, by id; good and bad ones alternate."""
    found = dict(PROMPTS)
    for thing, words in itertools.product(_THINGS, zip(_GOOD, _BAD, strict=True)):
        for word in words:
            text = f"What, in one word, is the {word} {thing}?"
            if text not in PROMPTS.values():
                found[f"{word}-{thing}".replace(" ", "-")] = text
    return dict(list(found.items())[:count])


def _write(
    run: pathlib.Path,
    rng: np.random.Generator,
    models: Mapping[str, str],
    sizes: Mapping[str, int],
    questions: Mapping[str, str],
    spare: float,
) -> pathlib.Path:
    """Writes a run as the engine does; `spare`: words there are for each token of a vocabulary."""
    known = _known()
    words = _made_up_words(rng, list(known), int(max(sizes.values()) * spare))
    places = {name: _places(rng, len(known), len(words), size) for name, size in sizes.items()}
    tables = {n: [words[i] if i >= 0 else "\ufffd" for i in at] for n, at in places.items()}
    write_run(run, tables, models, {}, prompts=questions)
    value = _normal(rng, len(words))
    value[: len(known)] += np.fromiter(known.values(), np.float32)
    bases = {base: _normal(rng, len(words)) for base in _BASES}
    meanings = {prompt: 0.4 * _normal(rng, len(words)) for prompt in questions}
    for at, (model, name) in enumerate(models.items()):
        taste = value + 0.7 * bases[_BASES[at % len(_BASES)]] + 0.7 * _normal(rng, len(words))
        for prompt, text in questions.items():
            sign = -0.4 if any(word in text for word in _BAD) else 1.0
            liked = np.append(sign * taste + meanings[prompt], np.float32(-1))
            reward = liked[places[name]] + 0.5 * _normal(rng, len(places[name]))
            columns = {"token_id": np.arange(len(reward)), "reward": -3 + 4 * np.sinh(0.6 * reward)}
            frame = pl.DataFrame(columns, schema_overrides=schema.SCORE_COLUMNS)
            path, identity = schema.scores_path(model, prompt), {"mode": "ids", "dtype": "float32"}
            add_result(run, path, frame, _PART, identity=identity, seconds=1.5)
    return run


def _normal(rng: np.random.Generator, size: int) -> np.ndarray:
    return rng.standard_normal(size, dtype=np.float32)


def _known() -> dict[str, float]:
    """Words of the lexicons and some awkward tokens, each with what it adds to the value."""
    graded = lexicons.afinn("")
    known = dict.fromkeys(AWKWARD, 0.0)
    known |= {word: value / 3 for word, value in graded.select("word", "value").iter_rows()}
    known |= {f" {word}": 0.0 for word in lexicons.placebo()["word"]}
    return known | {f" {word}": -0.5 for word in lexicons.identity("")["word"]}


def _made_up_words(rng: np.random.Generator, known: list[str], count: int) -> list[str]:
    """`known`, then different strings of syllables as a tokenizer would cut them."""
    starts = ["", " ", " ", "_", "▁"]
    syllables = [a + b for a in "bcdfghklmnprstvwz" for b in "aeiouéö"] + ["語", "мир", "नम", "😀"]
    words = dict.fromkeys(known)
    while len(words) < count:
        picks = rng.integers(len(syllables), size=(count, 4)).tolist()
        lengths = rng.integers(1, 5, size=count).tolist()
        heads = rng.integers(len(starts), size=count).tolist()
        for pick, length, head in zip(picks, lengths, heads, strict=True):
            words[starts[head] + "".join(syllables[i] for i in pick[:length])] = None
    return list(words)[:count]


def _places(rng: np.random.Generator, known: int, words: int, size: int) -> np.ndarray:
    """Places among the words of the tokens [size]; -1 where a token decodes to nothing."""
    rest = rng.permutation(np.arange(known, words))[: size - known - _BROKEN]
    return np.concatenate([np.full(_BROKEN, -1), np.arange(known), rest])
