"""How often each kind of claim on the page appears where there is nothing to find."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rate:
    """How often one claim appeared.

    Attributes:
      claim: the kind of claim, such as "group: within-axis contrast".
      null: what the draws were made of, such as "words shuffled within frequency bands".
      draws: number of chances the claim had: independent draws, or tests within draws.
      appeared: how often it appeared.
      nominal: the rate that it promises not to exceed.
    """

    claim: str
    null: str
    draws: int
    appeared: int
    nominal: float

    @classmethod
    def of(cls, claim: str, null: str, appeared: Iterable[bool], nominal: float = 0.05) -> "Rate":
        """The rate of a claim that had one chance for each of `appeared`."""
        each = [bool(one) for one in appeared]
        return cls(
            claim=claim, null=null, draws=max(len(each), 1), appeared=sum(each), nominal=nominal
        )


def rates_of(null: str, draws: Iterable[Mapping[str, bool]]) -> Iterator[Rate]:
    """The rate of every claim; of each draw, claim -> whether it appeared."""
    each = list(draws)
    return (Rate.of(claim, null, [one[claim] for one in each]) for claim in each[0])
