"""What is planned for: the sweeps or the search of one model."""

import dataclasses

# Defaults of engine/settings.py (a test compares them): rows of the self-check, and of a part.
SELF_CHECK, PART_SIZE = 16, 16384
BLOCK_ROWS = 32  # rows of packed candidates that a search scores at a time: 64 candidates
# Attempts whose parents a device runs through the model together in a search. A parent is so short
# that reading the weights takes most of its time. A single attempt is doubled, so that there is one
# shape.
BLOCK_PARENTS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepWork:
    """Sweeps of one model."""

    prompts: int = 1  # vocabularies that are swept
    prefix: int  # positions of a prompt, padding included
    own: int  # positions of a candidate
    step_size: int | None = None  # candidates per step on each device; None: chosen
    self_check: int = SELF_CHECK  # conversations that the plain pass computes at once
    part_size: int = PART_SIZE  # rows of a part, whose end no step crosses


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchWork:
    """One search."""

    prefix: int  # positions of the longest prompt
    suffix: int  # positions behind the reply
    length: int  # tokens of the reply
    candidates: int  # of a step and attempt
    attempts: int  # that run side by side; two for both directions
    together: int = 1  # prompts that are judged by the mean of their rewards
    gradient: bool = True  # whether a step takes one
    merged: int = 0  # replies that join changes of the best candidates, scored whole
    packed: bool = True  # whether two candidates share a row (`engine.search.passes.pack`)
    enumerates: bool = False  # whether a step scores `candidates` whole replies, as `beam` does

    @property
    def own(self) -> int:
        """Positions of a whole candidate: reply and suffix."""
        return self.length + self.suffix

    @property
    def row_positions(self) -> int:
        """Positions of a row: those of a candidate, or of a short and a long one together."""
        return 2 * self.own - self.length + 1 if self.packed else self.own

    @property
    def block_rows(self) -> int:
        """Rows that a device scores at a time."""
        return min(BLOCK_ROWS, self._rows)

    @property
    def blocks(self) -> int:
        """Blocks of rows of all attempts."""
        return self.attempts * -(-self._rows // self.block_rows)

    @property
    def _rows(self) -> int:
        """Rows of a step and attempt: candidates, or pairs of them."""
        return -(-self.candidates // 2) if self.packed else self.candidates
