"""Reads the optimised text of a compiled program: copies of weights, matmuls, sums, donations."""

import dataclasses
import math
import re
from collections.abc import Callable, Sequence

_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
_LAYOUT = re.compile(r"(?<=\])\{[^{}]*\}")  # with S(n) where an array lies in vector memory
_COMMENT = re.compile(r"/\*.*?\*/")
_TYPE = r"(\((?:[^()]|\([^()]*\))*\)|[^\s()]+)"
_INSTRUCTION = re.compile(rf"^\s+(ROOT )?%?([\w.\-]+) = {_TYPE} ([a-z][\w\-]*)\((.*)$")
_ARRAY = re.compile(r"\b(pred|[a-z]+\d+[a-z0-9]*)\[([\d,]*)\](@?)")
_LEAST_BYTES = 2**16  # of a copy that counts
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
        return math.prod(self.shape) * (int(digits[0]) / 8 if digits else 1)  # of pred


@dataclasses.dataclass(frozen=True, kw_only=True)
class Instruction:
    """One instruction of a computation."""

    name: str
    root: bool
    op: str
    arrays: tuple[Array, ...]  # of the result
    operands: tuple[str, ...]
    body: str  # computation of a loop
    op_name: str  # where it comes from: the names of jax's scopes
    index: int  # of a parameter, or of a tuple's element
    text: str


# (instruction, the kinds of its operands)
Visit = Callable[[Instruction, Sequence[int]], None]


class Program:
    """An optimised program, from the text that `compiled.as_text()` gives."""

    def __init__(self, text: str):
        self.text = text
        self.entry = ""
        self.computations: dict[str, list[Instruction]] = {}
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

    def reads(self, *ops: str) -> list[tuple[Instruction, tuple[Array, ...]]]:
        """Instructions with one of these operations, and the arrays that each reads."""
        readers = []
        for body in self.computations.values():
            arrays = {i.name: i.arrays for i in body}
            reading = [i for i in body if i.op in ops]
            readers += [(i, sum((arrays.get(n, ()) for n in i.operands), ())) for i in reading]
        return readers

    def weight_copies(self) -> list[Instruction]:
        """Everything but small arrays that is written to HBM and depends on weights alone.

        Weights are the entry's parameters whose name begins with `params`. Blocks that are only
        fetched into a chip's vector memory do not count.
        """
        copies: list[Instruction] = []

        def visit(i: Instruction, kinds: Sequence[int]) -> None:
            array, prefetch = i.arrays[0], i.op.endswith("-start") and "S(1)" in i.text
            if max(kinds, default=_CONSTANT) == _WEIGHT and array.in_hbm and not prefetch:
                copies.extend([i] * (array.bytes >= _LEAST_BYTES))

        parameters = [i for i in self.computations[self.entry] if i.op == "parameter"]
        kinds = [
            _WEIGHT if i.op_name.startswith("params") else _DATA
            for i in sorted(parameters, key=lambda i: i.index)
        ]
        assert _WEIGHT in kinds, "no parameter of the program is named params"
        self._spread(self.entry, kinds, visit)
        return copies

    def donated(self) -> set[int]:
        """Numbers of the entry's parameters whose memory the result takes."""
        header = self.text.partition("\n")[0]
        aliases = re.search(r"input_output_alias=\{(.*?)\}, \w+=", header)
        return {int(n) for n in re.findall(r"\((\d+), \{", aliases[1])} if aliases else set()

    def _spread(self, name: str, kinds: Sequence[int], visit: Visit) -> dict[str, list[int]]:
        """Kinds of what each instruction of a computation results in, one per array of a tuple.

        Args:
          name: of the computation.
          kinds: of its parameters; of the elements, if its only parameter is a tuple.
          visit: called for every instruction that moves bytes.
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
                of[i.name] = self._loop(i, given[0], visit)
            elif i.op in ("call", "optimization-barrier", "opt-barrier"):
                of[i.name] = given[0] if len(given) == 1 else [highest]
            else:
                of[i.name] = [highest] * max(1, len(i.arrays))
            if i.op not in _FREE:
                visit(i, [max(k, default=_CONSTANT) for k in given])
        return of

    def _loop(self, loop: Instruction, given: Sequence[int], visit: Visit) -> list[int]:
        """Kinds of what a loop carries: the highest of its beginning and of any round."""
        kinds, body = list(given), loop.body
        root = self.root(body).name
        while True:
            after = self._spread(body, kinds, lambda i, kinds: None)[root]
            joined = [max(a, b) for a, b in zip(kinds, after, strict=True)]
            if joined == kinds:
                break
            kinds = joined
        self._spread(body, kinds, visit)
        return kinds


def _instruction(line: str) -> Instruction | None:
    placed = _LAYOUT.sub(lambda layout: "@" * ("S(" in layout[0]), _COMMENT.sub("", line))
    if not (match := _INSTRUCTION.match(placed)):
        return None
    root, name, kind, op, rest = match.groups()
    inside, _, attributes = rest.partition(")")
    body = re.search(r"\bbody=%?([\w.\-]+)", attributes)
    op_name = re.search(r'op_name="([^"]*)"', line)
    index = re.search(r"index=(\d+)", attributes)
    return Instruction(
        name=name,
        root=bool(root),
        op=op,
        arrays=tuple(map(_array, _ARRAY.findall(kind))),
        operands=tuple(re.findall(r"%([\w.\-]+)", inside)),
        body=body[1] if body else "",
        op_name=op_name[1] if op_name else "",
        index=int(inside) if op == "parameter" else int(index[1]) if index else 0,
        text=line.strip(),
    )


def _array(found: tuple[str, str, str]) -> Array:
    dtype, sizes, elsewhere = found
    return Array(dtype, tuple(int(n) for n in sizes.split(",") if n), not elsewhere)
