"""Peak memory and time of a conversion at full size, beside copying the same files.

    python -m bench.speed.conversion [--layers=32] [--rounds=1] [--out=<folder>]

Writes a LlamaForSequenceClassification of 8B parameters (Llama 3.1's sizes and key names, shards of
5 GB, random bfloat16 weights; 15.0 GB with 32 layers) with SmolLM2's tokenizer, which takes a
minute. Then `cp` and `launch.convert`, in a process of its own, take turns on it. Each turn runs
twice: cold (the source was dropped from the page cache; the machine may have other caches) and warm
(as much of it cached as fits). `launch.convert` syncs what it writes, so `cp` is timed with and
without `sync`. Each time is printed with CPU time, bytes read and written, and the machine's load.
Needs twice the size on disk (30 GB at full size). Everything is removed at the end, also after a
failure.
"""

import dataclasses
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import gguf
import numpy as np
from absl import app, flags

from bench.support.table import aligned, machine
from demo import build

_LAYERS = flags.DEFINE_integer("layers", 32, "Layers; 32 make 15.0 GB.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 1, "Rounds; each measures all ways.", lower_bound=1)
_OUT = flags.DEFINE_string("out", "out", "Folder on the disk that is measured.")

WIDTH, FFN, HEADS, KV_HEADS, HEAD_SIZE, ROWS = 4096, 14336, 32, 8, 128, 128257
SHARD_BYTES = 5_000_000_000
CACHES = ("cold", "warm")
PEAK_ALLOWED, RATIO_ALLOWED = 6 * 2**30, 2.0
Shapes = dict[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Turn:
    """One run of one way."""

    way: str
    cache: str
    seconds: float
    usage: resource.struct_rusage  # counters of the process
    load: float  # load of the machine in the minute before the end

    @property
    def peak_bytes(self) -> int:
        """Largest resident set."""
        return self.usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    def row(self) -> tuple[str, ...]:
        """Cells of the table of turns."""
        blocks = self.usage.ru_inblock, self.usage.ru_oublock  # of 512 bytes
        return (
            self.way,
            self.cache,
            f"{self.seconds:.1f}",
            f"{self.usage.ru_utime:.1f}",
            f"{self.usage.ru_stime:.1f}",
            *(f"{512 * n / 1e9:.1f}" for n in blocks),
            f"{self.peak_bytes / 2**30:.2f}",
            f"{self.load:.1f}",
        )


def shapes(layers: int) -> Shapes:
    """Name and shape of every tensor, in the order of the model."""
    layer = {
        "self_attn.q_proj": (HEADS * HEAD_SIZE, WIDTH),
        "self_attn.k_proj": (KV_HEADS * HEAD_SIZE, WIDTH),
        "self_attn.v_proj": (KV_HEADS * HEAD_SIZE, WIDTH),
        "self_attn.o_proj": (WIDTH, HEADS * HEAD_SIZE),
        "mlp.gate_proj": (FFN, WIDTH),
        "mlp.up_proj": (FFN, WIDTH),
        "mlp.down_proj": (WIDTH, FFN),
        "input_layernorm": (WIDTH,),
        "post_attention_layernorm": (WIDTH,),
    }
    layered = {f"model.layers.{i}.{n}.weight": s for i in range(layers) for n, s in layer.items()}
    return {
        "model.embed_tokens.weight": (ROWS, WIDTH),
        **layered,
        "model.norm.weight": (WIDTH,),
        "score.weight": (1, WIDTH),
    }


def write_model(folder: Path, layers: int) -> int:
    """Writes the folder; returns the bytes of its tensors."""
    folder.mkdir(parents=True)
    groups = list(_shards(shapes(layers)))
    index, rng = {}, np.random.default_rng(0)
    for number, group in enumerate(groups, 1):
        name = f"model-{number:05d}-of-{len(groups):05d}.safetensors"
        _write_shard(folder / name, group, rng)
        index |= dict.fromkeys(group, name)
    total = sum(map(_nbytes, shapes(layers).values()))
    build.write_json(
        folder / "model.safetensors.index.json",
        {"metadata": {"total_size": total}, "weight_map": index},
    )
    build.write_json(folder / "config.json", _config(layers))
    reader = gguf.GGUFReader(build.find_gguf())
    build.build_tokenizer(reader).save(str(folder / "tokenizer.json"))
    build.write_json(folder / "tokenizer_config.json", build.tokenizer_config(reader))
    return total


def copy(source: Path, destination: Path, sync: bool) -> resource.struct_rusage:
    """Copies a folder's files; `sync` waits until they are on the disk."""
    usage = _run("cp", "-r", source, destination)
    if sync:
        for path in destination.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    return usage


def convert(source: Path, destination: Path) -> resource.struct_rusage:
    """Runs `launch.convert`; the start of Python is included."""
    arguments = (f"--source={source}", f"--checkpoint={destination}")
    return _run(sys.executable, "-m", "launch.convert", *arguments)


WAYS = {
    "cp": lambda source, to: copy(source, to, sync=False),
    "cp, synced": lambda source, to: copy(source, to, sync=True),
    "launch.convert": convert,
}


def take_turns(source: Path, scratch: Path) -> Iterator[Turn]:
    """Runs every way cold and warm in each round, and removes its output at once."""
    for _ in range(_ROUNDS.value):
        for cache in CACHES:
            for way, run in WAYS.items():
                if cache == "cold":
                    _drop(source)
                began = time.perf_counter()
                usage = run(source, scratch / "made")
                seconds = time.perf_counter() - began
                load = os.getloadavg()[0]
                shutil.rmtree(scratch / "made")
                os.sync()  # so that the next way does not wait for this one's writes
                yield Turn(way, cache, seconds, usage, load)


def report(turns: Sequence[Turn], total: int) -> tuple[str, bool]:
    """The table, and whether peak memory and ratio are within the limits."""
    median = {
        (way, cache): float(
            np.median([t.seconds for t in turns if (t.way, t.cache) == (way, cache)])
        )
        for way in WAYS
        for cache in CACHES
    }
    rows = [("way", "source", "s", "GB/s", "of cp", "of cp, synced")]
    for (way, cache), seconds in median.items():
        ratios = [f"{seconds / median[base, cache]:.2f}" for base in ("cp", "cp, synced")]
        rows.append((way, cache, f"{seconds:.1f}", f"{total / 1e9 / seconds:.2f}", *ratios))
    peak = max(turn.peak_bytes for turn in turns if turn.way == "launch.convert")
    ratio = max(median["launch.convert", cache] / median["cp", cache] for cache in CACHES)
    return aligned(rows), peak <= PEAK_ALLOWED and ratio <= RATIO_ALLOWED


def main(_) -> None:
    """Writes the model, measures, removes it; fails if peak memory or ratio exceed the limits."""
    print(machine())
    Path(_OUT.value).mkdir(parents=True, exist_ok=True)
    total = sum(map(_nbytes, shapes(_LAYERS.value).values()))
    free = shutil.disk_usage(_OUT.value).free
    if free < 2.2 * total:
        raise SystemExit(
            f"bench.speed.conversion: {free / 1e9:.0f} GB free; it needs {2.2 * total / 1e9:.0f}"
        )
    with tempfile.TemporaryDirectory(dir=_OUT.value, prefix="conversion-") as scratch:
        source = Path(scratch) / "hf"
        write_model(source, _LAYERS.value)
        os.sync()
        print(f"model     {total:,} bytes of tensors, {_LAYERS.value} layers")
        turns = []
        for turn in take_turns(source, Path(scratch)):
            turns.append(turn)
            print(f"{turn.way}, {turn.cache}: {turn.seconds:.1f} s", flush=True)
    head = ("way", "source", "s", "user s", "system s", "GB read", "GB written", "GiB", "load")
    table, good = report(turns, total)
    print(f"\n{aligned([head, *(turn.row() for turn in turns)])}\n\n{table}")
    if not good:
        raise SystemExit(
            f"bench.speed.conversion: allowed: {PEAK_ALLOWED / 2**30:.0f} GiB and "
            f"{RATIO_ALLOWED:g} times cp"
        )


def _config(layers: int) -> dict:
    return {
        "architectures": ["LlamaForSequenceClassification"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "vocab_size": ROWS,
        "hidden_size": WIDTH,
        "intermediate_size": FFN,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_SIZE,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        "max_position_embeddings": 131072,
        "id2label": {"0": "LABEL_0"},
        "tie_word_embeddings": False,
    }


def _run(*command: str | Path) -> resource.struct_rusage:
    """Runs a command to its end; returns the system's counters of its process."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"bench.speed.conversion: {command[:3]} exited with {process.returncode}")
    return usage


def _nbytes(shape: tuple[int, ...]) -> int:
    return 2 * math.prod(shape)


def _shards(tensors: Shapes) -> Iterator[Shapes]:
    """Tensors in order, in groups of at most `SHARD_BYTES`."""
    group: Shapes = {}
    for name, shape in tensors.items():
        if group and sum(map(_nbytes, group.values())) + _nbytes(shape) > SHARD_BYTES:
            yield group
            group = {}
        group[name] = shape
    yield group


def _write_shard(path: Path, tensors: Shapes, rng: np.random.Generator) -> None:
    header, offset = {}, 0
    for name, shape in tensors.items():
        stop = offset + _nbytes(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, stop]}
        offset = stop
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for shape in tensors.values():
            bits = rng.integers(0, 2**16, math.prod(shape), np.uint16)
            bits &= 0x87FF  # sign, low exponent, mantissa …
            bits |= 0x3800  # … of magnitudes from 2^-15 to 2
            bits.tofile(file)


def _drop(folder: Path) -> None:
    """Drops a folder's files from the page cache (Linux; needs no rights)."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    app.run(main)
