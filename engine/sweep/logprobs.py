"""Log-probabilities (natural) of a language model: of every next token, and of replies.

Two kinds of rows, which `engine.sweep.loop` writes into a run: the vocabulary after a prompt, and
a list of replies to it. A prompt has a form (`engine.text.cue.Cue`); its id in the run names the
form where that is not the plain one (`schema.prompt_in_form`).
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh

from engine import mesh as meshes
from engine.checkpoint.card import LANGUAGE, Checkpoint
from engine.checkpoint.restore import restore
from engine.errors import AssayError
from engine.runs import schema
from engine.runs.manifest import Manifest, items_hash
from engine.scoring.batches import Bucket, reply_buckets
from engine.scoring.language_passes import LanguageScorer, Opened
from engine.scoring.reward_passes import check_step, dtype_named
from engine.sweep import loop
from engine.text.cue import FORMS, Cue
from engine.types import PromptIds


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogprobSettings(loop.Settings):
    """How log-probabilities are computed. `form` is part of a result's fingerprint too."""

    form: str

    def __post_init__(self):
        super().__post_init__()
        if self.form not in FORMS:
            raise AssayError(f"form={self.form!r}; allowed: {', '.join(map(repr, FORMS))}")


def next_tokens(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    settings: LogprobSettings,
    mesh: Mesh,
) -> int:
    """Log-probability of every token after every prompt, into `run/logprobs`.

    The softmax is over all rows of the embedding; those that no token has are not written.

    Args:
      checkpoints: language models.
      prompts: prompt id -> text.
      run: run folder, new or to be continued.
      settings: form, precision, parts.
      mesh: from `engine.mesh.build_mesh`.

    Returns:
      How many log-probabilities were computed; 0 where the run was complete.

    Raises:
      AssayError: bad input, a model without a chat template in chat form, a result begun under
        another fingerprint, a number that is not finite, a self-check beyond tolerance.
    """

    def rows(checkpoint: Checkpoint, text: str) -> NextTokens:
        prompt = cue(checkpoint, text, settings.form).prompt
        return NextTokens(prompt, loop.tokens_of(checkpoint))

    named = _named(prompts, settings.form)
    manifest = loop.open_run(run, checkpoints, named, LANGUAGE)
    planned = _plan(manifest, checkpoints, named, rows, schema.logprobs_path, settings, mesh)
    loop.begin(manifest, loop.missing_vocabularies(manifest, checkpoints))
    return loop.run_jobs(manifest, planned, settings, _loader(settings, mesh))


def replies(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    name: str,
    texts: Sequence[str],
    run: str,
    settings: LogprobSettings,
    mesh: Mesh,
) -> int:
    """Log-probability of each reply of a list, into `run/item_logprobs/<name>`; see `next_tokens`.

    A reply's is the sum over its own tokens, given the prompt and its tokens before.
    """
    if not texts:
        raise AssayError(f"item list {name!r}: empty; allowed: at least one reply")

    def rows(checkpoint: Checkpoint, text: str) -> Replies:
        return Replies(cue(checkpoint, text, settings.form), texts)

    def path(model: str, prompt: str) -> str:
        return schema.item_logprobs_path(name, model, prompt)

    schema.check_names([name])
    named = _named(prompts, settings.form)
    manifest = loop.open_run(run, checkpoints, named, LANGUAGE)
    manifest.admit("lists", name, {"rows": len(texts), "items_hash": items_hash(texts)})
    planned = _plan(manifest, checkpoints, named, rows, path, settings, mesh)
    loop.begin(manifest, {})
    return loop.run_jobs(manifest, planned, settings, _loader(settings, mesh))


def cue(checkpoint: Checkpoint, prompt: str, form: str) -> Cue:
    """A prompt as the checkpoint's tokenizer has it in one of `FORMS`.

    Raises:
      AssayError: the chat form of a model that has no chat template.
    """
    if form == "pretrained":
        return Cue.pretrained(checkpoint.tokenizer, prompt)
    if not checkpoint.tokenizer.chat_template:
        raise AssayError(
            f"form={form!r}: {checkpoint.card.slug} has no chat template; allowed: 'pretrained'"
        )
    return Cue.chat(checkpoint.template, prompt)


@dataclasses.dataclass(frozen=True)
class NextTokens:
    """Every token of the vocabulary as the one that comes next."""

    prompt: PromptIds
    size: int

    schema = schema.LOGPROB_COLUMNS

    def __len__(self) -> int:
        return self.size

    def longest(self) -> int:
        """Positions of the longest conversation."""
        return len(self.prompt.prefix) + 1

    def columns(self, start: int, stop: int) -> dict[str, Any]:
        """What a part says about its rows beside the log-probability."""
        return {"token_id": range(start, stop)}

    def score(
        self,
        scorer: LanguageScorer,
        opened: Opened,
        start: int,
        stop: int,
        advance: Callable[[int], object],
    ) -> np.ndarray:
        """Log-probabilities of a range of rows, which the prompt's own pass has given."""
        return opened.logprobs[start:stop]

    def own(self, rows: Sequence[int]) -> list[list[int]]:
        """Tokens of some rows after the prompt."""
        return [[row] for row in rows]


@dataclasses.dataclass(frozen=True)
class Replies:
    """A list of replies of any length."""

    cue: Cue
    texts: Sequence[str]

    schema = schema.ITEM_LOGPROB_COLUMNS

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def prompt(self) -> PromptIds:
        """The prompt that they continue."""
        return self.cue.prompt

    @functools.cached_property
    def ids(self) -> list[list[int]]:
        """Token ids of each reply."""
        return self.cue.replies(self.texts)

    def longest(self) -> int:
        """Positions of the longest conversation."""
        return len(self.prompt.prefix) + max(map(len, self.ids))

    def columns(self, start: int, stop: int) -> dict[str, Any]:
        """What a part says about its rows beside the log-probability."""
        return {
            "item_id": range(start, stop),
            "item": list(self.texts[start:stop]),
            "tokens": [len(ids) for ids in self.ids[start:stop]],
        }

    def score(
        self,
        scorer: LanguageScorer,
        opened: Opened,
        start: int,
        stop: int,
        advance: Callable[[int], object],
    ) -> np.ndarray:
        """Log-probabilities of a range of rows."""
        numbers = np.empty(stop - start, np.float32)
        for bucket in self._buckets(start, stop):
            steps = []
            for step in scorer.logprobs(opened, bucket.candidates):
                steps.append(step)
                advance(len(step))
            numbers[bucket.rows] = np.concatenate(steps)[bucket.row_candidate]
        return numbers

    def own(self, rows: Sequence[int]) -> list[list[int]]:
        """Tokens of some rows after the prompt."""
        return [self.ids[row] for row in rows]

    def _buckets(self, start: int, stop: int) -> list[Bucket]:
        """Candidates that begin with the prompt's last token, which says their first."""
        prefix = self.prompt.prefix
        return reply_buckets(prefix[:-1], [[*prefix, *ids] for ids in self.ids[start:stop]])


@dataclasses.dataclass(frozen=True)
class LanguagePass:
    """A language model as the host loop sees it (`loop.Pass`)."""

    scorer: LanguageScorer

    def prefill(self, prompt: PromptIds) -> Opened:
        """Reads a prompt."""
        return self.scorer.prefill(prompt)

    def score(
        self,
        prefix: Opened,
        rows: NextTokens | Replies,
        start: int,
        stop: int,
        advance: Callable[[int], object],
    ) -> list[np.ndarray]:
        """Log-probabilities of a range of rows: float32 [stop - start]."""
        return [rows.score(self.scorer, prefix, start, stop, advance)]

    def plain(self, rows: NextTokens | Replies, sample: Sequence[int]) -> list[np.ndarray]:
        """Log-probabilities of some rows, nothing shared: float32 [sample]."""
        prefix = rows.prompt.prefix
        return [self.scorer.plain([[*prefix, *own] for own in rows.own(sample)], len(prefix))]

    def coefficients(self, prefix: Opened) -> list[None]:
        """A language model has no objectives."""
        return [None]


def _named(prompts: Mapping[str, str], form: str) -> dict[str, str]:
    return {schema.prompt_in_form(name, form): text for name, text in prompts.items()}


def _plan(
    manifest: Manifest,
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    rows: Callable[[Checkpoint, str], NextTokens | Replies],
    path: Callable[[str, str], str],
    settings: LogprobSettings,
    mesh: Mesh,
) -> list[loop.Job]:
    groups, about = [[checkpoint] for checkpoint in checkpoints], {"form": settings.form}
    planned = loop.plan(manifest, groups, prompts, rows, path, about, settings)
    check_step(settings.step_size, mesh)
    for checkpoint in checkpoints:
        meshes.check_mesh(mesh, checkpoint.card.decoder)
    return planned


def _loader(
    settings: LogprobSettings, mesh: Mesh
) -> Callable[[Sequence[Checkpoint]], LanguagePass]:
    def load(group: Sequence[Checkpoint]) -> LanguagePass:
        restored = restore(group, mesh, dtype_named(settings.dtype))
        return LanguagePass(LanguageScorer.build(*restored, mesh, step_size=settings.step_size))

    return load
