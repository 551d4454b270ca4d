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
from engine.checkpoint.card import LANGUAGE, Checkpoint
from engine.checkpoint.restore import restore
from engine.display import progress
from engine.errors import AssayError
from engine.language_api import LanguageModel, Pairs, checked, listed, ranked, scored, warn_unread
from engine.mesh import checked_mesh
from engine.planning import admit
from engine.runs import schema
from engine.scoring.conversations import ConversationRows
from engine.scoring.language_passes import LanguageScorer
from engine.scoring.reward_passes import RewardScorer, check_finite, default_dtype, dtype_named
from engine.scoring.rows import RewardRows, ending_rows, mode_of, reply_rows, token_rows
from engine.search.gcg import run_search, trace_frame
from engine.search.objective import SearchObjective
from engine.search.swaps import certificate
from engine.settings import SearchSettings, check_integer
from engine.sweep.setup import vocabulary_of
from engine.text.chat_template import checked_text, with_reply_start
from engine.types import Prompt


def load(
    checkpoint: str | os.PathLike[str] | Checkpoint,
    *,
    dtype: str | None = None,
    mesh: Mesh | None = None,
    step_size: int | None = None,
    verify: bool = True,
    check_memory: bool = True,
) -> "RewardModel | LanguageModel":
    """Loads a checkpoint that `assay convert` made: a reward model, or a language model.

    Args:
      checkpoint: the folder, local or in an object store (`s3://`, `gs://`).
      dtype: of the decoder: `float32`, `bfloat16` or `float16`; by default `default_dtype`'s.
      mesh: where to put it; all devices by default.
      step_size: candidates per step on each device; None: as many as memory and the kind of device
        suggest.
      verify: whether parameters and tokenizer files are compared with their hashes.
      check_memory: whether a model that is larger than the free memory is refused.

    Raises:
      AssayError: no checkpoint, a damaged one, or settings that do not fit it.
    """
    programs.enable_cache()
    mesh = checked_mesh(mesh)
    if step_size is not None:
        check_integer("step_size", step_size, 1)
    opened = Checkpoint.open(checkpoint, verify=verify)
    chosen = dtype_named(dtype or default_dtype(mesh.devices.flat[0].platform, [opened]))
    step = admit(opened, mesh, str(chosen), step_size, check=check_memory)
    if opened.card.kind == LANGUAGE:
        restored = restore([opened], mesh, chosen)
        return LanguageModel(opened, LanguageScorer.build(*restored, mesh, step_size=step))
    restored = restore([opened], mesh, chosen, objectives="values")
    return RewardModel(opened, RewardScorer.build(*restored, mesh, step_size=step))


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

    def sweep(
        self,
        prompt: Prompt | Sequence[str],
        *,
        after: str = "",
        mode: str = "auto",
        pooling: str = "auto",
    ) -> pl.DataFrame:
        """Rewards of every token of the vocabulary as the whole reply, or at the end of a reply.

        Args:
          prompt: the user's turn; or all turns before the reply, as messages with `role` and
            `content`; or several users' turns, one after the other with a progress bar.
          after: a reply start, which every token follows (docs/behind-a-reply.md); with a prompt
            that is a text.
          mode: `ids` puts each id between the template's; `text` decodes it, renders the
            conversation and tokenises the whole text, so that templates trim and ids merge; `auto`
            is `ids`, or `text` where the template cannot be cut around a reply.
          pooling: `last` reads the reward at the last id; `last_non_pad` at the last one that is no
            pad token, as transformers does from 4.50 on; `first_pad` before the first pad token,
            as the library did that the paper used; `auto` is what the conversion chose.

        Returns:
          token_id u32, token str, reward f32; best first, equal rewards by id. Of several prompts
          one frame after the other, with the column prompt, its text, in front. Behind a reply
          start also effect f32: the reward less that of the reply start alone.
        """
        if after:
            if not isinstance(prompt, str):
                raise AssayError(f"after={after!r}: its prompt must be one text")
            whole = with_reply_start(prompt, after)
            swept = self._tokens(self._scorer, ["reward"], whole, mode, pooling)
            alone = self._replies(whole, [""], mode_of(self._checkpoint, [whole], mode), pooling)
            return swept.with_columns(effect=pl.col("reward") - alone[0, 0])
        given = prompt if isinstance(prompt, Sequence) else ()
        several = [text for text in given if isinstance(text, str)]
        if isinstance(prompt, str) or not several or len(several) < len(prompt):
            return self._tokens(self._scorer, ["reward"], prompt, mode, pooling)
        frames = []
        with progress(len(prompt), "prompts", what=self.slug) as bar:
            for text in several:
                swept = self._tokens(self._scorer, ["reward"], text, mode, pooling)
                frames.append(swept.select(pl.lit(text).alias("prompt"), pl.all()))
                bar.update()
        return pl.concat(frames)

    def lens(self, prompt: Prompt, *, mode: str = "auto", pooling: str = "auto") -> pl.DataFrame:
        """Rewards of every token as `sweep` gives them, and what the head reads after every layer.

        The final norm and the head are applied to the hidden state after each layer.

        Returns:
          token_id u32, token str, reward f32, layer_01 f32, layer_02 f32, …; best first, equal
          rewards by id. The last column equals the reward.
        """
        self._checkpoint.expect_decoder("lens")
        plain = self._scorer
        scorer = RewardScorer.build(
            plain.graph, plain.params, plain.mesh, step_size=plain.step_size, lens=True
        )
        layers = schema.lens_columns(self._checkpoint.card.reward_head.depth)
        return self._tokens(scorer, ["reward", *layers], prompt, mode, pooling)

    def score(
        self,
        prompt: Prompt,
        responses: str | Sequence[str],
        *,
        mode: str = "text",
        pooling: str = "auto",
    ) -> np.ndarray:
        """Rewards of replies of any length: float32 [responses], in their order.

        Args:
          prompt: the user's turn, or messages as in `sweep`.
          responses: the replies.
          mode: `text` tokenises the rendered conversation as one text, as a chat would;
            `ids` puts the ids of the reply alone between the template's.
          pooling: as for `sweep`.
        """
        return self._replies(prompt, listed(responses), mode, pooling)[0]

    def running(self, prompt: Prompt, reply: str, *, pooling: str = "auto") -> pl.DataFrame:
        """The reward while a reply is read: what it would be if the reply ended at each token.

        The template closes the turn behind each token; the last reward is that of the reply with
        mode `ids` of `score`. Prompt and reply are computed once for all (docs/probes.md).

        Args:
          prompt: the user's turn, or messages as in `sweep`.
          reply: a text.
          pooling: as for `sweep`.

        Returns:
          token_id u32, token str (the text that it adds; "" inside a character), reward f32; one
          row per token of the reply, in their order.

        Raises:
          AssayError: a reply without tokens, or a template that cannot be cut around it.
        """
        rows = ending_rows(self._checkpoint, checked(prompt), checked_text(reply), pooling)
        rewards = self._score(self._scorer, rows)[0]
        types = {"token_id": pl.UInt32, "token": pl.String, "reward": pl.Float32}
        return pl.DataFrame({**rows.columns, "reward": rewards}, schema=types)

    # Any: also a frame of pandas, which is not imported.
    def score_pairs(self, frame: Any, *, mode: str = "text", pooling: str = "auto") -> pl.DataFrame:
        """Rewards of pairs of replies, each under its own prompt.

        Args:
          frame: a frame of polars or pandas, or a list of dicts, with prompt, chosen and rejected:
            texts or messages. Other columns are read as in files of pairs (docs/pairs.md).
          mode: as for `score`.
          pooling: as for `sweep`.

        Returns:
          The frame with four more columns: reward_chosen, reward_rejected and margin, the first
          less the second, all f32, and right, whether the margin is above 0.

        Raises:
          AssayError: no frame of pairs, or a row that is none, with its number from 1.
        """
        pairs = Pairs.of(frame)
        rows = ConversationRows.of(self._checkpoint, pairs.table, mode, pooling)
        return pairs.judged(self._score(self._scorer, rows)[0])

    def objectives(
        self,
        prompt: Prompt,
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
        replies = listed(responses)
        numbers = self._replies(prompt, replies, mode, pooling)
        columns = dict(zip(self._scorer.columns[0], numbers, strict=True))
        types = {"response": pl.String} | dict.fromkeys(columns, pl.Float32)
        return pl.DataFrame({"response": replies, **columns}, schema=types)

    def coefficients(self, prompt: Prompt) -> dict[str, float] | None:
        """Weights of a gated model's (ArmoRM, QRM) objectives under a prompt; else None.

        The reward is the sum of the objectives times their coefficients.
        """
        around = self._checkpoint.template.around(checked(prompt))
        warn_unread(self._checkpoint, around)
        return self._scorer.coefficients(self._scorer.prefill(around))[0]

    # Any: settings are of several types, which SearchSettings checks.
    def search(self, prompt: str, *, direction: str = "max", **settings: Any) -> pl.DataFrame:
        """Searches the reply with the highest or lowest reward.

        Args:
          prompt: the user's turn.
          direction: `max` for the highest reward, `min` for the lowest.
          **settings: fields of `engine.settings.SearchSettings`, such as `method`, `length`
            (tokens of the reply), `steps`, `candidates`, `restarts`, `ascii_only`,
            `round_trip` and `seed`; what is left out has its method's default, and the
            default method is `gcg`.

        Returns:
          The best sequence after each step, from the first that was found: step u32, reward f32,
          token_ids list[u32], text, round_trips, flops f64 (spent so far).

        Raises:
          AssayError: an unknown setting, or settings that do not fit each other or the model.
        """
        objective = _objective(self, checked_text(prompt), direction, settings)
        return trace_frame(objective, run_search(objective, self._scorer)[0], direction)

    # Any: settings are of several types; JSON values.
    def certify(
        self, prompt: str, reply: str | Sequence[int], *, direction: str = "max", **settings: Any
    ) -> dict[str, Any]:
        """Scores every swap of one token of a reply for another that is allowed.

        Args:
          prompt: the user's turn.
          reply: a text, or token ids, such as a search's last `token_ids`.
          direction: `max` for swaps with a higher reward, `min` for a lower one.
          **settings: as for `search`: `ascii_only`, `specials`, `allow` and `round_trip` decide
            which swaps are allowed.

        Returns:
          The fields of `engine.runs.result.Certificate`.

        Raises:
          AssayError: a reply or a setting that does not fit.
        """
        if "length" in settings:
            raise AssayError(f"length={settings['length']!r}: every token of the reply is swapped")
        ids = self._checkpoint.template.reply_ids(reply) if isinstance(reply, str) else reply
        ids = [*ids] if isinstance(ids, Iterable) else []
        whole = all(type(i) is int or isinstance(i, np.integer) for i in ids)
        if not ids or not whole or not set(ids) <= set(self._checkpoint.token_ids):
            raise AssayError(f"reply={reply!r}; allowed: a text, or ids of tokens; at least one")
        settings |= {"length": len(ids)}
        objective = _objective(self, checked_text(prompt), direction, settings)
        if not objective.suffix and ids[-1] == objective.pooling.pad:
            raise AssayError(
                f"reply={reply!r}: ends with the pad token, which the model never reads"
            )
        found = certificate(objective, self._scorer, np.array(ids, np.int32))
        return dataclasses.asdict(found)

    def _replies(
        self, prompt: Prompt, replies: Sequence[str], mode: str, pooling: str
    ) -> np.ndarray:
        if not replies:
            return np.empty((len(self._scorer.columns[0]), 0), np.float32)
        rows = reply_rows(self._checkpoint, checked(prompt), replies, mode, pooling)
        return self._score(self._scorer, rows)

    def _tokens(
        self,
        scorer: RewardScorer,
        names: Sequence[str],
        prompt: Prompt | Sequence[str],
        mode: str,
        pooling: str,
    ) -> pl.DataFrame:
        """token_id, token and some columns of every token, best first."""
        rows = token_rows(self._checkpoint, checked(prompt), mode, pooling)
        columns = self._score(scorer, rows)
        numbers = dict(zip(scorer.columns[0], columns, strict=True))
        return ranked(self._checkpoint.tokens, {name: numbers[name] for name in names})

    def _score(self, scorer: RewardScorer, rows: RewardRows) -> np.ndarray:
        """Columns of a scorer for some rows: float32 [columns, rows]."""
        warn_unread(self._checkpoint, rows.prompt, rows.unread)
        numbers = scored(self._checkpoint, scorer, rows)
        check_finite(self.slug, next(iter(rows.part_columns)), 0, scorer.columns[0], numbers)
        return numbers


# Any: settings are of several types.
def _objective(
    model: RewardModel, prompt: Prompt, direction: str, settings: Mapping[str, Any]
) -> SearchObjective:
    """What is searched."""
    if direction == "both":
        raise AssayError("direction='both'; allowed here: 'max', 'min'")
    names = [field.name for field in dataclasses.fields(SearchSettings)]
    names = [name for name in names if name not in ("direction", "dtype")]
    for name in settings:
        if name not in names:
            raise AssayError(f"{name}: no such setting; allowed: {', '.join(names)}")
    scorer = model._scorer
    dtype = nnx.merge(scorer.graph, scorer.params).decoder.embedding[...].dtype
    given = SearchSettings.of(**settings, direction=direction, dtype=str(dtype))
    split = model._checkpoint.template.split(prompt)
    return SearchObjective.build(model._checkpoint, split, model.vocabulary, given)
