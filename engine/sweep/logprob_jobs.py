"""Log-probabilities (natural logarithms) under a language model, into a run folder.

A prompt has a form (`engine.text.cue`); its id in the run names the form where that is not the
plain one (`schema.prompt_in_form`).
"""

import functools
from collections.abc import Mapping, Sequence

from jax.sharding import Mesh

from engine.checkpoint.card import LANGUAGE, Checkpoint
from engine.checkpoint.restore import restore
from engine.errors import AssayError
from engine.runs import schema
from engine.scoring.language_passes import LanguageScorer
from engine.scoring.reward_passes import dtype_named
from engine.scoring.rows import ContinuationRows, NextTokenRows
from engine.settings import LogprobSettings
from engine.sweep import loop, setup
from engine.sweep.jobs import Job
from engine.sweep.outcomes import Ended
from engine.text.cue import Cue
from engine.types import Prompt


def sweep_logprobs(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    settings: LogprobSettings,
    mesh: Mesh,
    *,
    items: tuple[str, Sequence[str]] | None = None,
    ended: Ended = lambda outcomes: None,
) -> int:
    """Log-probability of every token, or of each reply of the list `items`, after every prompt.

    Those of tokens go into `run/logprobs`. The softmax is over all rows of the embedding; rows that
    no token has are not written. Those of a list go into `run/item_logprobs/<name>`: the sum over
    the reply's tokens, each given the prompt and the tokens before it.

    Returns:
      The number of log-probabilities that were computed; 0 if the run was complete.

    Raises:
      AssayError: bad input, the chat form of a model without a chat template, a result that the run
        holds with another fingerprint, a number that is not finite, a failed self-check.
      SomeFailed: some models failed; the other models are complete.
    """
    by_form = {schema.prompt_in_form(name, settings.form): text for name, text in prompts.items()}
    manifest = setup.open_run(run, checkpoints, by_form, settings, mesh, LANGUAGE)
    path_of = schema.logprobs_path
    if items is not None:
        setup.admit_list(manifest, *items)
        path_of = functools.partial(schema.item_logprobs_path, items[0])
    jobs = []
    for checkpoint in checkpoints:
        for prompt, text in by_form.items():
            cue = cue_of(checkpoint, text, settings.form)
            jobs.append(
                Job(
                    checkpoint=checkpoint,
                    path=path_of(checkpoint.card.slug, prompt),
                    rows=NextTokenRows(cue.prompt, checkpoint.token_ids)
                    if items is None
                    else ContinuationRows(cue, items[1]),
                    fingerprint={"form": settings.form},
                )
            )

    def load(group: Sequence[Checkpoint], step_size: int) -> LanguageScorer:
        restored = restore(group, mesh, dtype_named(settings.dtype))
        return LanguageScorer.build(*restored, mesh, step_size=step_size)

    return loop.run(manifest, jobs, load, settings, mesh, ended=ended)


def cue_of(checkpoint: Checkpoint, prompt: Prompt, form: str) -> Cue:
    """A prompt as the checkpoint's tokenizer renders it in one of `engine.settings.FORMS`."""
    if form == "pretrained":
        return Cue.pretrained(checkpoint.tokenizer, prompt)
    if not checkpoint.tokenizer.chat_template:
        raise AssayError(
            f"form={form!r}: {checkpoint.card.slug} has no chat template; allowed: 'pretrained'"
        )
    return Cue.chat(checkpoint.template, prompt)
