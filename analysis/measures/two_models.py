"""Two models, or two states of one, as one run whose models are "before" and "after"."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.cache import Cache
from analysis.run import Run
from analysis.statistics import Array
from engine.errors import AssayError
from engine.runs.folder import check_conversions
from engine.runs.identity import Identity, to_json
from engine.runs.result import Result
from engine.runs.schema import CHAT, LOGPROBS_DIR

BEFORE, AFTER = "before", "after"
ADDED = 512  # ids that one of two vocabularies may lack: tokens were added to the other
# How a token was read: as an id or as text, and at the last id or before a pad.
_MODE, _POOLING = "mode", "pooling"
_FORM = "form"  # of a language model: whether the prompt was in its chat form
# Settings, in words.
_NAMED = ("bos", "date", "template_vars", "head", _MODE, _POOLING, _FORM, "dtype")
Record = Mapping[str, Any]  # Of a model in a run. Any: JSON of run.json.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """What is known of one model under one prompt, whether it has been scored or will be."""

    text: str  # Of the prompt.
    kind: str  # `schema.SCORES_DIR`, or `schema.LOGPROBS_DIR` of a language model.
    identity: Identity  # What its numbers mean.
    ids: Array  # Of the tokens, ascending.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a comparison, whether it has been scored or will be."""

    name: str  # As messages have it, such as `--before`.
    slug: str  # Of the model.
    record: Record  # Of the model.
    tokens: Mapping[int, str]  # Token id -> text, of the vocabulary.
    prompts: Mapping[str, Asked]  # Prompt id -> what is known of the model under it.


def side_of(run: Run, slug: str = "", name: str = f"--{BEFORE}") -> Side:
    """One model of a run as a side; `slug` may be "" for the only one of the run.

    Raises:
      AssayError: a run of several models, or of other ones.
    """
    slug = _only(run, slug, name)
    prompts = {}
    for prompt, result in scored(run, slug).items():
        ids, _ = run._cache.rewards(result, run.same_vocabulary(slug))
        text = run.prompts.get(prompt) or run.prompts[prompt + CHAT]
        known = Asked(text=text, kind=result.kind, identity=result.identity, ids=ids)
        prompts[prompt] = known
    table = run.vocabulary(slug).select("token_id", "token").collect()
    tokens, record = dict(table.iter_rows()), run._records[slug]
    return Side(name=name, slug=slug, record=record, tokens=tokens, prompts=prompts)


def matching(before: Side, after: Side, chosen: Sequence[str] = ()) -> list[str]:
    """The prompts under which two sides can be compared, in the order of the first.

    `chosen` are the ids that are wanted; none: all, and both sides must then have the same.

    Raises:
      AssayError: two vocabularies; a prompt that only one side has, or that has two texts; two
        modes or poolings of two models; two forms of a prompt; other tokens.
    """
    _check_vocabularies(before, after)
    shared = [prompt for prompt in before.prompts if prompt in after.prompts]
    for side in (before, after):
        missing = [prompt for prompt in chosen if prompt not in side.prompts]
        alone = [prompt for prompt in side.prompts if prompt not in shared] if not chosen else []
        if missing or alone:
            prompt = (missing or alone)[0]
            problem = f"{side.name} has no prompt" if missing else f"only {side.name} has"
            allowed = (
                f"--config.compared={','.join(shared)}" if shared else "runs that share a prompt"
            )
            raise AssayError(f"{problem} {prompt!r}; allowed: {allowed}")
    kept = [prompt for prompt in shared if not chosen or prompt in chosen]
    for prompt in kept:
        _check_prompt(prompt, before, after)
    return kept


def left_out(run: Run) -> str:
    """Which tokens only one model of `two_models` has, in words; "" where both have the same."""
    tables = {s: run.vocabulary(s).select("token_id", "token").collect() for s in (BEFORE, AFTER)}
    shared = shared_ids(run)
    for side, table in tables.items():
        alone = table.filter(~np.isin(table["token_id"].to_numpy(), shared))
        if alone.height:
            examples = ", ".join(f"{i} {token!r}" for i, token in alone.head(3).iter_rows())
            tokens = "1 token" if alone.height == 1 else f"{alone.height:,} tokens"
            more = ", …" if alone.height > 3 else ""
            return f"left out: {tokens} that only {side} has ({examples}{more})"
    return ""


def one_model(first: Record, second: Record) -> bool:
    """Whether two records are of the same weights, under the same settings of conversion or others.

    Imported scores name no weights, so they are never known to be of one model.
    """
    decoder = first.get("decoder_hash")
    if not decoder or decoder != second.get("decoder_hash"):
        return False
    kept = (("checkpoint_hash",), ("source", "revision"))  # a copied folder has another source
    return any(all(first.get(key) == second.get(key) for key in keys) for keys in kept)


def differs_in(run: Run) -> str:
    """Settings that the models of `two_models` do not share, as `bos=template/none, mode=ids/text`.

    The value before stands first. "" where all are the same, or one of the two models names none.
    """
    first, second = (run._records[side] for side in (BEFORE, AFTER))
    same_model = one_model(first, second)
    settings = _unequal(_policy(first), _policy(second))
    if same_model:
        settings += _unequal(first, second)  # URM's head
        settings += ["chat template"] * (first["vocab"] != second["vocab"])
        converted = first["checkpoint_hash"] != second["checkpoint_hash"]
        settings += ["another setting of conversion, or another head"] * (
            converted and not settings
        )
    for prompt in run.vocabulary_prompts:
        results = [to_json(run.results[side, prompt].identity) for side in (BEFORE, AFTER)]
        settings += _unequal(*({_POOLING: "last", **result} for result in results))
    if settings and not same_model:
        settings.insert(0, "model")
    return ", ".join(dict.fromkeys(settings))


def shared_ids(run: Run) -> Array:
    """The token ids that both models of `two_models` have, ascending; others are left out."""
    before, after = (run.vocabulary(s).select("token_id").collect() for s in (BEFORE, AFTER))
    return np.intersect1d(before.to_series().to_numpy(), after.to_series().to_numpy())


def language_models(run: Run) -> list[str]:
    """The sides of `two_models` whose numbers are log-probabilities of a language model."""
    kinds = {side: result.kind for (side, _), result in run.results.items()}
    return [side for side, kind in kinds.items() if kind == LOGPROBS_DIR]


def two_models(
    before: Run, after: Run, prompts: Sequence[str] = (), models: tuple[str, str] = ("", "")
) -> Run:
    """A run of the models "before" and "after", each of a run of its own.

    `models` are their slugs there, which may be equal; "": the only one. `prompts` are ids of those
    that are compared; by default all of both runs. One vocabulary may have up to `ADDED` tokens
    that the other lacks.

    Raises:
      AssayError: what `side_of` and `matching` refuse.
    """
    runs = {BEFORE: before, AFTER: after}
    sides = {
        side: side_of(run, slug, f"--{side}")
        for (side, run), slug in zip(runs.items(), models, strict=True)
    }
    check_conversions({side: run._records[sides[side].slug] for side, run in runs.items()})
    kept = matching(sides[BEFORE], sides[AFTER], prompts)
    slugs = {side: sides[side].slug for side in runs}
    results = {
        (side, prompt): dataclasses.replace(scored(run, slugs[side])[prompt], model=side)
        for side, run in runs.items()
        for prompt in kept
    }
    return dataclasses.replace(
        before,
        folders=tuple(dict.fromkeys((*before.folders, *after.folders))),
        models={
            side: {**run.models.get(slugs[side], {}), "slug": slugs[side]}
            for side, run in runs.items()
        },
        prompts={prompt: sides[BEFORE].prompts[prompt].text for prompt in kept},
        results=results,
        items={},
        logprobs={},
        item_logprobs={},
        conversations=_shared_lists(runs, slugs, {s: run.conversations for s, run in runs.items()}),
        probes=_shared_lists(runs, slugs, {s: run.probes for s, run in runs.items()}),
        searches={},
        _records={side: run._records[slugs[side]] for side, run in runs.items()},
        _runs={**before._runs, **after._runs},
        _vocabularies={side: run._vocabularies[slugs[side]] for side, run in runs.items()},
        _cache=Cache(),
    )


def _shared_lists(
    runs: Mapping[str, Run],
    slugs: Mapping[str, str],
    scored: Mapping[str, Mapping[tuple[str, str], Result]],
) -> dict[tuple[str, str], Result]:
    """(list, side) -> result, of the lists that both models scored among what was `scored`.

    Raises AssayError for a list that two models read in two modes.
    """
    same_model = one_model(*(run._records[slugs[side]] for side, run in runs.items()))
    lists = {
        side: {name: r for (name, model), r in results.items() if model == slugs[side]}
        for side, results in scored.items()
    }
    shared = sorted(set(lists[BEFORE]) & set(lists[AFTER]))
    for name in shared:
        modes = {side: results[name].identity.mode for side, results in lists.items()}
        if modes[BEFORE] != modes[AFTER] and not same_model:
            sides_and_modes = " and ".join(
                f"--{side} with mode={mode!r}" for side, mode in modes.items()
            )
            raise AssayError(f"list {name!r}: scored by {sides_and_modes}; allowed: the same mode")
    return {
        (name, side): dataclasses.replace(results[name], model=side)
        for side, results in lists.items()
        for name in shared
    }


def scored(run: Run, model: str) -> dict[str, Result]:
    """Prompt -> result over the vocabulary: rewards, or a language model's log-probabilities.

    A language model's prompt in its chat form goes by the prompt's own id, unless the run has the
    plain form too.
    """
    kinds = (run.logprobs, run.results)
    by_prompt = {p: r for results in kinds for (m, p), r in results.items() if m == model}
    plain = {prompt: prompt.removesuffix(CHAT) for prompt in by_prompt}
    return {p if plain[p] in by_prompt else plain[p]: result for p, result in by_prompt.items()}


def _only(run: Run, slug: str, name: str) -> str:
    rewarding = dict.fromkeys(model for model, _ in run.results)
    known = rewarding | dict.fromkeys(model for model, _ in run.logprobs)
    if not slug and len(rewarding) == 1:  # beside the language models that it is made of
        return next(iter(rewarding))
    if slug and known and slug not in known:
        raise AssayError(f"{name}_model={slug!r}; allowed: {', '.join(known)}")
    if not known or (not slug and len(known) != 1):
        holds = f"holds {', '.join(known)}" if known else "holds no scores of a vocabulary"
        allowed = f"name one by {name}_model" if known else "a run of assay sweep or logprobs"
        raise AssayError(f"{name}={run.folders[0]} {holds}; allowed: {allowed}")
    return slug or next(iter(known))


def _check_vocabularies(before: Side, after: Side) -> None:
    """Refuses two vocabularies that disagree on an id, or of which one has many more ids."""
    first, second = before.tokens, after.tokens
    differ = next((i for i, text in first.items() if second.get(i, text) != text), None)
    if differ is None and len(first.keys() ^ second.keys()) <= ADDED:
        return
    what = f"{len(first):,} and {len(second):,} tokens"
    if differ is not None:
        what += f"; token {differ} is {first[differ]!r} and {second[differ]!r}"
    raise AssayError(
        f"{before.name} ({before.slug}) and {after.name} ({after.slug}) have two vocabularies "
        f"({what}); allowed: two models with one tokenizer, of which one may have up to {ADDED} "
        "tokens that the other lacks"
    )


def _policy(record: Record) -> Record:
    """The template policy of a record, its date in words; empty for imported scores."""
    if not (policy := record.get("template")):
        return {}
    dates, date = {None: "template", "": "empty"}, policy.get("date")
    return {"template_vars": {}, **policy, "date": dates.get(date, date)}


def _unequal(first: Record, second: Record) -> list[str]:
    """`key=before/after` of each of `_NAMED` that both have and that differs."""
    return [
        f"{key}={first[key]}/{second[key]}"
        for key in _NAMED
        if key in first and key in second and first[key] != second[key]
    ]


def _as_their_classes(first: Asked, second: Asked) -> bool:
    """Whether two models are read where the class of each reads, if only one's pad closes turns."""
    kinds = {asked.identity.pooling for asked in (first, second)}
    hashes = {asked.identity.checkpoint_hash for asked in (first, second)}
    return len(hashes) > 1 and kinds <= {"last", "last_non_pad"}


def _check_prompt(prompt: str, before: Side, after: Side) -> None:
    """Refuses two texts of a prompt, what `matching` says of reading it, and other tokens."""
    first, second = before.prompts[prompt], after.prompts[prompt]
    same_model = one_model(before.record, after.record)
    for key in (_MODE, _POOLING, _FORM):
        pair = [getattr(asked.identity, key) for asked in (first, second)]
        if same_model and key != _FORM:  # the setting is what is compared
            continue
        if key == _POOLING and _as_their_classes(first, second):
            continue
        if key == _FORM and "" in pair:  # a reward model beside a pair of language models
            continue
        if first.kind == second.kind and pair[0] != pair[1]:
            raise AssayError(
                f"prompt {prompt!r}: {before.name} was swept with {key}={pair[0]!r}, {after.name} "
                f"with {pair[1]!r}; allowed: the same {key} (--config.{key}) of two models"
            )
    if first.text != second.text:
        raise AssayError(
            f"prompt {prompt!r} is {first.text!r} in {before.name} and {second.text!r} in "
            f"{after.name}; allowed: the same text"
        )
    shared = [i for i in before.tokens if i in after.tokens]
    ids = [asked.ids[np.isin(asked.ids, shared)] for asked in (first, second)]
    if not np.array_equal(ids[0], ids[1]):
        raise AssayError(
            f"prompt {prompt!r}: {before.name} and {after.name} scored other tokens; allowed: the "
            "same ones"
        )
