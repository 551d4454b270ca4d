"""What a comparison consists of: numbers and lists beside the published ones, by exhibit."""

import collections
import dataclasses
from collections.abc import Iterable, Sequence

from analysis.published import verdicts
from analysis.published.exhibits import Exhibit
from analysis.published.run_values import RunValues
from analysis.published.verdicts import Verdict


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """A published number beside a run's.

    Attributes:
      of: what it is of: a model, two models, an item.
      model: nickname of the one model that it is of; "" where it is of several.
      quantity: what is measured, and under which prompt where there are several.
      published: as it is printed.
      computed: the run's number in the paper's conventions; None where there is none.
      ours: the same in our conventions.
      difference: computed less published.
      verdict: of the paper's conventions.
      source: of the published number.
      counted: whether the totals count it; not where any run would have that verdict.
    """

    of: str
    model: str
    quantity: str
    published: str
    computed: float | str | None
    ours: float | str | None
    difference: float | None
    verdict: Verdict
    source: str
    counted: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenList:
    """One end of a model's ranking, published and of a run.

    Attributes:
      model: nickname.
      end: `top` or `bottom`.
      published: tokens, the extreme first; none where the published list is not at hand.
      computed: those in the paper's conventions.
      ours: those in our conventions.
      common: published tokens among as many of the run's.
      at_rank: those that have the same rank.
      verdict: None where nothing is published.
      source: of the published list.
    """

    model: str
    end: str
    published: Sequence[str]
    computed: Sequence[str]
    ours: Sequence[str]
    common: int
    at_rank: int
    verdict: Verdict | None
    source: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared:
    """A table or figure of the paper, compared.

    Attributes:
      exhibit: which.
      lines: its numbers.
      lists: its lists of tokens.
      remarks: what a reader has to know of this comparison.
      shown: a table of the run, where nothing is published digit by digit; its header comes first.
      missing: why the run has nothing of it; "" where it has.
    """

    exhibit: Exhibit
    lines: Sequence[Line]
    lists: Sequence[TokenList]
    remarks: Sequence[str]
    shown: Sequence[Sequence[str]] = ()
    missing: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """Kind of verdict -> how many values that are counted have it."""
        found = [line.verdict.kind for line in self.lines if line.counted]
        found += [one.verdict.kind for one in self.lists if one.verdict]
        counted = collections.Counter(found)
        return {kind: counted[kind] for kind in verdicts.KINDS}

    @property
    def uncounted(self) -> int:
        """Values whose verdict says nothing of the run."""
        return sum(not line.counted for line in self.lines)

    @property
    def run_lines(self) -> list[Line]:
        """The numbers that the run has."""
        return [line for line in self.lines if line.computed is not None]

    @property
    def run_lists(self) -> list[TokenList]:
        """The lists that the run has."""
        return [one for one in self.lists if one.computed or one.verdict is None]

    @property
    def not_run(self) -> list[tuple[str, int]]:
        """Why published values have no counterpart, and how many for each reason."""
        absent = [line.verdict for line in self.lines if line.computed is None]
        return _reasons([*absent, *(one.verdict for one in self.lists if not one.computed)])

    @property
    def not_judged(self) -> list[tuple[str, int]]:
        """Why values of the run are shown without being judged, and how many for each reason."""
        there = [line.verdict for line in self.run_lines]
        return _reasons([*there, *(one.verdict for one in self.run_lists)])


def _reasons(found: Iterable[Verdict | None]) -> list[tuple[str, int]]:
    reasons = [v.why for v in found if v is not None and v.kind == verdicts.NOT_RUN]
    return collections.Counter(reasons).most_common()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Readings:
    """The tables of a run under each reading of the models.

    Attributes:
      paper: in the paper's conventions; the verdicts are of this one.
      ours: in ours.
      noise: in the paper's conventions and another dtype; None where it was not run.
      singles: in the paper's conventions with one of them changed.
    """

    paper: RunValues
    ours: RunValues
    noise: RunValues | None = None
    singles: Sequence[RunValues] = ()
