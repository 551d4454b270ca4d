"""Compiles the engine's passes for an H100 that is not there, and counts the bytes they move.

    pip install jax-cuda12-plugin==0.10.2 jax-cuda12-pjrt==0.10.2   # neither GPU nor driver
    python -m bench.gpu_programs [--models=<slug>,…] [--layers=<all>] [--passes=<all four>]

Models are of full size, in bfloat16, with a linear head and without weights. For each pass:

    weights   GB of the layers' parameters
    read      GB of weights that are read, in units of those
    written   GB that are written and depend on weights alone: copies; should be 0
    moved     GB of all else that is read or written: activations, the prompt's keys and values
    CPU s     of this machine to compile

A search's loops over blocks (of 64 candidates) count once: they hide how often they run, so that
the number of blocks changes no program. Nothing is autotuned without a GPU, so a real one may
compile other programs. By hand: the default models take about ten minutes of CPU time.
"""

import argparse
import time
from collections.abc import Sequence

import jax
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh

from bench.common import aligned
from bench.hlo import Program
from bench.tpu import Passes, Work, decoder_of
from configs import known_models, known_shapes
from engine.planning import flops

# What XLA must know of an H100 SXM: limits of CUDA's compute capability 9.0, and the data sheet.
_H100 = """
gpu_device_info {
  cuda_compute_capability { major: 9 }
  core_count: 132  fpus_per_core: 128  threads_per_warp: 32
  threads_per_block_limit: 1024  threads_per_core_limit: 2048
  shared_memory_per_block: 49152  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  registers_per_core_limit: 65536  registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647  block_dim_limit_y: 65535  block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000  l2_cache_size: 52428800
  clock_rate_ghz: 1.98  device_memory_size: 84942979072
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
_GB = 1e9


def mesh() -> Mesh:
    """A mesh of one H100 that need not be there."""
    jax.config.update("jax_platforms", "cpu")  # jax itself must not look for a GPU
    [device] = topologies.get_topology_desc(
        platform="cuda", topology_name="1x1x1", topology="1x1x1", target_config=_H100
    ).devices
    auto = (AxisType.Auto, AxisType.Auto)
    return jax.make_mesh((1, 1), ("data", "model"), axis_types=auto, devices=[device])


def row(passes: Passes, name: str) -> tuple[str, ...]:
    """Compiles one pass; returns its cells."""
    began = time.process_time()
    program = Program(getattr(passes, name)().compile().as_text())
    seconds = time.process_time() - began
    layers = 2 * passes.decoder.num_layers * flops.layer_weights(passes.decoder)
    read, written, moved = program.traffic()
    return (
        name,
        f"{layers / _GB:.2f}",
        f"{read / layers:.2f}",
        f"{written / _GB:.2f}",
        f"{moved / _GB:.2f}",
        f"{seconds:.0f}",
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Compiles everything that the flags name, and prints a table for each model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    models = "skywork-reward-llama-3.1-8b,skywork-reward-gemma-2-27b"
    parser.add_argument("--models", default=models, help="of assay models")
    parser.add_argument("--candidates", type=int, default=2048, help="of a step of a sweep")
    parser.add_argument("--searched", type=int, default=512, help="candidates of a search's step")
    parser.add_argument("--length", type=int, default=20, help="tokens of a searched reply")
    parser.add_argument("--passes", default="step,prompt,gradient,search")
    parser.add_argument("--layers", type=int, default=0, help="of each decoder; 0: all")
    chosen = parser.parse_args(argv)
    for slug in chosen.models.split(","):
        spec = known_models.KNOWN[slug]
        decoder = decoder_of(spec, chosen.layers)
        work = Work(
            candidates=chosen.candidates,
            positions=known_shapes.own_positions(spec),
            length=chosen.length,
            searched=chosen.searched,
        )
        passes = Passes(decoder, mesh(), work)
        rows: list[Sequence[str]] = [("pass", "weights", "read", "written", "moved", "CPU s")]
        rows += [row(passes, name) for name in chosen.passes.split(",")]
        print(f"{slug}, one H100, {decoder.num_layers} layers\n{aligned(rows)}\n", flush=True)


if __name__ == "__main__":
    main()
