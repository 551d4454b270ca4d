"""What is planned for: sweeps of vocabularies, searches, and the settings that a user named."""

import dataclasses

# As in configs/common.py, with which a test compares them: rows of the self-check, and of a part.
SELF_CHECK, PART_SIZE = 16, 16384
BLOCK_ROWS = 32  # rows of packed candidates that a search scores at a time: 64 candidates
# Attempts whose parents a device runs through the model together in a search. A parent is so short
# that reading the weights takes most of its time. A single attempt is doubled, so that there is one
# shape.
BLOCK_PARENTS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepWork:
    """Sweeps of one model.

    Attributes:
      prompts: vocabularies that are swept.
      prefix: positions of a prompt, padding included.
      own: positions of a candidate.
      step_size: candidates per step on each device; None: chosen.
      self_check: conversations that the plain pass computes together at the end of a result.
      part_size: rows of a part, whose end no step crosses.
    """

    prompts: int = 1
    prefix: int
    own: int
    step_size: int | None = None
    self_check: int = SELF_CHECK
    part_size: int = PART_SIZE


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchWork:
    """One search.

    Attributes:
      prefix: positions of the longest prompt.
      suffix: positions behind the reply.
      length: tokens of the reply.
      candidates: of a step and attempt.
      steps: of the search.
      attempts: that run side by side; two for both directions.
      together: prompts that are judged by the mean of their rewards.
      gradient: whether a step takes one.
      momentum: whether it keeps the mean of the earlier ones.
      merged: replies that join changes of the best candidates, scored whole in a pass of their own.
      packed: whether two candidates share a row (`engine.search.packing`).
      enumerates: whether a step scores `candidates` whole replies, as `beam` does.
    """

    prefix: int
    suffix: int
    length: int
    candidates: int
    steps: int = 1
    attempts: int
    together: int = 1
    gradient: bool = True
    momentum: bool = False
    merged: int = 0
    packed: bool = True
    enumerates: bool = False

    @property
    def own(self) -> int:
        """Positions of a whole candidate: reply and suffix."""
        return self.length + self.suffix

    @property
    def first_changes(self) -> list[int]:
        """The first position in which each candidate differs from its parent, ascending."""
        if not self.packed:
            return [0] * self.candidates
        return [(2 * i + 1) * self.length // (2 * self.candidates) for i in range(self.candidates)]

    @property
    def rows(self) -> int:
        """Rows of a step and attempt: candidates, or pairs of them."""
        return -(-self.candidates // 2) if self.packed else self.candidates

    @property
    def row_positions(self) -> int:
        """Positions of a row: those of a candidate, or of a short and a long one together."""
        return 2 * self.own - self.length + 1 if self.packed else self.own

    @property
    def block_rows(self) -> int:
        """Rows that a device scores at a time."""
        return min(BLOCK_ROWS, self.rows)

    @property
    def blocks(self) -> int:
        """Blocks of rows of all attempts."""
        return self.attempts * -(-self.rows // self.block_rows)

    @property
    def parent_blocks(self) -> int:
        """Blocks of parents."""
        return -(-self.attempts // BLOCK_PARENTS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Named:
    """Settings that a user named.

    Attributes:
      dtype: None: float32 on a CPU, else the 16 bits of the file.
      model_axis: devices along the mesh axis `model`; None: chosen.
    """

    dtype: str | None = None
    model_axis: int | None = None
