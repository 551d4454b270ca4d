"""Log-probabilities (natural logarithms) under a language model, into a run folder.

There are two kinds: of every token as the next one after a prompt, and of lists of replies to it.
A prompt has a form (`engine.text.cue`); its id in the run names the form where that is not the
plain one (`schema.prompt_in_form`).
"""

import functools
from collections.abc import Callable, Mapping, Sequence

from jax.sharding import Mesh

from engine import mesh as meshes
from engine.checkpoint.card import LANGUAGE, Checkpoint
from engine.checkpoint.restore import restore
from engine.errors import AssayError
from engine.planning.admission import Place
from engine.runs import schema
from engine.runs.manifest import Manifest, items_hash
from engine.scoring.language_passes import LanguageScorer
from engine.scoring.reward_passes import dtype_named
from engine.scoring.rows import ContinuationRows, NextTokenRows, Rows
from engine.settings import LogprobSettings
from engine.sweep import loop, setup, steps
from engine.sweep.outcomes import Ended
from engine.sweep.results import Result
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
    named = _named(prompts, settings.form)
    manifest = setup.open_run(run, checkpoints, named, settings, mesh, LANGUAGE)
    setup.check_meshes(mesh, checkpoints)
    results, place = [], Place.of(mesh)
    for checkpoint in checkpoints:
        every: dict[str, Rows] = {
            prompt: NextTokenRows(cue(checkpoint, text, settings.form).prompt, checkpoint.token_ids)
            for prompt, text in named.items()
        }
        results += _admit(manifest, checkpoint, every, schema.logprobs_path, settings, mesh, place)
    refused = steps.refusals(results, settings, place)
    steps.advise(results, settings.part_size, place.data)
    vocabularies = setup.missing_vocabularies(manifest, checkpoints)
    setup.begin(manifest, vocabularies, results, settings.part_size)
    load = functools.partial(_load, settings, mesh, refused)
    return loop.run(manifest, results, load, settings, mesh, ended=ended)


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

    It is the sum over the reply's own tokens, each given the prompt and the tokens before it.
    """
    if not texts:
        raise AssayError(f"item list {name!r}: empty; allowed: at least one reply")
    schema.check_names([name])
    named = _named(prompts, settings.form)
    manifest = setup.open_run(run, checkpoints, named, settings, mesh, LANGUAGE)
    setup.admit(manifest, "lists", name, {"rows": len(texts), "items_hash": items_hash(texts)})
    setup.check_meshes(mesh, checkpoints)
    results, place = [], Place.of(mesh)
    path = functools.partial(schema.item_logprobs_path, name)
    for checkpoint in checkpoints:
        every: dict[str, Rows] = {
            prompt: ContinuationRows(cue(checkpoint, text, settings.form), texts)
            for prompt, text in named.items()
        }
        results += _admit(manifest, checkpoint, every, path, settings, mesh, place)
    refused = steps.refusals(results, settings, place)
    steps.advise(results, settings.part_size, place.data)
    setup.begin(manifest, {}, results, settings.part_size)
    load = functools.partial(_load, settings, mesh, refused)
    return loop.run(manifest, results, load, settings, mesh, ended=ended)


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


def _named(prompts: Mapping[str, str], form: str) -> dict[str, str]:
    return {schema.prompt_in_form(name, form): text for name, text in prompts.items()}


def _admit(
    manifest: Manifest,
    checkpoint: Checkpoint,
    rows: Mapping[str, Rows],
    path_of: Callable[[str, str], str],
    settings: LogprobSettings,
    mesh: Mesh,
    place: Place,
) -> list[Result]:
    """A model's results under every prompt (id -> rows); see `rewards._admit`."""
    paths = {prompt: path_of(checkpoint.card.slug, prompt) for prompt in rows}
    prompts = [each.prompt for each in rows.values()]
    listed = any(isinstance(each, ContinuationRows) for each in rows.values())
    step = steps.choose_step(
        manifest, [checkpoint], list(paths.values()), prompts, settings, place, listed=listed
    )
    return [
        setup.admit_result(
            manifest,
            checkpoint,
            paths[prompt],
            each,
            settings,
            mesh,
            step_size=step,
            form=settings.form,
        )
        for prompt, each in rows.items()
    ]


def _load(
    settings: LogprobSettings,
    mesh: Mesh,
    refused: Mapping[tuple[str, ...], str],
    group: Sequence[Checkpoint],
    step_size: int,
) -> LanguageScorer:
    for checkpoint in group:
        meshes.check_mesh(mesh, checkpoint.card.decoder)
    steps.check_refused(refused, group)
    restored = restore(group, mesh, dtype_named(settings.dtype))
    return LanguageScorer.build(*restored, mesh, step_size=step_size)
