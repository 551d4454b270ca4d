"""One pass of one model on one mesh: compiled for chips that are not there, and measured."""

import dataclasses
import json
import re
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from bench.compiled import chips, hlo, products
from bench.compiled.programs import Programs, Work
from bench.compiled.structures import Structure
from bench.support.heads import linear_head
from engine.planning import plans
from engine.planning.machines import GIB, Kind

_NEEDED = re.compile(r"(?:Used |HLO temporaries \()([\d.]+)([GM])")  # in the compiler's refusals


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """What is compiled; equal cases give equal rows.

    Attributes:
      structure: name of the model's shape.
      slice: chip and shape of the slice.
      model_axis: devices along the mesh axis `model`.
      name: of the pass.
      count: candidates of a step of a sweep on each device, or of a search; 0 elsewhere.
      own: positions of a candidate.
      prefix: positions of the prompt.
      length: tokens of a searched reply.
      layers: of the decoder.
      dtype: of its parameters.
      versions: of jax and libtpu.
    """

    structure: str
    slice: str
    model_axis: int
    name: str
    count: int
    own: int
    prefix: int
    length: int
    layers: int
    dtype: str
    versions: str

    @classmethod
    def of(
        cls, structure: Structure, slice_: str, model_axis: int, name: str, work: Work, dtype: str
    ) -> "Case":
        """The case of one pass."""
        return cls(
            structure=structure.name,
            slice=slice_,
            model_axis=model_axis,
            name=name,
            count=work.count(name),
            own=work.own,
            prefix=work.prefix,
            length=work.length,
            layers=structure.decoder.num_layers,
            dtype=dtype,
            versions=f"jax {version('jax')}, libtpu {chips.compiler_version()}",
        )

    @property
    def chips(self) -> int:
        """Chips of the slice."""
        return chips.count_of(self.slice)

    @property
    def mesh(self) -> str:
        """Sizes of both axes."""
        return f"{self.chips // self.model_axis}×{self.model_axis}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A case and its program. Numbers are those of one chip and one run; None: not known.

    Attributes:
      case: what was compiled.
      fits: whether the compiler found room for it.
      planned_gib: memory by the planner's account.
      peak_gib: the peak that the compiler states, which is not `hbm_gib`; of a program that does
        not fit, what it needs.
      hbm_gib: its arguments, results, temporary arrays and code; older rows lack it.
      usable_gib: memory that a program may use.
      ms: the compiler's estimate of cycles by the stated clock, without collectives.
      flops: operations of the matmuls in the program.
      counted_flops: of `engine/planning/flops.py`, without padding.
      share_of_peak: counted operations in that time, of the stated peak in bfloat16.
      floor_ms: counted operations at the peak, or reading each layer once; of a step of a search
        the sum over its passes (bench/support/search_floor.py).
      collectives: kind and dtype -> [number, bytes].
      collective_ms: that all-reduces take in a ring along one axis of the torus.
      weight_copies: what is written and depends on weights alone -> bytes.
      vocabulary_s: of one vocabulary in such steps and default parts, with collectives.
      compile_s: CPU time of the compiler.
      note: why there is no program.
    """

    case: Case
    fits: bool
    planned_gib: float | None = None
    peak_gib: float | None = None
    hbm_gib: float | None = None
    usable_gib: float | None = None
    ms: float | None = None
    flops: float | None = None
    counted_flops: float | None = None
    share_of_peak: float | None = None
    floor_ms: float | None = None
    collectives: dict[str, tuple[int, float]] = dataclasses.field(default_factory=dict)
    collective_ms: float | None = None
    weight_copies: dict[str, float] = dataclasses.field(default_factory=dict)
    vocabulary_s: float | None = None
    compile_s: float | None = None
    note: str = ""

    @property
    def gib(self) -> float | None:
        """Memory that the program takes on a chip; of older rows the compiler's peak."""
        return self.peak_gib if self.hbm_gib is None else self.hbm_gib

    @classmethod
    def from_json(cls, line: str) -> "Row":
        """The inverse of `to_json`."""
        fields = json.loads(line)
        fields["case"] = Case(**fields["case"])
        fields["collectives"] = {k: tuple(v) for k, v in fields["collectives"].items()}
        return cls(**fields)

    def to_json(self) -> str:
        """One line."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False)


class Kept:
    """Rows in a file of JSON lines, to which each new one is appended as soon as it is there."""

    def __init__(self, file: Path | None):
        self._file = file
        lines = file.read_text().splitlines() if file and file.exists() else []
        self.rows = {row.case: row for row in map(Row.from_json, lines)}

    def add(self, row: Row) -> Row:
        """Keeps a new row, and returns it."""
        self.rows[row.case] = row
        if self._file:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a") as file:
                file.write(row.to_json() + "\n")
        return row


def compile_pass(
    structure: Structure, case: Case, work: Work, empty: Row, folder: Path | None
) -> Row:
    """Compiles one pass and measures its program.

    Args:
      structure: the model.
      case: what to compile.
      work: of the pass.
      empty: the row without the program's numbers.
      folder: where the optimised program goes; None: nowhere.
    """
    mesh, (chip, kind) = chips.mesh_of(case.slice, case.model_axis), chips.chip_of(case.slice)
    head = linear_head(structure.decoder)
    programs = Programs(structure.decoder, head, mesh, case.dtype, work)
    began = time.process_time()
    lowered = programs.lower(case.name)
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        spent = time.process_time() - began
        needed = needed_gib(str(error))
        if needed is None:
            raise
        return dataclasses.replace(empty, peak_gib=needed, compile_s=spent, note="does not fit")
    spent = time.process_time() - began
    text = compiled.as_text()
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        parts = (case.structure, case.slice, case.mesh, case.name, case.count)
        (folder / f"{re.sub(r'[ :]', '-', '-'.join(map(str, parts)))}.hlo").write_text(text)
    plan = compiled.memory_analysis()
    peak, hbm = plan.peak_memory_in_bytes / GIB, hbm_bytes(plan) / GIB
    row = dataclasses.replace(empty, fits=True, peak_gib=peak, hbm_gib=hbm, compile_s=spent)
    return _measured(row, programs, hlo.Program(text, programs.rounds), chip, kind)


def needed_gib(refusal: str) -> float | None:
    """Memory of a program that does not fit, from the compiler's message; None: another error."""
    found = _NEEDED.search(refusal)
    return float(found[1]) / (1 if found[2] == "G" else 1024) if found else None


def hbm_bytes(plan: Any) -> int:
    """Memory that a program takes on a chip. Any: jax's class is not public."""
    own = plan.argument_size_in_bytes + plan.output_size_in_bytes - plan.alias_size_in_bytes
    return own + plan.temp_size_in_bytes + plan.generated_code_size_in_bytes


def _measured(
    row: Row, programs: Programs, program: hlo.Program, chip: chips.Chip, kind: Kind
) -> Row:
    case, collectives = row.case, program.collectives()
    seconds, flops = program.cycles / chip.clock_hz, programs.flops(case.name)
    sums = sum(c.bytes for c in collectives if c.kind == "all-reduce")
    # A ring sends each byte to all but one device, twice.
    sent = sums * 2 * (case.model_axis - 1) / case.model_axis
    collective_s = sent / chip.ring_bytes_per_s
    copies: dict[str, float] = {}
    for copy in program.weight_copies():
        key = f"{copy.op} {copy.array}"
        copies[key] = copies.get(key, 0.0) + copy.bytes
    steps = None
    if case.name == "score":
        together = case.count * (case.chips // case.model_axis)
        steps = plans.steps_of(programs.decoder.vocab_size, together)
    return dataclasses.replace(
        row,
        ms=1e3 * seconds,
        flops=products.matmul_flops(program),
        counted_flops=flops,
        share_of_peak=flops / seconds / kind.rate_16,
        floor_ms=1e3 * programs.floor_seconds(case.name, kind, chip.bytes_per_s),
        collectives=_by_dtype(collectives),
        collective_ms=1e3 * collective_s,
        weight_copies=copies,
        vocabulary_s=steps and steps * (seconds + collective_s),
    )


# Any: the values of `Row.collectives`.
def _by_dtype(collectives: list[hlo.Collective]) -> dict[str, Any]:
    bytes_of = hlo.by_dtype(collectives)
    numbers = dict.fromkeys(bytes_of, 0)
    for each in collectives:
        for array in each.arrays:
            numbers[f"{each.kind} {array.dtype}"] += each.times
    return {key: (numbers[key], bytes_of[key]) for key in bytes_of}
