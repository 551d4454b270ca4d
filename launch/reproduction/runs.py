"""Which results a model has to have, which are complete, and whether they are what a call asks for.

A result that is complete is taken as it is, and the page says that it was computed as the call
asks. A command that computes compares the whole fingerprint; here the settings are compared that a
call names, so that nothing need be loaded.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence

from configs.known_models import ModelSpec
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.progress import progress
from engine.runs import provenance, reader, schema, storage
from engine.runs.manifest import items_hash
from engine.runs.reader import Json
from engine.settings import SearchSettings
from launch.common import scoring, searching
from launch.reproduction import singles, sources
from launch.reproduction.call import NOISE, OURS, PAPER, Call, Stage
from launch.reproduction.conventions import card_of, mode_of
from launch.reproduction.elo import check_people

Place = tuple[str, str]  # a run below <root>/runs, and the path of a result in it
_SEARCHED = "greatest"  # the prompt of the search, as in the paper


def wanted(
    call: Call, spec: ModelSpec, stage: str, only: Sequence[str] | None = None
) -> list[Place]:
    """The results of a stage for a model, over all runs or `only` some.

    The noise has none where the paper's run has the model in the second dtype already.
    """
    slug, names = spec.slug, list(call.runs if only is None else only)
    if stage in (Stage.SWEEP, Stage.ITEMS) and NOISE in names and has_no_noise(call, spec):
        names.remove(NOISE)
    if stage == Stage.SWEEP:
        return [(one, schema.scores_path(slug, prompt)) for one in names for prompt in call.prompts]
    if stage == Stage.ITEMS and call.elo is not None:
        path = schema.items_path(call.elo.name, slug, call.item_prompt[0])
        return [(one, path) for one in names]
    if stage == Stage.LOGPROBS:
        prompts = [schema.prompt_in_form(prompt, form_of(spec)) for prompt in call.prompts]
        return [(PAPER, schema.logprobs_path(slug, prompt)) for prompt in prompts]
    if stage == Stage.SEARCH:
        search, prompt = call.config.search, next(iter(search_prompts(call)), "")
        both = ("max", "min") if search.direction == "both" else (search.direction,)
        return [
            (PAPER, schema.sequences_path(slug, prompt, direction, search.method, search.seed))
            for direction in both
        ]
    return singles.places(call, spec) if stage == Stage.READINGS else []


def has_no_noise(call: Call, spec: ModelSpec) -> bool:
    """Whether a model's rewards of the paper's run are in the second dtype: nothing would differ.

    On an accelerator the default dtype is the model's own, so this is known when they are begun.
    """
    records = manifests(call, [PAPER]).get(PAPER, {"results": {}})["results"].items()
    kinds = (schema.SCORES_DIR, schema.ITEMS_DIR)
    of_model = [r for p, r in records if p.startswith(kinds) and f"model={spec.slug}/" in p]
    return any(r["fingerprint"].get("dtype") == call.config.second_dtype for r in of_model)


def incomplete(call: Call, spec: ModelSpec) -> list[str]:
    """The stages, of those of the whole command, whose results a model lacks."""
    there = complete(call)
    return [
        stage
        for stage in call.all_stages_of(spec)
        if not there.issuperset(wanted(call, spec, stage))
        or (stage == Stage.READINGS and singles.done(call, spec) is None)
    ]


def complete(call: Call) -> set[Place]:
    """The results that are complete in the runs of the root, whatever their settings."""
    return {
        (one, path)
        for one, content in manifests(call).items()
        for path, record in content["results"].items()
        if record.get("complete")
    }


def manifests(call: Call, names: Sequence[str] = ()) -> dict[str, Json]:
    """Run -> its manifest, of all runs and single changes, or of some.

    Raises:
      RunError: a manifest that cannot be read.
    """
    inside = storage.names(storage.path_of(call.run(singles.run_of("."))))
    names = names or (PAPER, OURS, NOISE, *map(singles.run_of, inside))
    paths = {one: storage.path_of(call.run(one)) / schema.MANIFEST for one in names}
    return {one: reader.read_json(path) for one, path in paths.items() if storage.exists(path)}


def search_prompts(call: Call) -> Mapping[str, str]:
    """The prompt that searches answer: "greatest", or the first of the call."""
    named = call.prompts.get(_SEARCHED)
    return {_SEARCHED: named} if named else dict(list(call.prompts.items())[:1])


def form_of(spec: ModelSpec) -> str:
    """How a language model reads a prompt: instruction-tuned ones in their template."""
    return "chat" if spec.slug.endswith("-it") else "pretrained"


def check_settings(call: Call, *, weights: bool) -> None:
    """Refuses a call whose settings are not those of the complete results that it takes.

    Args:
      call: the call.
      weights: whether the folders of --source-dir are compared too, which may read all their bytes.

    Raises:
      AssayError: a result was begun with other settings, other items or other weights.
      RunError: a manifest that cannot be read.
    """
    contents, taken = manifests(call), []
    for spec in call.models:
        checkpoint = None
        for stage in _stages(call, spec):
            for run, path in wanted(call, spec, stage):
                record = contents.get(run, {"results": {}})["results"].get(path, {})
                if not record.get("complete"):
                    continue
                if not taken or taken[-1][0] is not spec:
                    checkpoint = sources.present(call, spec)
                taken.append((spec, run, path))
                _check_fingerprint(call, stage, run, path, record["fingerprint"])
                _check_hash(call, run, path, record["fingerprint"], checkpoint)
    items = f"{schema.ITEMS_DIR}/{call.elo.name}/" if call.elo else None
    for run in dict.fromkeys(run for _, run, path in taken if items and path.startswith(items)):
        _check_items(call, run, contents[run])
    specs = {spec.slug: spec for spec, *_ in taken if weights and sources.folder_of(call, spec)}
    with progress(len(specs), "models", what="comparing with --source-dir", delay_s=5) as bar:
        for spec in specs.values():
            sources.check_folder(call, spec)
            bar.update()


def _stages(call: Call, spec: ModelSpec) -> list[str]:
    """The stages whose results are taken: of a page all, of single changes those they start from.

    What --keep=none removes depends on all of them too, and on nothing that they hold.
    """
    more = (Stage.SWEEP, Stage.ITEMS) if Stage.READINGS in call.stages else ()
    every = call.all_stages_of(spec)
    return every if Stage.PAGE in call.stages else [s for s in every if s in (*call.stages, *more)]


def _check_fingerprint(call: Call, stage: str, run: str, path: str, fingerprint: Json) -> None:
    expected = json.loads(
        json.dumps(_expected(call, stage, run, fingerprint))
    )  # as it is read back
    names = set(expected)
    if stage == Stage.SEARCH:  # settings at their default may be left out of either
        names |= {field.name for field in dataclasses.fields(SearchSettings)} - {"dtype"}
    has = {name: value for name, value in fingerprint.items() if name in names}
    if has != expected:
        raise AssayError(
            f"run {call.run(run)}: {path} was begun with {provenance.changes(has, expected)}; "
            "allowed: the settings that it was begun with, or another --root"
        )


def _expected(call: Call, stage: str, run: str, fingerprint: Json) -> Json:
    """What the fingerprint of a result has to hold, as far as the call says.

    `auto` is what the result has: a page of a GPU's results may be made on a CPU.
    """
    config = call.config
    if stage == Stage.SEARCH:
        # Settings without a dtype do not exist; that of `auto` is left out again.
        auto = config.search.dtype == "auto"
        settings = searching.in_dtype(config.search, "float32" if auto else config.search.dtype)
        search: Json = settings.fingerprint(str(fingerprint["direction"]))
        return {k: v for k, v in search.items() if k != "dtype"} if auto else search
    named: Json = {"dtype": config.second_dtype if run == NOISE else config.dtype}
    if stage == Stage.READINGS:
        named = {"dtype": singles.dtype_in(run) or config.dtype}
    else:
        named["step_size"] = scoring.step_size(config.step_size) or "auto"
    if stage in (Stage.SWEEP, Stage.ITEMS):
        named["mode"] = mode_of(run, listed=stage == Stage.ITEMS)
    return {name: value for name, value in named.items() if value != "auto"}


def _check_items(call: Call, run: str, manifest: Json) -> None:
    assert call.elo is not None
    name = call.elo.name
    has = manifest["lists"].get(name, {})
    expected = {"rows": len(call.elo.replies), "items_hash": items_hash(call.elo.replies)}
    if has != expected:
        raise AssayError(
            f"--elo: run {call.run(run)} has the list {name!r} with "
            f"{provenance.changes(has, expected)}; "
            "allowed: the items that it was begun with, another file name, or another --root"
        )
    check_people(call.run(run), call.elo)


def _check_hash(
    call: Call, run: str, path: str, fingerprint: Json, there: Checkpoint | None
) -> None:
    """Refuses a checkpoint below the root that is not the one that a result was computed with.

    A damaged checkpoint is refused where it is needed.
    """
    if there is None or run not in call.runs:  # single changes have checkpoint hashes of their own
        return
    expected = card_of(run, there.card).checkpoint_hash
    has = fingerprint.get("checkpoint_hash")
    if has != expected:
        raise AssayError(
            f"run {call.run(run)}: {path} was begun with checkpoint_hash={has!r}, not "
            f"{expected!r} of checkpoint {there.path}; allowed: the model that it was begun with, "
            "or another --root"
        )
