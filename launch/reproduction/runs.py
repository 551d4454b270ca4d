"""Which results a model has to have, which are complete, and whether a call may take them.

A complete result is taken as it is, and the page says that it was computed as the call asks. A
command that computes compares the whole fingerprint; here the settings are compared that a call
names, so that nothing need be loaded.
"""

import json
from collections.abc import Mapping

from configs.known_models import ModelSpec
from engine.errors import AssayError
from engine.runs import provenance, reader, schema, storage
from engine.runs.manifest import Manifest
from engine.runs.reader import Json
from engine.settings import AUTO
from engine.sweep import setup
from launch.common import scoring, searching
from launch.reproduction import readings
from launch.reproduction.call import NOISE, OURS, PAPER, Call, Stage, check_people

RunPath = tuple[str, str]  # a run below <root>/runs, and the path of a result in it
_SEARCHED = "greatest"  # the prompt of the search, as in the paper


def wanted(call: Call, spec: ModelSpec, stage: str) -> list[RunPath]:
    """The results of a stage for a model, over all runs.

    Of the stage `readings` none are known before it is complete.
    """
    slug, prompts = spec.slug, call.prompts
    if stage == Stage.SWEEP:
        return [(run, schema.scores_path(slug, prompt)) for run in call.runs for prompt in prompts]
    if stage == Stage.ITEMS and call.elo is not None:
        path = schema.items_path(call.elo.name, slug, call.item_prompt[0])
        return [(run, path) for run in call.runs]
    if stage == Stage.LOGPROBS:
        named = [schema.prompt_in_form(prompt, form_of(spec)) for prompt in prompts]
        return [(PAPER, schema.logprobs_path(slug, prompt)) for prompt in named]
    if stage == Stage.SEARCH:
        search, prompt = call.config.search, next(iter(search_prompts(call)), "")
        both = ("max", "min") if search.direction == "both" else (search.direction,)
        return [
            (PAPER, schema.sequences_path(slug, prompt, direction, search.method, search.seed))
            for direction in both
        ]
    tried = readings.done(call, spec) if stage == Stage.READINGS else None
    return [] if tried is None else [(run, path) for run, path in tried.places]


def incomplete(call: Call, spec: ModelSpec) -> list[str]:
    """The stages, of those of the whole command, whose results a model lacks."""
    there = complete(call)
    return [
        stage
        for stage in call.all_stages_of(spec)
        if not there.issuperset(wanted(call, spec, stage))
        or (stage == Stage.READINGS and readings.done(call, spec) is None)
    ]


def lacking(call: Call, spec: ModelSpec, stage: str) -> list[str]:
    """The runs that lack a result of a stage."""
    there = complete(call)
    return list(dict.fromkeys(p[0] for p in wanted(call, spec, stage) if p not in there))


def complete(call: Call) -> set[RunPath]:
    """The results that are complete in the runs of the root, whatever their settings."""
    return {
        (one, path)
        for one, content in manifests(call).items()
        for path, record in content["results"].items()
        if record.get("complete")
    }


def manifests(call: Call) -> dict[str, Json]:
    """Run -> its manifest, of all runs and single changes that have one."""
    inside = storage.names(storage.path_of(call.run(readings.run_of("."))))
    names = (PAPER, OURS, NOISE, *map(readings.run_of, inside))
    paths = {one: storage.path_of(call.run(one)) / schema.MANIFEST for one in names}
    return {one: reader.read_json(path) for one, path in paths.items() if storage.exists(path)}


def search_prompts(call: Call) -> Mapping[str, str]:
    """The prompt that searches answer: "greatest", or the first of the call."""
    named = call.prompts.get(_SEARCHED)
    return {_SEARCHED: named} if named else dict(list(call.prompts.items())[:1])


def form_of(spec: ModelSpec) -> str:
    """How a language model reads a prompt: instruction-tuned ones in their template."""
    return "chat" if spec.slug.endswith("-it") else "pretrained"


def check_settings(call: Call) -> None:
    """Refuses a call whose settings are not those of the complete results that it takes.

    Raises:
      AssayError: a result was computed with other settings, or of other items.
      RunError: a manifest that cannot be read.
    """
    contents, there = manifests(call), complete(call)
    for spec in call.models:
        for stage in call.all_stages_of(spec):
            for run, path in [place for place in wanted(call, spec, stage) if place in there]:
                fingerprint = contents[run]["results"][path]["fingerprint"]
                expected = _expected(call, stage, run, fingerprint)
                names = {*expected, "merge"}  # a search's `merge` is left out at its default
                has = {name: value for name, value in fingerprint.items() if name in names}
                if has != expected:
                    raise AssayError(
                        f"run {call.run(run)}: {path} was begun with "
                        f"{provenance.changes(has, expected)}; allowed: the settings that it was "
                        "begun with, or another --root"
                    )
    if call.elo is not None:
        for folder in map(call.run, call.runs):
            setup.admit_list(Manifest.open(folder), call.elo.name, call.elo.replies)
            check_people(folder, call.elo)


def _expected(call: Call, stage: str, run: str, has: Json) -> Json:
    """What the fingerprint of a result has to hold, as far as the call says.

    `auto` is what the result has: a page of a GPU's results may be made on a CPU.
    """
    config = call.config
    named: Json = {}
    if stage == Stage.SEARCH:
        dtype = has["dtype"] if config.search.dtype == AUTO else config.search.dtype
        settings = searching.in_dtype(config.search, dtype)
        named = settings.fingerprint(str(has["direction"]))
    elif stage != Stage.READINGS:  # which have the dtype and the steps of the paper's run
        dtype = config.second_dtype if run == NOISE else config.dtype
        named = {"dtype": dtype, "step_size": scoring.step_size(config.step_size) or AUTO}
    named = {name: value for name, value in named.items() if value != AUTO}
    read: Json = json.loads(json.dumps(named))  # as a fingerprint is read back
    return read
