"""The matmuls in a compiled program: where they come from, operands, operations."""

import dataclasses
import math
import re

import numpy as np

from bench.compiled.hlo import Array, Instruction, Program

_LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")
_WINDOW = re.compile(r"window=\{([^}]*)\}")
_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Matmul:
    """A matmul: the names of jax's scopes, its operands, and how often it runs."""

    op_name: str
    operands: tuple[Array, ...]
    times: int

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Dtypes of its operands."""
        return tuple(array.dtype for array in self.operands)


def matmuls(program: Program) -> list[Matmul]:
    """All matmuls that run; on TPUs they are convolutions."""
    return [
        Matmul(
            op_name=instruction.op_name,
            operands=program.operand_arrays(body, instruction),
            times=program.times[name],
        )
        for name, body in program.computations.items()
        for instruction in body
        if program.times[name] and instruction.op in ("dot", "convolution")
    ]


def matmul_flops(program: Program) -> float:
    """Two operations per product and sum of every matmul in a run of the program.

    Products with zeros that a window or a dilation puts in are left out: on TPUs batched matmuls
    are convolutions of that kind. Padded rows and columns that are computed count.
    """
    total = 0.0
    for name, body in program.computations.items():
        times = program.times[name]
        for instruction in body if times else ():
            operands = program.operand_arrays(body, instruction)
            if instruction.op == "dot":
                total += times * _of_dot(instruction, operands[0])
            elif instruction.op == "convolution":
                total += times * _of_convolution(instruction, *operands)
    return total


def _of_dot(dot: Instruction, left: Array) -> float:
    dimensions = [int(n) for n in _CONTRACTED.search(dot.text)[1].split(",") if n]
    summed = math.prod(left.shape[d] for d in dimensions)
    return 2.0 * math.prod(dot.arrays[0].shape) * summed


def _of_convolution(convolution: Instruction, left: Array, right: Array) -> float:
    """Letters of `dim_labels`: b batch, f feature, i and o of the kernel, digits of the window."""
    labels = _LABELS.search(convolution.text)
    sizes = [
        dict(zip(letters, array.shape, strict=True))
        for letters, array in zip(
            labels.groups(), (left, right, convolution.arrays[0]), strict=True
        )
    ]
    given, kernel, result = sizes
    found = _WINDOW.search(convolution.text)
    fields = dict(f.split("=") for f in found[1].split()) if found else {}
    pairs = 1
    for number, digit in enumerate(sorted(label for label in given if label.isdigit())):
        window = {name: value.split("x")[number] for name, value in fields.items()}
        pairs *= _pairs(window, given[digit], kernel[digit], result[digit])
    return 2.0 * pairs * result["b"] * result["f"] * kernel["i"]


def _pairs(window: dict[str, str], given: int, kernel: int, result: int) -> int:
    """Pairs of a result's place and a kernel's place along one dimension that read no zero."""
    stride, dilation = int(window.get("stride", 1)), int(window.get("rhs_dilate", 1))
    spread = int(window.get("lhs_dilate", 1))  # the input's places are this far apart
    before = int(window.get("pad", "0_0").partition("_")[0])
    at = np.arange(result)[:, None] * stride + np.arange(kernel) * dilation - before
    return int(((at >= 0) & (at <= (given - 1) * spread) & (at % spread == 0)).sum())
