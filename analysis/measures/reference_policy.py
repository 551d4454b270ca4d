"""Replies with both a language model's probability and rewards: what an exact policy needs."""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import polars as pl

from analysis.run import Run
from analysis.statistics import Array
from analysis.statistics.exact_policies import normalised, optimal, strengths
from analysis.statistics.ranks import dot
from engine.runs import schema

VOCABULARY = "vocabulary"
LIST = "list "
# Nats from the reference policy at which policies are compared.
KLS = (
    *(0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5),
    *(4.0, 4.5, 5.0, 5.5, 6.0, 6.5, 7.0, 7.5, 8.0, 8.5, 9.0, 9.5, 10.0),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replies:
    """A set of replies to one prompt: their probability in a language model, and their rewards."""

    # `VOCABULARY` (each reply is one token; where models of several tokenizers share a prompt,
    # followed by the language model's slug), or "list " and the name of a list.
    of: str
    prompt: str  # id of the reward models' prompt
    reference: str  # slug of the language model
    form: str  # id of the prompt as the language model was given it; it has the same text
    ids: Array  # token ids, or item ids, ascending [N]
    texts: pl.Series  # the token, or the item, of each id [N]
    log_p: Array  # log-probabilities over these replies [N], which sum to 1; float64
    # Sum of their probabilities before that, at most 1 (what it has above is rounding of float32,
    # and is cut). Of a list in which an item begins another one, it counts that one twice.
    covered: float
    models: tuple[str, ...]  # slugs of the reward models [M]
    rewards: Array  # float64 [M, N]

    @cached_property
    def standardised(self) -> Array:
        """Rewards [M, N] in standard deviations from the mean, under the reference policy."""
        p = np.exp(self.log_p)
        centred = self.rewards - [[dot(reward, p)] for reward in self.rewards]
        return np.array([reward / np.sqrt(dot(reward**2, p)) for reward in centred])

    @cached_property
    def strengths(self) -> Array:
        """1/β at which each model's optimal policy is at each KL of `KLS` [M, K].

        Per standard deviation of its reward under the reference policy; NaN out of reach.
        """
        return np.array([strengths(self.log_p, z, np.array(KLS)) for z in self.standardised])

    def policy(self, model: int, nats: float) -> Array | None:
        """Probabilities [N] of the optimal policy of the model at an index, at a KL of `KLS`.

        None where the KL is out of reach.
        """
        strength = self.strengths[model][KLS.index(nats)]
        if np.isnan(strength):
            return None
        return np.exp(optimal(self.log_p, self.standardised[model], strength))


def vocabularies(run: Run, models: Sequence[str]) -> Iterator[Replies]:
    """The vocabulary under every prompt that a language model was given too.

    `models` are slugs of the reward models, in the order of `Replies.models`. A model is taken with
    a language model of the same tokens alone (`token_tables`): of two tokenizers, "one token" is
    not the same set of replies. Results that are not complete are left out, and so are models that
    give all replies one reward.
    """
    tables = token_tables(run, models)
    for prompt in run.vocabulary_prompts:
        groups: dict[int, list[str]] = {}  # Models by table of tokens.
        for model in models:
            if (model, prompt) in run.results and run.results[model, prompt].complete:
                groups.setdefault(tables[model], []).append(model)
        for at, group in groups.items():
            chosen = _form_of(run, prompt, [pair for pair in run.logprobs if tables[pair[0]] == at])
            if chosen is not None:
                known = _tokens(run, prompt, group, *chosen)
                of = VOCABULARY if len(groups) == 1 else f"{VOCABULARY} of {chosen[0]}"
                yield from _replies(of, prompt, group, *chosen, known)


def token_tables(run: Run, models: Sequence[str]) -> dict[str, int]:
    """Number of the table of tokens of each model, and of each language model of the run.

    Two models have one number where the same ids are the same tokens. The key of their vocabulary
    says less: it differs with the chat template and the special tokens, too. Of the reward
    `models`, those that scored no vocabulary are left out.
    """
    numbers: dict[str, int] = {}
    known: list[pl.DataFrame] = []
    slugs = [model for model in models if model in run.vocabulary_models]
    slugs += [model for model, _ in run.logprobs]
    for slug in dict.fromkeys(slugs):
        key = run.same_vocabulary(slug)
        if key not in numbers:
            tokens = run.vocabulary(slug).select("token_id", "token").collect()
            alike = (at for at, other in enumerate(known) if other.equals(tokens))
            numbers[key] = next(alike, len(known))
            known += [tokens] if numbers[key] == len(known) else []
    return {slug: numbers[run.same_vocabulary(slug)] for slug in slugs}


def lists(run: Run, models: Sequence[str]) -> Iterator[Replies]:
    """Every list under every prompt under which a language model read it too."""
    for items, prompt in run.lists():
        scored = [model for model in models if (items, model, prompt) in run.items]
        forms = [(m, form) for name, m, form in run.item_logprobs if name == items]
        chosen = _form_of(run, prompt, forms)
        if chosen is not None and scored:
            rewards = run.item_scores(items, prompt, scored).drop("item")
            read = run.replies(items, *chosen).select("item_id", "item", "logprob")
            known = read.join(rewards, on="item_id", how="inner", validate="1:1").sort("item_id")
            yield from _replies(LIST + items, prompt, scored, *chosen, known)


def without_reference(run: Run, models: Sequence[str]) -> list[str]:
    """Slugs of the models that scored their vocabulary, whose tokens no language model has."""
    tables = token_tables(run, models)
    known = {tables[model] for model, _ in run.logprobs}
    return [model for model in models if model in tables and tables[model] not in known]


def _form_of(run: Run, prompt: str, forms: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """Language model and form for `prompt`: the chat form before the plain one, then by slug.

    The references of implicit rewards go before other language models.
    """
    alike = [(m, form) for m, form in forms if run.prompts[form] == run.prompts[prompt]]
    pairs = [record[schema.PAIR] for record in run.models.values() if schema.PAIR in record]
    first = {pair["reference"]["slug"] for pair in pairs}
    return min(
        alike,
        key=lambda pair: (not pair[1].endswith(schema.CHAT), pair[0] not in first, *pair),
        default=None,
    )


def _tokens(
    run: Run, prompt: str, models: Sequence[str], reference: str, form: str
) -> pl.DataFrame:
    """token_id, token, logprob, and a column per model."""
    known = run.next_tokens(reference, form).select("token_id", "token", "logprob")
    for model in models:
        columns = dict(zip(("token_id", model), run.rewards(model, prompt), strict=True))
        frame = pl.DataFrame(columns, schema={"token_id": pl.UInt32, model: pl.Float32})
        known = known.join(frame, on="token_id", how="inner", validate="1:1")
    return known.sort("token_id")


def _replies(
    of: str, prompt: str, models: Sequence[str], reference: str, form: str, known: pl.DataFrame
) -> Iterator[Replies]:
    """One `Replies`; none without two replies, or a model that tells them apart.

    `known` has an id, a text, logprob, and a column per model.
    """
    if known.height < 2:
        return
    log_p = known["logprob"].to_numpy().astype(np.float64)
    normal = normalised(log_p)
    p = np.exp(normal)
    rewards = known.select(models).to_numpy().T.astype(np.float64)
    spread = np.sqrt((rewards - (rewards @ p)[:, None]) ** 2 @ p)
    differ = spread > 1e-9 * np.abs(rewards).max(axis=1)
    if differ.any():
        yield Replies(
            of=of,
            prompt=prompt,
            reference=reference,
            form=form,
            ids=known[:, 0].to_numpy(),
            texts=known[:, 1],
            log_p=normal,
            covered=min(1.0, float(np.exp(log_p).sum())),
            models=tuple(np.array(models)[differ].tolist()),
            rewards=rewards[differ],
        )
