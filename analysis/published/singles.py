"""A run with one convention changed: what the readings below it give for the same values."""

import dataclasses
from collections.abc import Iterator

from analysis.measures.readings import label, readings_of
from analysis.run import Run
from engine.runs.convention_index import DEFAULT


def changes(run: Run) -> Iterator[tuple[str, Run, frozenset[tuple[str, str]]]]:
    """The readings of a run that change one convention, in the order they were computed.

    A model of which a reading was not computed keeps the results of the run. A reading that gives
    the token ids of another one has its results; one that gives those of the run changes nothing.

    Yields:
      The name of the change for readers, such as `bos none`; the run with the results of the
      reading for the models that have it; slug and prompt id of what was computed so.

    Raises:
      RunError: as `analysis.load`.
    """
    readings = readings_of(run)
    if readings is None:
        return
    for name in dict.fromkeys(name for entries in readings.index.values() for name in entries):
        results, items, said = {}, {}, ""
        for slug, entries in readings.index.items():
            entry = entries.get(name)
            if name == DEFAULT or entry is None or entry.noise or entry.same_as == DEFAULT:
                continue
            source = readings.runs.get(entry.same_as or name)
            if source is not None and slug in source.models:
                said = said or label(entry, entries[DEFAULT])
                results |= {k: r for k, r in source.results.items() if k[0] == slug}
                items |= {k: r for k, r in source.items.items() if k[1] == slug}
        results = {key: r for key, r in results.items() if key in run.results}
        items = {key: r for key, r in items.items() if key in run.items}
        tried = frozenset([*results, *((model, prompt) for _, model, prompt in items)])
        if tried:
            results, items = {**run.results, **results}, {**run.items, **items}
            yield said, dataclasses.replace(run, results=results, items=items), tried


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
