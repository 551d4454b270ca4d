"""Compiles the engine's passes for TPUs that are not there, and prints what the programs cost.

    make check     # installs libtpu beside the other packages; no TPU is needed
    python -m bench.aot_tpu [--models=skywork-reward-llama-3.1-8b,…] [--slices=v5e:2x4]
        [--passes=score] [--model_axis=0] [--candidates=1024] [--json=out/aot_tpu.json]
        [--programs=out/programs]

Models are of full size, in bfloat16, with a linear head and without weights. Numbers are per chip
and per run of a pass (one step of a sweep or of a search):

    peak     memory by the compiler's plan, of what it may use
    ms       the compiler's estimate of cycles by the stated clock, without collectives
    of peak  operations (engine/planning/flops.py) in that time, of the stated peak in bfloat16
    floor    the least time in ms: operations at the peak, or reading each weight once
    all-reduces   number, payload, and the time in ms that a ring along one axis of the torus takes
    copies   bytes that are written to HBM and depend on weights alone

With --model_axis=0 the smallest axis on which a pass fits is taken. One compilation takes 4 to 64 s
on two cores.
"""

import dataclasses
import json
import math
import re
import time
from pathlib import Path

from absl import app, flags, logging

from bench.compiled import chips, hlo
from bench.compiled.programs import PASSES, Programs, Work, parameter_count
from bench.support.heads import linear_head
from bench.support.table import aligned
from configs import known_models, known_shapes
from engine.convert.hf_config import decoder_config
from engine.errors import AssayError
from engine.models.config import DecoderConfig
from engine.planning.machines import GIB, Kind

# `model_type` -> positions of a candidate: a reply of one token, and the template's end.
_OWN = {"llama": 2, "gemma2": 3, "qwen3": 3, "internlm2": 4}

_MODELS = flags.DEFINE_list(
    "models",
    ["skywork-reward-llama-3.1-8b", "skywork-reward-gemma-2-27b"],
    "Reward models, as `assay models` lists them.",
)
_SLICES = flags.DEFINE_list(
    "slices", ["v5e:2x4", "v6e:2x4", "v5p:2x2x2", "v5e:8x8"], "Chip and shape of each slice."
)
_PASSES = flags.DEFINE_list("passes", ["score"], f"Passes: {', '.join(PASSES)}.")
_MODEL_AXIS = flags.DEFINE_list("model_axis", ["0"], "Sizes of the axis `model`; 0: smallest.")
_CANDIDATES = flags.DEFINE_list("candidates", ["1024"], "Candidates per step on each device.")
_SEARCHED = flags.DEFINE_integer("searched", 64, "Candidates per step of a search.")
_LENGTH = flags.DEFINE_integer("length", 8, "Tokens of a searched reply.")
_PREFIX = flags.DEFINE_integer("prefix", 64, "Positions of a prompt's prefix.")
_LAYERS = flags.DEFINE_integer("layers", 0, "Layers of each model; 0: its own.")
_DTYPE = flags.DEFINE_string("dtype", "bfloat16", "Dtype of the decoder.")
_JSON = flags.DEFINE_string("json", "", "File for the rows of the table.")
_PROGRAMS = flags.DEFINE_string("programs", "", "Folder for the optimised programs.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One pass of one model on one mesh; numbers are those of one chip, see the module."""

    model: str
    slice: str
    data: int
    model_axis: int
    work: str
    fits: bool
    peak_gib: float = math.nan
    usable_gib: float = math.nan
    ms: float = math.nan
    share_of_peak: float = math.nan
    floor_ms: float = math.nan
    all_reduces: int = 0
    all_reduce_dtypes: str = ""
    collectives: dict[str, float] = dataclasses.field(default_factory=dict)  # kind, dtype -> bytes
    collective_ms: float = 0.0
    weight_copies: dict[str, float] = dataclasses.field(default_factory=dict)  # what -> bytes
    vocabulary_s: float = math.nan
    compile_s: float = math.nan

    @property
    def mesh(self) -> str:
        """Sizes of both axes."""
        return f"{self.data}×{self.model_axis}"


def compile_pass(model: str, slice_: str, model_axis: int, work: Work, name: str) -> Row:
    """Compiles one pass and measures its program."""
    decoder = _decoder(model)
    mesh, (chip, kind) = chips.mesh_of(slice_, model_axis), chips.chip_of(slice_)
    programs = Programs(decoder, linear_head(decoder), mesh, _DTYPE.value, work)
    counted = {"score": work.candidates, "gcg": work.searched}.get(name)
    row = Row(
        model=model,
        slice=slice_,
        data=mesh.shape["data"],
        model_axis=model_axis,
        work=f"{name} {counted}" if counted else name,
        fits=False,
        usable_gib=kind.memory_bytes / GIB,
    )
    began = time.time()
    lowered = programs.lower(name)
    try:
        compiled = lowered.compile()
    except Exception as error:  # jax's class is not public
        used = re.search(r"Used ([\d.]+)G of", str(error))
        if not used:
            raise
        return dataclasses.replace(row, peak_gib=float(used[1]), compile_s=time.time() - began)
    spent = time.time() - began
    text = compiled.as_text()
    if _PROGRAMS.value:
        folder = Path(_PROGRAMS.value)
        folder.mkdir(parents=True, exist_ok=True)
        file = f"{model}-{slice_.replace(':', '-')}-{row.mesh}-{row.work.replace(' ', '-')}.hlo"
        (folder / file).write_text(text)
    peak = compiled.memory_analysis().peak_memory_in_bytes / GIB
    row = dataclasses.replace(row, fits=True, peak_gib=peak, compile_s=spent)
    return _measured(row, programs, hlo.Program(text, programs.rounds), (chip, kind), name)


def _measured(
    row: Row,
    programs: Programs,
    program: hlo.Program,
    limits: tuple[chips.Chip, Kind],
    name: str,
) -> Row:
    chip, kind = limits
    collectives = program.collectives()
    reduces = [c for c in collectives if c.kind == "all-reduce"]
    split = row.model_axis
    # A ring sends each byte to all but one device, twice.
    sent = sum(c.bytes for c in reduces) * 2 * (split - 1) / split
    seconds, flops = program.cycles / chip.clock_hz, programs.flops(name)
    collective_s = sent / chip.ring_bytes_per_s
    copies: dict[str, float] = {}
    for copy in program.weight_copies():
        key = f"{copy.op} {copy.array}"
        copies[key] = copies.get(key, 0.0) + copy.bytes
    weights = programs.layer_bytes()
    steps = programs.decoder.vocab_size / (programs.work.candidates * row.data)
    return dataclasses.replace(
        row,
        ms=1e3 * seconds,
        share_of_peak=flops / seconds / kind.rate_16,
        floor_ms=1e3 * max(flops / kind.rate_16, weights / kind.bytes_per_s),
        all_reduces=sum(c.times * len(c.arrays) for c in reduces),
        all_reduce_dtypes=" ".join(sorted({a.dtype for c in reduces for a in c.arrays})),
        collectives=hlo.by_dtype(collectives),
        collective_ms=1e3 * collective_s,
        weight_copies=copies,
        vocabulary_s=math.ceil(steps) * (seconds + collective_s) if name == "score" else math.nan,
    )


def smallest_axis(model: str, slice_: str, work: Work, name: str) -> Row:
    """The row of the smallest axis `model` on which a pass fits; of the largest, if none does."""
    decoder, (_, kind) = _decoder(model), chips.chip_of(slice_)
    devices = math.prod(map(int, slice_.partition(":")[2].split("x")))
    row = None
    for axis in (2**n for n in range(devices.bit_length())):
        if devices % axis or decoder.num_heads % axis or decoder.ffn_width % axis:
            continue
        if 2 * parameter_count(decoder) / axis > kind.memory_bytes:
            continue
        row = compile_pass(model, slice_, axis, work, name)
        if row.fits:
            return row
    if row is None:
        raise AssayError(f"{model} does not fit on {slice_} in any way")
    return row


def table(rows: list[Row]) -> str:
    """The rows as text."""
    header = (
        "model", "slice", "data×model", "pass", "peak GiB", "ms", "of peak", "floor ms",
        "all-reduces", "copies GB", "vocabulary s", "compiled s",
    )  # fmt: skip
    lines = [header]
    for row in rows:
        reduces = "–"
        if row.all_reduces:
            size = sum(v for k, v in row.collectives.items() if k.startswith("all-reduce"))
            reduces = (
                f"{row.all_reduces} {row.all_reduce_dtypes}, {size / 1e9:.2f} GB, "
                f"{row.collective_ms:.1f} ms"
            )
        fits = "" if row.fits else "needs "
        lines.append(
            (
                row.model,
                row.slice,
                row.mesh,
                row.work,
                f"{fits}{row.peak_gib:.1f} of {row.usable_gib:.1f}",
                _number(row.ms, ".1f"),
                _number(100 * row.share_of_peak, ".0f", " %"),
                _number(row.floor_ms, ".1f"),
                reduces if row.fits else "",
                f"{sum(row.weight_copies.values()) / 1e9:.2f}" if row.fits else "",
                _number(row.vocabulary_s, ".1f"),
                f"{row.compile_s:.0f}",
            )
        )
    return aligned(lines)


def _number(value: float, form: str, unit: str = "") -> str:
    return "" if math.isnan(value) else f"{value:{form}}{unit}"


def _config_json(model: str) -> dict[str, object]:
    if model not in known_models.KNOWN:
        raise AssayError(f"models={model!r}; allowed: those of `assay models`")
    return known_shapes.config_json(known_models.KNOWN[model])


def _decoder(model: str) -> DecoderConfig:
    """The decoder, with as many layers as the flag says."""
    decoder = decoder_config(_config_json(model))
    layers = _LAYERS.value or decoder.num_layers
    window = decoder.window_layers[:layers]
    return dataclasses.replace(decoder, num_layers=layers, window_layers=window)


def main(argv: list[str]) -> None:
    """Compiles everything that the flags name."""
    del argv
    logging.set_verbosity(logging.WARNING)
    rows: list[Row] = []
    for model in _MODELS.value:
        for slice_ in _SLICES.value:
            for candidates in map(int, _CANDIDATES.value):
                work = Work(
                    candidates=candidates,
                    own=_OWN[str(_config_json(model)["model_type"])],
                    prefix=_PREFIX.value,
                    length=_LENGTH.value,
                    searched=_SEARCHED.value,
                )
                for name in _PASSES.value:
                    rows += _rows(model, slice_, work, name)
                    print(table(rows[-1:]).splitlines()[-1], flush=True)
                    if _JSON.value:
                        file = Path(_JSON.value)
                        file.parent.mkdir(parents=True, exist_ok=True)
                        file.write_text(json.dumps([dataclasses.asdict(r) for r in rows], indent=1))
    print("\n" + table(rows))


def _rows(model: str, slice_: str, work: Work, name: str) -> list[Row]:
    return [
        compile_pass(model, slice_, axis, work, name)
        if axis
        else smallest_axis(model, slice_, work, name)
        for axis in map(int, _MODEL_AXIS.value)
    ]


if __name__ == "__main__":
    app.run(main)
