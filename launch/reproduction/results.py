"""Which results a model has to have, and which of them are complete in the runs."""

from collections.abc import Mapping, Sequence

from configs.known_models import ModelSpec
from engine.runs import reader, schema, storage
from engine.runs.reader import Json
from launch.reproduction import trials
from launch.reproduction.asked import ITEMS, LOGPROBS, READINGS, SEARCH, SWEEP, Asked
from launch.reproduction.readings import NOISE, OURS, PAPER, Reading

Place = tuple[str, str]  # a reading's id, and the path of a result in its run
_SEARCHED = "greatest"  # the prompt of the search, as in the paper


def wanted(asked: Asked, spec: ModelSpec, stage: str, readings: Sequence[Reading]) -> list[Place]:
    """The results of a stage for a model, over all readings.

    The noise has none where the paper's run has the model in the second dtype already.
    """
    slug, ids = spec.slug, [reading.id for reading in readings]
    if stage in (SWEEP, ITEMS) and NOISE in ids and has_no_noise(asked, spec):
        ids.remove(NOISE)
    if stage == SWEEP:
        return [(one, schema.scores_path(slug, prompt)) for one in ids for prompt in asked.prompts]
    if stage == ITEMS and asked.elo is not None:
        prompt = asked.item_prompt[0]
        return [(one, schema.items_path(asked.elo.name, slug, prompt)) for one in ids]
    if stage == LOGPROBS:
        forms = {prompt: schema.prompt_in_form(prompt, form_of(spec)) for prompt in asked.prompts}
        return [(PAPER, schema.logprobs_path(slug, prompt)) for prompt in forms.values()]
    if stage == SEARCH:
        own, prompt = asked.config.search, next(iter(search_prompts(asked)), "")
        directions = ("max", "min") if own.direction == "both" else (own.direction,)
        return [
            (PAPER, schema.sequences_path(slug, prompt, d, own.method, own.seed))
            for d in directions
        ]
    return trials.places(asked, spec) if stage == READINGS else []


def has_no_noise(asked: Asked, spec: ModelSpec) -> bool:
    """Whether a model's rewards of the paper's run are in the second dtype: nothing would differ.

    On an accelerator the default dtype is the model's own, so this is known when they are begun.

    Raises:
      RunError: a manifest that cannot be read.
    """
    begun = manifests(asked, [PAPER]).get(PAPER, {"results": {}})["results"].items()
    kinds = (schema.SCORES_DIR, schema.ITEMS_DIR)
    own = [r for path, r in begun if path.startswith(kinds) and f"model={spec.slug}/" in path]
    return any(r["fingerprint"].get("dtype") == asked.config.second_dtype for r in own)


def incomplete(asked: Asked, spec: ModelSpec, readings: Sequence[Reading]) -> list[str]:
    """The stages, of those of the whole command, whose results a model lacks.

    Raises:
      RunError: a manifest that cannot be read.
    """
    there = complete(asked)
    return [
        stage
        for stage in asked.all_stages_of(spec)
        if any(place not in there for place in wanted(asked, spec, stage, readings))
        or (stage == READINGS and trials.done(asked, spec) is None)
    ]


def search_prompts(asked: Asked) -> Mapping[str, str]:
    """The prompt that searches answer: "greatest", or the first that is asked."""
    named = asked.prompts.get(_SEARCHED)
    return {_SEARCHED: named} if named else dict(list(asked.prompts.items())[:1])


def form_of(spec: ModelSpec) -> str:
    """How a language model reads a prompt: instruction-tuned ones in their template."""
    return "chat" if spec.slug.endswith("-it") else "pretrained"


def complete(asked: Asked) -> set[Place]:
    """The results that are complete in the runs of the root.

    They may have been begun with other settings than those of this call (`begun.check`).

    Raises:
      RunError: a manifest that cannot be read.
    """
    return {
        (one, path)
        for one, content in manifests(asked).items()
        for path, record in content["results"].items()
        if record.get("complete")
    }


def manifests(asked: Asked, folders: Sequence[str] = ()) -> dict[str, Json]:
    """A reading's id, or the folder of a single change, -> the manifest of its run.

    Args:
      asked: the call.
      folders: those that are read; none: all.

    Raises:
      RunError: a manifest that cannot be read.
    """
    inside = storage.names(storage.path_of(asked.run(trials.folder("."))))
    folders = folders or (PAPER, OURS, NOISE, *map(trials.folder, inside))
    paths = {one: storage.path_of(asked.run(one)) / schema.MANIFEST for one in folders}
    return {one: reader.read_json(path) for one, path in paths.items() if storage.exists(path)}
