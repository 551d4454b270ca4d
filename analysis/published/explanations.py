"""Which single convention explains what differs: by model, over the values of that model alone."""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

from analysis.published.records import Compared
from analysis.published.verdicts import DIFFERS, SAME, Verdict


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation:
    """A reading that changes one of the paper's conventions, for one model.

    Attributes:
      model: nickname.
      change: name of the reading.
      differing: published values that differ in the paper's conventions, and were tried.
      met: of them, those that it gives.
      same: published values that are the same in the paper's conventions, and were tried.
      kept: of them, those that it gives too.
    """

    model: str
    change: str
    differing: int
    met: int
    same: int
    kept: int


def explanations(compared: Sequence[Compared]) -> list[Explanation]:
    """The readings that were tried, by model in the paper's order, that which meets most first.

    Values of several models are left out: a change of one of them is none of the other. So are
    those over the vocabulary that all scored models share, which differs where a model lacks.
    """
    found: dict[tuple[str, str], list[tuple[Verdict, bool]]] = {}
    for model, verdict in _verdicts(compared):
        for change in verdict.tried:
            found.setdefault((model, change), []).append((verdict, change in verdict.met))
    every = [_explanation(*key, own) for key, own in found.items()]
    models = list(dict.fromkeys(line.model for one in compared for line in one.lines))  # Table 1's
    return sorted(every, key=lambda one: (models.index(one.model), -one.met, -one.kept))


def unexplained(every: Iterable[Explanation]) -> list[str]:
    """A sentence for each model that none of its readings gives a differing value of."""
    sentences = []
    for model, group in itertools.groupby(every, key=lambda one: one.model):
        own = [one for one in group if one.differing]  # the others were tried where nothing differs
        if own and not any(one.met for one in own):
            tried = f"none of the {len(own)} changes gives"
            if len(own) == 1:
                tried = f"the change {own[0].change} does not give"
            sentences.append(
                f"{model}: {tried} any of the {max(one.differing for one in own)} values that "
                "differ. Another reason has to be looked for."
            )
    return sentences


def alike(compared: Sequence[Compared]) -> set[str]:
    """Models with a value that is the published one, and none that differs: as in the table."""
    kinds: dict[str, set[str]] = {}
    for model, verdict in _verdicts(compared):
        kinds.setdefault(model, set()).add(verdict.kind)
    return {model for model, own in kinds.items() if SAME in own and DIFFERS not in own}


def _verdicts(compared: Sequence[Compared]) -> Iterable[tuple[str, Verdict]]:
    for one in (each for each in compared if not each.exhibit.of_shared):
        yield from ((line.model, line.verdict) for line in one.lines if line.model and line.counted)
        yield from ((each.model, each.verdict) for each in one.lists if each.verdict)


def _explanation(model: str, change: str, own: list[tuple[Verdict, bool]]) -> Explanation:
    met = {kind: [met for verdict, met in own if verdict.kind == kind] for kind in (DIFFERS, SAME)}
    return Explanation(
        model=model,
        change=change,
        differing=len(met[DIFFERS]),
        met=sum(met[DIFFERS]),
        same=len(met[SAME]),
        kept=sum(met[SAME]),
    )
