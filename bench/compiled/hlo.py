"""Reads the optimised text of a compiled program: loops, estimated cycles, collectives, copies.

A loop's body counts as often as it runs. Loops whose number of rounds the compiler does not know
run as often as the caller says.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
_LAYOUT = re.compile(r"(?<=\])\{[^{}]*\}")
_COMMENT = re.compile(r"/\*.*?\*/")
_TYPE = r"(\((?:[^()]|\([^()]*\))*\)|[^\s()]+)"
_INSTRUCTION = re.compile(rf"^\s+(ROOT )?%?([\w.\-]+) = {_TYPE} ([a-z][\w\-]*)\((.*)$")
_ARRAY = re.compile(r"\b(pred|[a-z]+\d+[a-z0-9]*)\[([\d,]*)\](\{[^{}]*\})?")
_CALLED = re.compile(r"\b(calls|body|condition|to_apply)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_BITS = {"pred": 8}
_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
# Operations that move nothing, or hand on what an operand holds.
_FREE = {
    "parameter", "get-tuple-element", "tuple", "bitcast", "constant", "iota", "while", "call",
    "conditional", "copy-done", "async-done", "slice-done", "optimization-barrier", "after-all",
    "opt-barrier", "partition-id", "replica-id",
}  # fmt: skip
_CONSTANT, _WEIGHT, _DATA = range(3)


@dataclasses.dataclass(frozen=True)
class Array:
    """Type of one array: dtype, dimensions, and whether it lies in HBM."""

    dtype: str
    shape: tuple[int, ...]
    in_hbm: bool

    @property
    def bytes(self) -> float:
        """Bytes of its elements, without padding."""
        digits = re.search(r"\d+", self.dtype)
        bits = _BITS.get(self.dtype) or int(digits[0])
        return math.prod(self.shape) * bits / 8

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Instruction:
    """One instruction of a computation."""

    name: str
    root: bool
    op: str
    arrays: tuple[Array, ...]  # of the result
    operands: tuple[str, ...]
    called: dict[str, str]  # role -> computation
    branches: tuple[str, ...]
    value: int  # of an integer constant
    cycles: int  # estimated; 0 where the compiler gives none
    op_name: str  # where it comes from: the names of jax's scopes
    index: int  # of a parameter, or of a tuple's element
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collective:
    """One collective: kind, what it sends, and how often in a run of the program."""

    kind: str
    arrays: tuple[Array, ...]
    times: int
    asynchronous: bool
    op_name: str

    @property
    def bytes(self) -> float:
        """Payload of one device in a run of the program."""
        return self.times * sum(array.bytes for array in self.arrays)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightCopy:
    """Something written to HBM that is computed from nothing but weights."""

    op: str
    array: Array
    times: int
    op_name: str

    @property
    def bytes(self) -> float:
        """Bytes written in a run of the program."""
        return self.times * self.array.bytes


class Program:
    """An optimised program.

    Args:
      text: as `compiled.as_text()` gives it.
      rounds: rounds of a loop that the compiler does not know, from the loop's `op_name`.
    """

    def __init__(self, text: str, rounds: Callable[[str], int] = lambda op_name: 1):
        self.text = text
        self._rounds = rounds
        self.entry = ""
        self.computations: dict[str, list[Instruction]] = {}
        self._read(text)

    def _read(self, text: str) -> None:
        body: list[Instruction] = []
        for line in text.splitlines():
            if header := _HEADER.match(line):
                body = self.computations.setdefault(header[2], [])
                self.entry = header[2] if header[1] else self.entry
            elif instruction := _instruction(line):
                body.append(instruction)

    def root(self, name: str) -> Instruction:
        """The instruction whose result is that of a computation."""
        return next(i for i in self.computations[name] if i.root)

    @functools.cached_property
    def times(self) -> dict[str, int]:
        """Computation -> how often it runs."""
        times = dict.fromkeys(self.computations, 0)
        times[self.entry] = 1
        for name in self._callers_first():
            for instruction in self.computations[name]:
                for callee, rounds in self._callees(instruction):
                    times[callee] += times[name] * rounds
        return times

    @functools.cached_property
    def cycles(self) -> int:
        """Estimated cycles of a run, without collectives; 0 where the compiler gives none."""
        return sum(cycles for cycles, _ in self.costs())

    def costs(self) -> list[tuple[int, Instruction]]:
        """Cycles of a run and instruction, for each instruction that has an estimate."""
        fused = self._fused
        return [
            (self.times[name] * instruction.cycles, instruction)
            for name, body in self.computations.items()
            if name not in fused
            for instruction in body
            if instruction.cycles
        ]

    def collectives(self) -> list[Collective]:
        """All collectives."""
        found = []
        for name, body in self.computations.items():
            for instruction in body:
                kind = instruction.op.removesuffix("-start")
                if kind not in _COLLECTIVES or not self.times[name]:
                    continue
                arrays = self.operand_arrays(body, instruction)
                found.append(
                    Collective(
                        kind=kind,
                        arrays=arrays,
                        times=self.times[name],
                        asynchronous=instruction.op != kind or name in self._fused,
                        op_name=instruction.op_name,
                    )
                )
        return found

    def weight_copies(self, least_bytes: float = 2**16) -> list[WeightCopy]:
        """Everything of at least `least_bytes` that is written and depends on weights alone.

        Weights are the entry's parameters whose name begins with `params`. Blocks that are only
        fetched into a chip's own memory do not count.

        Raises:
          ValueError: no parameter has such a name.
        """
        found: list[WeightCopy] = []
        kinds = [
            _WEIGHT if i.op_name.startswith("params") else _DATA
            for i in sorted(self._parameters(self.entry), key=lambda i: i.index)
        ]
        if _WEIGHT not in kinds:
            raise ValueError("no parameter of the program is named params")
        self._spread(self.entry, kinds, found, least_bytes)
        return found

    def upcasts(self, least_bytes: float = 2**16) -> list[WeightCopy]:
        """The copies of 16-bit weights in 32 bits."""
        return [c for c in self.weight_copies(least_bytes) if c.array.dtype == "f32"]

    def donated(self) -> set[int]:
        """Numbers of the entry's parameters whose memory the result takes."""
        header = self.text.partition("\n")[0]
        aliases = re.search(r"input_output_alias=\{(.*?)\}, \w+=", header)
        return {int(n) for n in re.findall(r"\((\d+), \{", aliases[1])} if aliases else set()

    def _parameters(self, name: str) -> list[Instruction]:
        return [i for i in self.computations[name] if i.op == "parameter"]

    def _callees(self, instruction: Instruction) -> Iterator[tuple[str, int]]:
        """Computations that an instruction runs, and how often."""
        rounds = self._rounds_of(instruction) if instruction.op == "while" else 1
        for role, callee in instruction.called.items():
            if role == "to_apply" and instruction.op != "call":
                continue  # adds two numbers
            yield callee, rounds
        for callee in instruction.branches:
            yield callee, 1

    def _rounds_of(self, loop: Instruction) -> int:
        """Rounds that XLA knows, or that two constants tell; else what the caller says."""
        if known := re.search(r'"known_trip_count":\{"n":"(\d+)"\}', loop.text):
            return int(known[1])
        condition = {i.name: i for i in self.computations[loop.called["condition"]]}
        compare = self.root(loop.called["condition"])
        if compare.op != "compare" or "direction=LT" not in compare.text:
            return self._rounds(loop.op_name)
        ends = [self._carried_from(loop, condition[name]) for name in compare.operands]
        if any(end is None for end in ends):
            return self._rounds(loop.op_name)
        first, last = ends
        return last - first

    def _carried_from(self, loop: Instruction, inside: Instruction) -> int | None:
        """The constant that a value of a loop's condition has before the first round."""
        if inside.op == "constant":
            return inside.value
        if inside.op != "get-tuple-element":
            return None
        for body in self.computations.values():
            by_name = {i.name: i for i in body}
            if loop.name not in by_name or by_name[loop.name] is not loop:
                continue
            begin = by_name[by_name[loop.operands[0]].operands[inside.index]]
            while begin.op == "copy":
                begin = by_name[begin.operands[0]]
            return begin.value if begin.op == "constant" else None
        return None

    def _callers_first(self) -> list[str]:
        order: list[str] = []
        seen: set[str] = set()

        def visit(name: str) -> None:
            if name in seen or name not in self.computations:
                return
            seen.add(name)
            for instruction in self.computations[name]:
                for callee, _ in self._callees(instruction):
                    visit(callee)
            order.append(name)

        visit(self.entry)
        return order[::-1]

    @functools.cached_property
    def _fused(self) -> set[str]:
        """Computations that run inside one instruction, whose estimate is of the whole."""
        direct = {
            i.called["calls"]
            for body in self.computations.values()
            for i in body
            if "calls" in i.called
        }
        return direct | {
            callee
            for name in direct
            for i in self.computations.get(name, [])
            for callee in i.called.values()
        }

    def operand_arrays(
        self, body: Sequence[Instruction], instruction: Instruction
    ) -> tuple[Array, ...]:
        """Types of what an instruction of a computation reads."""
        by_name = {i.name: i for i in body}
        return tuple(
            array
            for name in instruction.operands
            if name in by_name
            for array in by_name[name].arrays
        )

    def _spread(
        self, name: str, kinds: Sequence[int], found: list[WeightCopy], least_bytes: float
    ) -> dict[str, list[int]]:
        """Kinds of what each instruction of a computation results in, one per array of a tuple.

        Args:
          name: of the computation.
          kinds: of its parameters; of the elements, if its only parameter is a tuple.
          found: copies of weights are added to it.
          least_bytes: smaller ones are not.
        """
        of: dict[str, list[int]] = {}
        for i in self.computations[name]:
            given = [of.get(operand, [_CONSTANT]) for operand in i.operands]
            highest = max((max(k, default=0) for k in given), default=_CONSTANT)
            if i.op == "parameter":
                of[i.name] = list(kinds) if len(i.arrays) > 1 else [kinds[i.index]]
            elif i.op == "tuple":
                of[i.name] = [max(k, default=0) for k in given]
            elif i.op == "get-tuple-element":
                of[i.name] = [given[0][i.index] if i.index < len(given[0]) else highest]
            elif i.op == "while":
                of[i.name] = self._loop(i.called["body"], given[0], found, least_bytes)
            elif i.op in ("call", "optimization-barrier", "opt-barrier"):
                of[i.name] = given[0] if len(given) == 1 else [highest]
            else:
                of[i.name] = [highest] * max(1, len(i.arrays))
            if highest == _WEIGHT and i.op not in _FREE:
                array, prefetch = i.arrays[0], i.op.endswith("-start") and "S(1)" in i.text
                if array.in_hbm and not prefetch and array.bytes >= least_bytes:
                    times = self.times[name]
                    found.append(WeightCopy(op=i.op, array=array, times=times, op_name=i.op_name))
        return of

    def _loop(
        self, body: str, given: Sequence[int], found: list[WeightCopy], least_bytes: float
    ) -> list[int]:
        """Kinds of what a loop carries: the highest of its beginning and of any round."""
        kinds = list(given)
        root = self.root(body).name
        while True:
            after = self._spread(body, kinds, [], least_bytes)[root]
            joined = [max(a, b) for a, b in zip(kinds, after, strict=True)]
            if joined == kinds:
                break
            kinds = joined
        self._spread(body, kinds, found, least_bytes)
        return kinds


def by_dtype(collectives: Iterable[Collective]) -> dict[str, float]:
    """Kind and dtype -> bytes that they send in a run of the program."""
    total: dict[str, float] = {}
    for each in collectives:
        for array in each.arrays:
            key = f"{each.kind} {array.dtype}"
            total[key] = total.get(key, 0.0) + each.times * array.bytes
    return total


def _instruction(line: str) -> Instruction | None:
    stripped = _COMMENT.sub("", line)
    match = _INSTRUCTION.match(_LAYOUT.sub("", stripped))
    if not match:
        return None
    name, kind, op, rest = match[2], match[3], match[4], match[5]
    typed = stripped.partition(" = ")[2]
    inside, _, attributes = rest.partition(")")
    called = dict(_CALLED.findall(attributes))
    cycles = re.search(r'"estimated_cycles":"(\d+)"', line)
    op_name = re.search(r'op_name="([^"]*)"', line)
    index = re.search(r"index=(\d+)", attributes)
    branches = _BRANCHES.search(attributes)
    return Instruction(
        name=name,
        root=bool(match[1]),
        op=op,
        arrays=_arrays(typed, kind),
        operands=tuple(re.findall(r"%([\w.\-]+)", inside)),
        called=called,
        branches=tuple(re.findall(r"%([\w.\-]+)", branches[1])) if branches else (),
        value=int(inside) if op == "constant" and inside.lstrip("-").isdigit() else 0,
        cycles=int(cycles[1]) if cycles else 0,
        op_name=op_name[1] if op_name else "",
        index=int(inside) if op == "parameter" else int(index[1]) if index else 0,
        text=line.strip(),
    )


def _arrays(typed: str, kind: str) -> tuple[Array, ...]:
    """The arrays of a result; `kind` is its type without layouts, `typed` begins with layouts."""
    count = len(_ARRAY.findall(kind))
    found = []
    for match in list(_ARRAY.finditer(typed))[:count]:
        shape = tuple(int(n) for n in match[2].split(",") if n)
        found.append(Array(match[1], shape, "S(" not in (match[3] or "")))
    return tuple(found)
