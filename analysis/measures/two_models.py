"""Two models, or two states of one, as one run whose models are "before" and "after"."""

import dataclasses
from collections.abc import Sequence

from analysis.cache import Cache
from analysis.run import Run
from engine.errors import AssayError
from engine.runs.reader import Result
from engine.runs.schema import CHAT

BEFORE, AFTER = "before", "after"


def two_models(
    before: Run, after: Run, prompts: Sequence[str] = (), models: tuple[str, str] = ("", "")
) -> Run:
    """A run of the models "before" and "after": each is the one model of a run.

    Args:
      before: the run of the first model.
      after: the run of the second; both models may have one slug.
      prompts: ids of prompts that are compared; by default all of both runs.
      models: slug of the model in each run; "": its only one.

    Raises:
      AssayError: a run of several models, or other ones; two vocabularies; a prompt that only one
        run has, or that has two texts.
    """
    sides = {BEFORE: (before, models[0]), AFTER: (after, models[1])}
    named = {side: _only(run, slug, side) for side, (run, slug) in sides.items()}
    _check_vocabularies(before, after, named)
    kept = _prompts(before, after, named, prompts)
    results: dict[tuple[str, str], Result] = {}
    for side, (run, _) in sides.items():
        for prompt in kept:
            result = _scored(run, named[side])[prompt]
            results[side, prompt] = dataclasses.replace(result, model=side)
    return dataclasses.replace(
        before,
        folders=tuple(dict.fromkeys((*before.folders, *after.folders))),
        models={side: run.models.get(named[side], {}) for side, (run, _) in sides.items()},
        prompts={prompt: before.prompts.get(prompt) or after.prompts[prompt] for prompt in kept},
        results=results,
        items={},
        logprobs={},
        item_logprobs={},
        searches={},
        _records={side: run._records[named[side]] for side, (run, _) in sides.items()},
        _vocabularies={side: run._vocabularies[named[side]] for side, (run, _) in sides.items()},
        _cache=Cache(),
    )


def _scored(run: Run, model: str) -> dict[str, Result]:
    """Prompt -> result over the vocabulary: rewards, or a language model's log-probabilities.

    The chat form of a language model's prompt stands for the prompt where that is its only form.
    """
    kinds = (run.logprobs, run.results)
    found = [(p, r) for results in kinds for (m, p), r in results.items() if m == model]
    chat = {p.removesuffix(CHAT): r for p, r in found if p.endswith(CHAT)}
    return chat | {p: r for p, r in found if not p.endswith(CHAT)}


def _only(run: Run, slug: str, side: str) -> str:
    there = dict.fromkeys(model for model, _ in (*run.results, *run.logprobs))
    if slug and slug not in there:
        raise AssayError(f"--{side}_model={slug!r}; allowed: {', '.join(there)}")
    if not slug and len(there) != 1:
        found = f"holds {', '.join(there)}" if there else "holds no scores of a vocabulary"
        allowed = f"name one by --{side}_model" if there else "a run of assay sweep or logprobs"
        raise AssayError(f"--{side}={run.folders[0]} {found}; allowed: {allowed}")
    return slug or next(iter(there))


def _check_vocabularies(before: Run, after: Run, named: dict[str, str]) -> None:
    first, second = (
        run.vocabulary(named[side]).select("token_id", "token").collect()
        for side, run in ((BEFORE, before), (AFTER, after))
    )
    if not first.equals(second):
        sizes = f"{first.height:,} and {second.height:,} tokens"
        raise AssayError(
            f"--before={named[BEFORE]} and --after={named[AFTER]} have two vocabularies ({sizes}); "
            "allowed: two models with one tokenizer"
        )


def _check_modes(first: Result, second: Result) -> None:
    """Refuses two readings of a token: as an id or as text, at the last id or before a pad."""
    for key in ("mode", "pooling"):
        both = [result.fingerprint.get(key) for result in (first, second)]
        if first.kind == second.kind and both[0] != both[1]:
            raise AssayError(
                f"prompt {first.prompt!r}: --before was swept with {key}={both[0]!r}, --after with "
                f"{both[1]!r}; allowed: the same {key}"
            )


def _prompts(before: Run, after: Run, named: dict[str, str], chosen: Sequence[str]) -> list[str]:
    """The prompts to compare, in the order of the first run."""
    asked = {BEFORE: _scored(before, named[BEFORE]), AFTER: _scored(after, named[AFTER])}
    both = [prompt for prompt in asked[BEFORE] if prompt in asked[AFTER]]
    for side, own in asked.items():
        missing = [prompt for prompt in chosen if prompt not in own]
        alone = [prompt for prompt in own if prompt not in both] if not chosen else []
        if missing or alone:
            name = (missing or alone)[0]
            said = f"--{side} has no prompt {name!r}" if missing else f"only --{side} has {name!r}"
            allowed = f"--config.compared={','.join(both)}" if both else "runs under one prompt"
            raise AssayError(f"{said}; allowed: {allowed}")
    kept = [prompt for prompt in both if not chosen or prompt in chosen]
    for prompt in kept:
        _check_modes(asked[BEFORE][prompt], asked[AFTER][prompt])
        texts = [run.prompts.get(prompt) or run.prompts[prompt + CHAT] for run in (before, after)]
        if texts[0] != texts[1]:
            raise AssayError(
                f"prompt {prompt!r} is {texts[0]!r} in --before and {texts[1]!r} in --after; "
                "allowed: the same text"
            )
    return kept
