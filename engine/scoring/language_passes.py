"""Language models on a mesh: three compiled passes, and the host object around them."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from engine import mesh as meshes
from engine.models.language_model import LanguageModel
from engine.scoring.batches import largest_step, padded, padded_length, rows_of_step
from engine.scoring.conversations import ConversationReplies
from engine.scoring.reward_passes import check_step, compiled, compiled_over_data, fetch, in_steps
from engine.scoring.rows import ContinuationRows, NextTokenRows
from engine.types import Graph, Kept, Params, PromptIds


@dataclasses.dataclass(frozen=True)
class ReadPrompt:
    """A prompt after the model has read it."""

    key_values: Kept
    logprobs: np.ndarray  # float32 [V], of the next token


@dataclasses.dataclass(frozen=True)
class LanguageScorer:
    """Parameters on a mesh with the compiled passes: replies in, log-probabilities out."""

    params: Params
    mesh: Mesh
    step_size: int  # largest number of candidates per step on each device
    # Compiled methods of `LanguageModel`, which describes their shapes.
    prefill_step: Callable[..., tuple[Kept, jax.Array]]
    score_step: Callable[..., jax.Array]
    plain_step: Callable[..., jax.Array]

    @classmethod
    def build(cls, graph: Graph, params: Params, mesh: Mesh, *, step_size: int) -> "LanguageScorer":
        """Raises AssayError for a mesh that does not fit the model, or an empty step."""
        check_step(step_size)
        decoder = nnx.merge(graph, params).decoder
        config, stacks = decoder.config, len(decoder.stacks)
        meshes.check_mesh(mesh, config)
        prefix = meshes.kept_shardings(mesh, config, stacks), meshes.sharding(mesh, "")
        return cls(
            params=params,
            mesh=mesh,
            step_size=largest_step(step_size, config.vocab_size),
            prefill_step=compiled(LanguageModel.prefill, graph, prefix),
            score_step=compiled_over_data(
                LanguageModel.score_candidates, graph, mesh, ("", "C"), "C"
            ),
            plain_step=compiled_over_data(LanguageModel.plain, graph, mesh, ("C",) * 3, "C"),
        )

    def with_step(self, step_size: int) -> "LanguageScorer":
        """The same with steps of at most this size."""
        return dataclasses.replace(self, step_size=min(step_size, self.step_size))

    def prefill(self, prompt: PromptIds) -> ReadPrompt:
        """Reads a prompt: keys and values for its continuations, and next-token probabilities."""
        last = np.array([len(prompt.prefix) - 1], np.int32)
        on_mesh = meshes.put(self.mesh, (padded([prompt.prefix], 1)[0], last), "P")
        key_values, logprobs = self.prefill_step(self.params, *on_mesh)
        return ReadPrompt(key_values, fetch(logprobs))

    def score(
        self,
        prompt: ReadPrompt,
        rows: NextTokenRows | ContinuationRows | ConversationReplies,
        start: int,
        stop: int,
        advance: Callable[[int], object],
    ) -> list[np.ndarray]:
        """Log-probabilities of rows [start, stop): one float32 [1, stop - start].

        `advance` is called after each step with its number of candidates. Conversations, which have
        no common `prompt`, take the plain pass, by length.
        """
        if isinstance(rows, ConversationReplies):
            return [self._whole(rows, start, stop, advance)[None]]
        if isinstance(rows, NextTokenRows):  # the pass over the prompt has given them all
            return [prompt.logprobs[None, np.array(rows.token_ids[start:stop])]]
        step = functools.partial(self.score_step, self.params, prompt.key_values)
        numbers, buckets = np.empty(stop - start, np.float32), rows.buckets(start, stop)
        in_steps(step, buckets, numbers, self.mesh, self.step_size, advance)
        return [numbers[None]]

    def score_plainly(
        self, rows: NextTokenRows | ContinuationRows | ConversationReplies, sample: Sequence[int]
    ) -> list[np.ndarray]:
        """What `score` gives for some rows, by the plain pass: one float32 [1, sample].

        Conversations are computed one by one.
        """
        if isinstance(rows, ConversationReplies):
            shape = self.mesh.shape["data"], rows.context
            numbers = (self.plain(rows.sequences([row]), rows.given[row], shape) for row in sample)
            return [np.concatenate([*numbers])[None]]
        return [self.plain(rows.sequences(sample), len(rows.prompt.prefix))[None]]

    def coefficients(self, prompt: ReadPrompt) -> list[None]:
        """None: a language model has no objectives."""
        return [None]

    def _whole(
        self, rows: ConversationReplies, start: int, stop: int, advance: Callable[[int], object]
    ) -> np.ndarray:
        """Log-probabilities of conversations [start, stop) as whole sequences: [stop - start]."""
        sequences = rows.sequences(range(start, stop))
        lengths = np.array([padded_length(len(sequence)) for sequence in sequences])
        numbers = np.empty(len(lengths), np.float32)
        for length in np.unique(lengths).tolist():
            [members] = np.nonzero(lengths == length)
            size = self.mesh.shape["data"] * rows_of_step(len(members), length, self.step_size)
            for places in np.split(members, range(size, len(members), size)):
                batch = [sequences[place] for place in places]
                numbers[places] = self.plain(batch, rows.given[start + places], (size, length))
                advance(len(batch))
        return numbers

    def plain(
        self,
        sequences: Sequence[Sequence[int]],
        given: int | np.ndarray,
        shape: tuple[int, int] | None = None,
    ) -> np.ndarray:
        """Log-probability of what follows the first `given` tokens of each sequence: [rows].

        They are padded to `shape`; by default as for rewards, to as many rows on every device.
        """
        rows, length = shape or (self.mesh.shape["data"] * len(sequences), 0)
        ids = padded(sequences, rows, max(0, length - max(map(len, sequences))))
        first, last = np.ones(len(ids), np.int32), np.zeros(len(ids), np.int32)
        first[: len(sequences)] = given
        last[: len(sequences)] = [len(s) - 1 for s in sequences]
        on_mesh = meshes.put(self.mesh, (ids, first, last), "CT")
        return fetch(self.plain_step(self.params, *on_mesh))[: len(sequences)]
