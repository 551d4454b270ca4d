"""The public API behind `engine`: reward models, for notebooks and scripts."""

import dataclasses
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from flax import nnx
from jax.sharding import Mesh

from engine import programs
from engine.checkpoint.card import REWARD, Checkpoint
from engine.checkpoint.restore import restore
from engine.errors import AssayError
from engine.mesh import build_mesh
from engine.planning import admission
from engine.runs import implicit, schema
from engine.scoring.language_passes import LanguageScorer
from engine.scoring.reward_passes import RewardScorer, check_finite, default_dtype, dtype_named
from engine.scoring.rows import ContinuationRows, NextTokenRows, RewardRows
from engine.search import certificate
from engine.search.loop import run_problem, trace_frame
from engine.search.problem import SearchProblem
from engine.settings import ImplicitSettings, SearchSettings, check_integer
from engine.sweep.implicit_jobs import Pair
from engine.sweep.logprob_jobs import cue_of
from engine.sweep.reward_jobs import mode_of, pooling_of, reply_rows, token_rows
from engine.sweep.setup import vocabulary_of


def load(
    checkpoint: str | os.PathLike[str],
    *,
    dtype: str | None = None,
    mesh: Mesh | None = None,
    step_size: int | None = None,
    verify: bool | None = None,
    check_memory: bool = True,
) -> "RewardModel":
    """Loads a checkpoint that `launch.convert` made.

    Args:
      checkpoint: the folder, local or in an object store (`s3://`, `gs://`).
      dtype: of the decoder: `float32`, `bfloat16` or `float16`; by default `default_dtype`'s.
      mesh: where to put it; all devices by default.
      step_size: candidates per step on each device; None: as many as memory and the kind of device
        suggest.
      verify: whether parameters and tokenizer files are compared with their hashes; None:
        tokenizer files, and parameters of less than 20 GB.
      check_memory: whether a model that is larger than the free memory is refused.

    Raises:
      AssayError: no checkpoint, a damaged one, or settings that do not fit it.
    """
    programs.enable_cache()
    mesh = mesh or build_mesh()
    opened = Checkpoint.open(checkpoint, verify=verify)
    opened.expect(REWARD)
    named = dtype_named(dtype or default_dtype(mesh.devices.flat[0].platform, [opened]))
    step = admission.admit(opened, mesh, str(named), step_size, check=check_memory)
    restored = restore([opened], mesh, named, objectives="values")
    return RewardModel(opened, RewardScorer.build(*restored, mesh, step_size=step))


def reward_of(
    policy: str | os.PathLike[str],
    reference: str | os.PathLike[str],
    *,
    form: str = "chat",
    beta: float = 1.0,
    dtype: str | None = None,
    mesh: Mesh | None = None,
) -> "ImplicitReward":
    """Loads two language models as one reward model: β (log π - log π_ref), the reward of DPO.

    Args:
      policy: the checkpoint whose probability counts for a reply.
      reference: the one whose probability counts against it; both are in memory.
      form: how both are given a prompt: `chat`, in the chat template, or `pretrained`, as text.
      beta: the factor β; 1 leaves rewards in nats.
      dtype: as of `load`.
      mesh: as of `load`.

    Raises:
      AssayError: as `load`; language models that read other token ids.
    """
    programs.enable_cache()
    mesh = mesh or build_mesh()
    first, second = Checkpoint.open(policy), Checkpoint.open(reference)
    pair = Pair(first, second, ImplicitSettings(form=form, beta=beta))
    pair.check({})
    named = dtype_named(dtype or default_dtype(mesh.devices.flat[0].platform, pair.checkpoints))
    scorers = []
    for one in pair.checkpoints:
        step = admission.admit(one, mesh, str(named), None, check=True)
        scorers.append(LanguageScorer.build(*restore([one], mesh, named), mesh, step_size=step))
    return ImplicitReward(pair, scorers)


class ImplicitReward:
    """Two language models on devices, ready to score as one reward model."""

    def __init__(self, pair: Pair, scorers: Sequence[LanguageScorer]):
        self._pair, self._scorers = pair, scorers

    def __repr__(self) -> str:
        return f"ImplicitReward({self.slug!r}, {self._pair.settings})"

    @property
    def slug(self) -> str:
        """The model's name."""
        return self._pair.slug

    def sweep(self, prompt: str) -> pl.DataFrame:
        """Rewards of every token as the next one: what `RewardModel.sweep` returns."""
        return _ranked(self._pair.policy.tokens, {"reward": self._score(prompt)})

    def score(self, prompt: str, responses: str | Sequence[str]) -> np.ndarray:
        """Rewards of replies of any length: float32 [responses], in their order."""
        replies = _listed(responses)
        return self._score(prompt, replies) if replies else np.empty(0, np.float32)

    def _score(self, prompt: str, replies: Sequence[str] = ()) -> np.ndarray:
        """Rewards of replies, or of every token: float32 [rows]."""
        pair = self._pair
        pair.check({prompt: prompt}, replies)
        cue = cue_of(pair.policy, prompt, pair.settings.form)
        rows: NextTokenRows | ContinuationRows = (
            ContinuationRows(cue, replies)
            if replies
            else NextTokenRows(cue.prompt, pair.policy.token_ids)
        )
        both = []
        for checkpoint, scorer in zip(pair.checkpoints, self._scorers, strict=True):
            rows.check(checkpoint.card.decoder)
            opened = scorer.prefill(rows.prompt)
            [[logprobs]] = scorer.score(opened, rows, 0, len(rows), lambda done: None)
            both.append(logprobs)
        rewards = implicit.difference(both[0], both[1], pair.settings.beta)
        check_finite(self.slug, next(iter(rows.part_columns)), 0, ["reward"], rewards[None])
        return rewards


class RewardModel:
    """A reward model on devices, ready to score."""

    def __init__(self, checkpoint: Checkpoint, scorer: RewardScorer):
        self._checkpoint, self._scorer = checkpoint, scorer

    def __repr__(self) -> str:
        card = self._checkpoint.card
        return (
            f"RewardModel({card.slug!r}, {card.decoder.num_layers} layers, head={card.head.kind})"
        )

    @property
    def slug(self) -> str:
        """The model's name."""
        return str(self._checkpoint.card.slug)

    @functools.cached_property
    def vocabulary(self) -> pl.DataFrame:
        """token_id, token, is_special, round_trip of every id."""
        return vocabulary_of(self._checkpoint)

    def sweep(self, prompt: str, *, mode: str = "auto", pooling: str = "auto") -> pl.DataFrame:
        """Rewards of every token of the vocabulary as the whole reply.

        Args:
          prompt: the user's turn.
          mode: `ids` puts each id between the template's; `text` decodes it, renders the
            conversation and tokenises the whole text, so that templates trim and ids merge; `auto`
            is `ids`, or `text` where the template cannot be cut around a reply.
          pooling: `last` reads the reward at the last id; `last_non_pad` at the last one that is no
            pad token, as transformers does from 4.50 on; `first_pad` before the first pad token,
            as the library did that the paper used; `auto` is what the conversion chose.

        Returns:
          token_id u32, token str, reward f32; best first, equal rewards by id.
        """
        return self._tokens(self._scorer, ["reward"], prompt, mode, pooling)

    def lens(self, prompt: str, *, mode: str = "auto", pooling: str = "auto") -> pl.DataFrame:
        """Rewards of every token as `sweep` gives them, and what the head reads after every layer.

        The final norm and the head are applied to the hidden state after each layer.

        Returns:
          token_id u32, token str, reward f32, layer_01 f32, layer_02 f32, …; best first, equal
          rewards by id. The last column equals the reward.
        """
        plain = self._scorer
        scorer = RewardScorer.build(
            plain.graph, plain.params, plain.mesh, step_size=plain.step_size, lens=True
        )
        layers = schema.lens_columns(self._checkpoint.card.reward_head.depth)
        return self._tokens(scorer, ["reward", *layers], prompt, mode, pooling)

    def score(
        self,
        prompt: str,
        responses: str | Sequence[str],
        *,
        mode: str = "text",
        pooling: str = "auto",
    ) -> np.ndarray:
        """Rewards of replies of any length: float32 [responses], in their order.

        Args:
          prompt: the user's turn.
          responses: the replies.
          mode: `text` tokenises the rendered conversation as one text, as a chat would;
            `ids` puts the ids of the reply alone between the template's.
          pooling: as for `sweep`.
        """
        return self._replies(prompt, _listed(responses), mode, pooling)[0]

    def objectives(
        self,
        prompt: str,
        responses: str | Sequence[str],
        *,
        mode: str = "text",
        pooling: str = "auto",
    ) -> pl.DataFrame:
        """Rewards of replies as `score` gives them, with the objectives they are made of.

        Returns:
          response str, reward f32, then one f32 column per objective (none for a plain head); in
          the order of the responses.
        """
        replies = _listed(responses)
        numbers = self._replies(prompt, replies, mode, pooling)
        columns = dict(zip(self._scorer.columns[0], numbers, strict=True))
        types = {"response": pl.String} | dict.fromkeys(columns, pl.Float32)
        return pl.DataFrame({"response": replies, **columns}, schema=types)

    def coefficients(self, prompt: str) -> dict[str, float] | None:
        """Weights of a gated model's (ArmoRM, QRM) objectives under a prompt; else None.

        The reward is the sum of the objectives times their coefficients.
        """
        around = self._checkpoint.template.around(prompt)
        return self._scorer.coefficients(self._scorer.prefill(around))[0]

    # Any: settings are of several types, which SearchSettings checks.
    def search(self, prompt: str, *, direction: str = "max", **settings: Any) -> pl.DataFrame:
        """Searches the reply with the highest or lowest reward.

        Args:
          prompt: the user's turn.
          direction: `max` for the highest reward, `min` for the lowest.
          **settings: fields of `engine.settings.SearchSettings`, such as `method`, `length`
            (tokens of the reply), `steps`, `candidates`, `restarts`, `initial`, `ascii_only`,
            `round_trip` and `seed`; what is left out has its method's default, and the
            default method is `gcg`.

        Returns:
          The best sequence after each step, from the first that was found: step u32, reward f32,
          token_ids list[u32], text, round_trips, flops f64 (spent so far). With `certify` > 0, rows
          of its sweeps follow (see `certify`, which also says whether the last is certified).

        Raises:
          AssayError: an unknown setting, or settings that do not fit each other or the model.
        """
        problem, [scorer] = _problem([self], [prompt], direction, settings)
        steps = _trace(problem, [scorer])
        if not problem.whole.settings.certify:
            return steps
        sweeps = certificate.of_found(problem.whole, scorer, steps.row(-1, named=True)).steps
        return pl.concat([steps, sweeps.with_columns(pl.col("step") + steps["step"][-1])])

    def certify(
        self,
        prompt: str,
        reply: str | Sequence[int],
        *,
        direction: str = "max",
        sweeps: int = 64,
        **settings: Any,
    ) -> certificate.Certificate:
        """Scores every swap of a single token of a reply, and goes on from the best that improves.

        Args:
          prompt: the user's turn.
          reply: a text, or token ids, such as a search's last `token_ids`.
          direction: `max` for swaps with a higher reward, `min` for a lower one.
          sweeps: of the vocabulary at most, one per position; at least the reply's free positions.
          **settings: as for `search`: `ascii_only`, `specials`, `allow`, `deny`, `fixed`,
            `round_trip` and `target` decide which swaps are allowed.

        Raises:
          AssayError: a reply or a setting that does not fit; fewer sweeps than free positions.
        """
        for name in {"certify", "length", "initial"} & settings.keys():
            raise AssayError(f"{name}={settings[name]!r}: the reply and its sweeps say it here")
        check_integer("sweeps", sweeps, 1)
        ids = self._checkpoint.template.reply_ids(reply) if isinstance(reply, str) else reply
        ids, known = list(ids) if isinstance(ids, Iterable) else [], set(self._checkpoint.token_ids)
        whole = all(isinstance(i, int | np.integer) and not isinstance(i, bool) for i in ids)
        if not ids or not whole or not known.issuperset(ids):
            raise AssayError(
                f"reply={reply!r}; allowed: ids of tokens, 0 to {max(known)}, or a text"
            )
        # A reply that is given by its ids need not be one that its text tokenises to: the settings
        # that the reply has to fit are set when the objective, which draws one, is built.
        free = {"topk": 1, **settings, "length": len(ids), "fixed": (), "round_trip": False}
        problem, [scorer] = _problem([self], [prompt], direction, free)
        given = {name: settings[name] for name in ("fixed", "round_trip") if name in settings}
        return certificate.of_reply(problem.whole, scorer, ids, sweeps, **given)

    def _replies(self, prompt: str, replies: Sequence[str], mode: str, pooling: str) -> np.ndarray:
        if not replies:
            return np.empty((len(self._scorer.columns[0]), 0), np.float32)
        how = mode_of(self._checkpoint, [prompt], mode), pooling_of(self._checkpoint, pooling)
        return self._score(self._scorer, reply_rows(self._checkpoint, prompt, replies, *how))

    def _tokens(
        self, scorer: RewardScorer, names: Sequence[str], prompt: str, mode: str, pooling: str
    ) -> pl.DataFrame:
        """token_id, token and some columns of every token, best first."""
        how = mode_of(self._checkpoint, [prompt], mode), pooling_of(self._checkpoint, pooling)
        scored = self._score(scorer, token_rows(self._checkpoint, prompt, *how))
        numbers = dict(zip(scorer.columns[0], scored, strict=True))
        return _ranked(self._checkpoint.tokens, {name: numbers[name] for name in names})

    def _score(self, scorer: RewardScorer, rows: RewardRows) -> np.ndarray:
        """Columns of a scorer for some rows: float32 [columns, rows]."""
        rows.check(self._checkpoint.card.decoder)
        [scored] = scorer.score(scorer.prefill(rows.prompt), rows, 0, len(rows))
        check_finite(
            self._checkpoint.card.slug, next(iter(rows.part_columns)), 0, scorer.columns[0], scored
        )
        return scored


# Any: settings are of several types.
def search_together(
    models: RewardModel | Sequence[RewardModel],
    prompts: str | Sequence[str],
    *,
    rule: str = "mean",
    direction: str = "max",
    **settings: Any,
) -> pl.DataFrame:
    """Searches one reply for all models under all prompts.

    Args:
      models: on one mesh; those that do not share the first one's tokenizer read texts.
      prompts: the users' turns.
      rule: `mean` or `minimum` of the rewards, each standardised by the model's rewards of single
        tokens under the prompt.
      direction: `max` for the highest rewards, `min` for the lowest.
      **settings: as for `RewardModel.search`.

    Returns:
      What `RewardModel.search` returns, with the objective in standard deviations, f32, in place of
      the reward.
    """
    models = [models] if isinstance(models, RewardModel) else list(models)
    of = _problem(models, _listed(prompts), direction, settings, rule)
    return _trace(*of).rename({"reward": "objective"})


# Any: settings are of several types.
def _problem(
    models: Sequence[RewardModel],
    prompts: Sequence[str],
    direction: str,
    settings: Mapping[str, Any],
    rule: str = "",
) -> tuple[SearchProblem, list[RewardScorer]]:
    """What is searched, and its models in their order there."""
    if direction == "both":
        raise AssayError("direction='both'; allowed here: 'max', 'min'")
    names = [field.name for field in dataclasses.fields(SearchSettings)]
    names = [name for name in names if name not in ("direction", "dtype")]
    for name in settings:
        if name not in names:
            raise AssayError(f"{name}: no such setting; allowed: {', '.join(names)}")
    first = models[0]._scorer
    dtype = nnx.merge(first.graph, first.params).decoder.embedding[...].dtype
    given = SearchSettings.of(**settings, direction=direction, dtype=str(dtype))
    frames = {model._checkpoint.card.tokenizer_hash: model.vocabulary for model in models}
    checkpoints, texts = [model._checkpoint for model in models], {p: p for p in prompts}
    problem = SearchProblem.build(checkpoints, texts, frames, given, rule)
    scorers = {id(model._checkpoint): model._scorer for model in models}
    return problem, [scorers[id(checkpoint)] for checkpoint in problem.models]


def _trace(problem: SearchProblem, scorers: Sequence[RewardScorer]) -> pl.DataFrame:
    """The trace of a search in one direction."""
    problem.announce()
    trace, _, _ = run_problem(problem, scorers)
    return trace_frame(problem.whole, trace, problem.whole.settings.direction)


def _ranked(tokens: Mapping[int, str], numbers: Mapping[str, np.ndarray]) -> pl.DataFrame:
    """token_id, token and columns of numbers, the first `reward`; best first, equal ones by id."""
    columns = {"token_id": list(tokens), "token": list(tokens.values()), **numbers}
    types = {"token_id": pl.UInt32, "token": pl.String, **dict.fromkeys(numbers, pl.Float32)}
    return pl.DataFrame(columns, types).sort("reward", "token_id", descending=[True, False])


def _listed(responses: str | Sequence[str]) -> list[str]:
    return [responses] if isinstance(responses, str) else list(responses)
