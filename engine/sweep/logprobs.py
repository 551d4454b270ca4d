"""Log-probabilities (natural logarithms) under a language model, into a run folder.

There are two kinds: of every token as the next one after a prompt, and of lists of replies to it.
A prompt has a form (`engine.text.cue`); its id in the run names the form where that is not the
plain one (`schema.prompt_in_form`).
"""

import functools
from collections.abc import Callable, Mapping, Sequence

from jax.sharding import Mesh

from engine.checkpoint.card import LANGUAGE, Checkpoint
from engine.checkpoint.restore import restore
from engine.errors import AssayError
from engine.runs import schema
from engine.scoring.language_passes import LanguageScorer
from engine.scoring.reward_passes import dtype_named
from engine.scoring.rows import ContinuationRows, NextTokenRows, Rows
from engine.settings import LogprobSettings
from engine.sweep import loop, setup
from engine.sweep.jobs import Job
from engine.sweep.outcomes import Ended
from engine.text.cue import Cue


def next_tokens(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    run: str,
    settings: LogprobSettings,
    mesh: Mesh,
    ended: Ended = lambda outcomes: None,
) -> int:
    """Log-probability of every token after every prompt, into `run/logprobs`.

    The softmax is over all rows of the embedding; those that no token has are not written.

    Args:
      checkpoints: language models.
      prompts: prompt id -> text.
      run: run folder, new or to be continued.
      settings: form, precision, parts.
      mesh: from `engine.mesh.build_mesh`.
      ended: called at the end with what became of each model.

    Returns:
      The number of log-probabilities that were computed; 0 if the run was complete.

    Raises:
      AssayError: bad input, the chat form of a model without a chat template, a result begun under
        another fingerprint, a number that is not finite, a self-check beyond tolerance.
      SomeFailed: some models failed; the others are complete.
    """
    by_form = _in_form(prompts, settings)
    manifest = setup.open_run(run, checkpoints, by_form, settings, mesh, LANGUAGE)

    def rows(checkpoint: Checkpoint, prompt: str) -> Rows:
        return NextTokenRows(cue(checkpoint, prompt, settings.form).prompt, checkpoint.token_ids)

    jobs = _jobs(checkpoints, by_form, settings, rows, schema.logprobs_path)
    load = functools.partial(_load, settings, mesh)
    return loop.run(manifest, jobs, load, settings, mesh, ended=ended)


def replies(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    name: str,
    texts: Sequence[str],
    run: str,
    settings: LogprobSettings,
    mesh: Mesh,
    ended: Ended = lambda outcomes: None,
) -> int:
    """Log-probability of each reply of a list, into `run/item_logprobs/<name>`; see `next_tokens`.

    It is the sum over the reply's tokens, each given the prompt and the tokens before it.
    """
    by_form = _in_form(prompts, settings)
    manifest = setup.open_run(run, checkpoints, by_form, settings, mesh, LANGUAGE)
    setup.admit_list(manifest, name, texts)

    def rows(checkpoint: Checkpoint, prompt: str) -> Rows:
        return ContinuationRows(cue(checkpoint, prompt, settings.form), texts)

    path = functools.partial(schema.item_logprobs_path, name)
    jobs = _jobs(checkpoints, by_form, settings, rows, path)
    load = functools.partial(_load, settings, mesh)
    return loop.run(manifest, jobs, load, settings, mesh, ended=ended)


def cue(checkpoint: Checkpoint, prompt: str, form: str) -> Cue:
    """A prompt as the checkpoint's tokenizer renders it in one of `engine.settings.FORMS`.

    Raises:
      AssayError: the chat form of a model without a chat template.
    """
    if form == "pretrained":
        return Cue.pretrained(checkpoint.tokenizer, prompt)
    if not checkpoint.tokenizer.chat_template:
        raise AssayError(
            f"form={form!r}: {checkpoint.card.slug} has no chat template; allowed: 'pretrained'"
        )
    return Cue.chat(checkpoint.template, prompt)


def _in_form(prompts: Mapping[str, str], settings: LogprobSettings) -> dict[str, str]:
    """Prompt id -> text; ids name the form."""
    return {schema.prompt_in_form(name, settings.form): text for name, text in prompts.items()}


def _jobs(
    checkpoints: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    settings: LogprobSettings,
    rows_of: Callable[[Checkpoint, str], Rows],
    path_of: Callable[[str, str], str],
) -> list[Job]:
    """A job for each model under each prompt.

    Args:
      checkpoints: the models.
      prompts: prompt id -> text.
      settings: of the run.
      rows_of: (model, prompt) -> what is scored.
      path_of: (slug, prompt id) -> folder of the parts.
    """
    return [
        Job(
            checkpoint=checkpoint,
            path=path_of(checkpoint.card.slug, prompt),
            rows=rows_of(checkpoint, text),
            fingerprint={"form": settings.form},
        )
        for checkpoint in checkpoints
        for prompt, text in prompts.items()
    ]


def _load(
    settings: LogprobSettings, mesh: Mesh, group: Sequence[Checkpoint], step_size: int
) -> LanguageScorer:
    restored = restore(group, mesh, dtype_named(settings.dtype))
    return LanguageScorer.build(*restored, mesh, step_size=step_size)
