"""A run with one convention changed: what the readings below it give for the same values."""

import dataclasses
from collections.abc import Iterator

from analysis.measures.readings import Readings, label, readings_of
from analysis.run import Run
from engine.runs.convention_index import DEFAULT, Entry


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """A reading that differs from that of the run in one convention.

    Attributes:
      name: for readers: `bos none`.
      run: the run, with the results of the reading for the models that have it.
      tried: slug and prompt id of what was computed so.
    """

    name: str
    run: Run
    tried: frozenset[tuple[str, str]]


def changes(run: Run) -> list[Change]:
    """The readings of a run that change one convention, in the order they were computed.

    A model of which a reading was not computed keeps the results of the run. A reading that gives
    the token ids of another one has its results; one that gives those of the run changes nothing.

    Raises:
      RunError: as `analysis.load`.
    """
    found = readings_of(run)
    if found is None:
        return []
    names = dict.fromkeys(name for own in found.index.values() for name in own)
    every = (_change(run, found, name) for name in names if name != DEFAULT)
    return [one for one in every if one.tried]


def of_model(run: Run, slug: str) -> Run:
    """A run with the results of one model alone."""
    return dataclasses.replace(
        run,
        models={name: record for name, record in run.models.items() if name == slug},
        results={key: r for key, r in run.results.items() if key[0] == slug},
        items={key: r for key, r in run.items.items() if key[1] == slug},
        logprobs={key: r for key, r in run.logprobs.items() if key[0] == slug},
        item_logprobs={key: r for key, r in run.item_logprobs.items() if key[1] == slug},
        searches={},
    )


def _change(run: Run, found: Readings, name: str) -> Change:
    results, items, said = dict(run.results), dict(run.items), ""
    tried: set[tuple[str, str]] = set()
    for slug, source, entry in _models(found, name):
        said = said or label(entry, found.index[slug][DEFAULT])
        own = source.results.items()
        listed = source.items.items()
        of_tokens = {key: r for key, r in own if key[0] == slug and key in results}
        of_items = {key: r for key, r in listed if key[1] == slug and key in items}
        tried |= {*of_tokens, *((model, prompt) for _, model, prompt in of_items)}
        results |= of_tokens
        items |= of_items
    changed = dataclasses.replace(run, results=results, items=items)
    return Change(name=said, run=changed, tried=frozenset(tried))


def _models(found: Readings, name: str) -> Iterator[tuple[str, Run, Entry]]:
    """Models of which a reading is finished, the run that has its results, and its entry."""
    for slug, own in found.index.items():
        entry = own.get(name)
        if entry is None or entry.noise or entry.same_as == DEFAULT:
            continue
        source = found.runs.get(entry.same_as or name)
        if source is not None and slug in source.models:
            yield slug, source, entry
