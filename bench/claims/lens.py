"""What the reward lens says, of layers that hold no more than chance."""

import dataclasses
import types
from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

import analysis
from analysis.chapters import lens_sentences
from analysis.chapters.lens import REFERENCE
from analysis.measures import lens
from analysis.measures.lens_groups import group_spread
from analysis.words import lexicons
from analysis.words.matching import match_cased
from analysis.words.stems import stem_numbers
from bench.claims import Rate, rates_of
from bench.claims.framing import exchanged
from bench.support.shuffled_stems import shuffled_places
from engine.runs.schema import lens_columns

_CLAIMS = {  # sentence -> its figure
    "lens: half way before the last layer": "lens",
    "lens: two prompts part": "lens_framing",
    "lens: groups stand apart": "lens_groups",
}
_PROMPTS = ("greatest", "best", "worst")
_PAIR = ("best", "worst")
_LAYERS = 8
_TOKENS = 3_000  # of a draw, besides the words for groups
_PERMUTATIONS = 9_999  # as the report
# Where each word keeps its value with this probability, and takes another's else, tau of before
# and after is s² + 2 s (1 − s) / 3 = 0.5: both words kept, or one.
_KEPT = 2.5**0.5 - 1
# Model -> its vocabulary (token_id, token), and rewards [3, N] under `_PROMPTS`.
_Rewards = Mapping[str, tuple[pl.DataFrame, np.ndarray]]


def rates(run: analysis.Run, draws: int) -> Iterator[Rate]:
    """The hardest case of each sentence at once: see `null`.

    Args:
      run: a run folder with real rewards; the lens is not needed.
      draws: draws of each null.
    """
    rng = np.random.default_rng(21)
    terms = lexicons.identity("")
    drawn = (said(null(made_up(terms, rng), rng), terms, rng) for _ in range(draws))
    yield from rates_of("2 models × 3 prompts, made up", drawn)
    models = [m for m in run.vocabulary_models if all((m, p) in run.results for p in _PROMPTS)]
    if models:
        every = {model: _read(run, model) for model in models}
        drawn = (said(null(sampled(every, terms, rng), rng), terms, rng) for _ in range(draws))
        yield from rates_of(f"rewards of {len(models)} models × 3 prompts, shuffled", drawn)


@dataclasses.dataclass(frozen=True)
class Layers:
    """What the measures of the lens read of a run.

    Attributes:
      tokens: model -> token_id, token.
      values: model and prompt -> float32 [layers, N].
    """

    tokens: Mapping[str, pl.DataFrame]
    values: Mapping[tuple[str, str], np.ndarray]

    @property
    def results(self) -> dict[tuple[str, str], types.SimpleNamespace]:
        """Each result, with its number of layers."""
        return {key: types.SimpleNamespace(layers=len(x)) for key, x in self.values.items()}

    @property
    def vocabulary_prompts(self) -> dict[str, str]:
        """Prompt id -> prompt."""
        return dict.fromkeys(_PROMPTS, "")

    def vocabulary(self, model: str) -> pl.LazyFrame:
        """token_id and token."""
        return self.tokens[model].lazy()

    def layers(self, model: str, prompt: str) -> pl.DataFrame:
        """token_id, and a column for each layer."""
        values = self.values[model, prompt]
        names = lens_columns(len(values))
        return self.tokens[model].select(
            "token_id", **{name: pl.Series(x) for name, x in zip(names, values, strict=True)}
        )


def null(rewards: _Rewards, rng: np.random.Generator) -> Layers:
    """Layers of which every sentence would be wrong, though not by much.

    Words take the rewards of other words, so that groups are words like any others. "greatest" and
    "worst" are exchanged at random word by word. One layer before the end, tau with the last one
    is 0.5 on average; earlier layers are noise.
    """
    values = {}
    for model, (tokens, x) in rewards.items():
        stems = stem_numbers(tokens["token"])
        last = exchanged(x[:, shuffled_places(stems, rng)], stems, rng)
        for prompt, own in zip(_PROMPTS, last, strict=True):
            kept = (rng.random(int(stems.max()) + 1) < _KEPT)[stems]
            before = np.where(kept, own, own[shuffled_places(stems, rng)])
            noise = rng.normal(size=(_LAYERS - 2, len(own)))
            values[model, prompt] = np.vstack([noise, before, own]).astype(np.float32)
    return Layers({model: tokens for model, (tokens, _) in rewards.items()}, values)


def said(run: Layers, terms: pl.DataFrame, rng: np.random.Generator) -> dict[str, bool]:
    """Claim -> whether the section makes it."""
    models = list(run.tokens)
    found = lens.by_layer(run, models, _PAIR, REFERENCE)
    groups = group_spread(run, models, terms, rng, _PERMUTATIONS)
    layers = lens.milestones(found.order, found.frames, groups)
    pictures = {one.picture for one in lens_sentences.findings(found.order, found.frames, layers)}
    return {claim: picture in pictures for claim, picture in _CLAIMS.items()}


def made_up(terms: pl.DataFrame, rng: np.random.Generator) -> dict[str, tuple]:
    """Two models; words with two spellings; the prompts share most of a word's reward."""
    words = [*terms["word"].unique(maintain_order=True), *(f"w{i}" for i in range(_TOKENS // 2))]
    texts = pl.Series("token", [f"{space}{word}" for word in words for space in ("", " ")])
    tokens = texts.to_frame().with_row_index("token_id")
    found = {}
    for model in ("a", "b"):
        own = 2 * rng.normal(size=len(words)) + rng.standard_t(5, size=(3, len(words)))
        spelt = np.repeat(own, 2, axis=1)
        found[model] = (tokens, spelt + 0.2 * rng.normal(size=spelt.shape))
    return found


def sampled(every: _Rewards, terms: pl.DataFrame, rng: np.random.Generator) -> dict[str, tuple]:
    """Some tokens of every model, among them all words for groups."""
    found = {}
    for model, (tokens, x) in every.items():
        keep = tokens["token_id"].is_in(match_cased(tokens, terms)["token_id"].implode()).to_numpy()
        keep[rng.permutation(len(keep))[:_TOKENS]] = True
        found[model] = (tokens.filter(keep), x[:, keep])
    return found


def _read(run: analysis.Run, model: str) -> tuple[pl.DataFrame, np.ndarray]:
    """The tokens of a model that were scored, and standardised rewards under `_PROMPTS`."""
    ids = pl.Series(run.rewards(model, _PROMPTS[0])[0])
    tokens = run.vocabulary(model).filter(pl.col("token_id").is_in(ids.implode())).collect()
    x = np.stack([run.rewards(model, prompt)[1] for prompt in _PROMPTS]).astype(np.float64)
    scaled = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)
    return tokens.select("token_id", "token").sort("token_id"), scaled
