"""Flags and settings that launch.sweep, launch.score and launch.logprobs share."""

from collections.abc import Sequence
from typing import Any

from absl import flags
from jax.sharding import Mesh
from ml_collections import ConfigDict

from engine.api import default_dtype
from engine.checkpoint.card import Checkpoint
from engine.mesh import build_mesh
from engine.sweep.rewards import SweepSettings
from launch import cli

flags.adopt_module_key_flags(cli)  # for --help
CHECKPOINT = flags.DEFINE_list(
    "checkpoint",
    [],
    "Checkpoints to score, comma-separated. They are run in float32 on a CPU, elsewhere in "
    "bfloat16, or in float16 where they are stored in it; --config.dtype names another.",
)
RUN = flags.DEFINE_string("run", None, "A run folder, new or to be continued or added to.")
PROMPT = flags.DEFINE_multi_string("prompt", [], "A prompt of your own instead of --config.prompts")


def checkpoints() -> Sequence[Checkpoint]:
    """The checkpoints named on the command line."""
    return [Checkpoint.open(path) for path in cli.paths(CHECKPOINT.value, "checkpoint")]


def run_folder() -> str:
    """The run folder named on the command line."""
    return cli.paths([RUN.value], "run")[0]


def settings(config: ConfigDict, models: Sequence[Checkpoint]) -> tuple[SweepSettings, Mesh]:
    """The settings of a scoring config for some models, and its mesh."""
    common, mesh = shared_settings(config, models)
    own = {name: config[name] for name in ("mode", "pooling", "objectives")}
    return SweepSettings(**own, **common), mesh


def shared_settings(
    config: ConfigDict, models: Sequence[Checkpoint]
) -> tuple[dict[str, Any], Mesh]:
    """Those of `engine.sweep.loop.Settings`, which configs/common.py declares, and the mesh."""
    mesh = build_mesh(config.mesh.model)
    names = ("step_size", "part_size", "self_check", "seed")
    common = {name: config[name] for name in names}
    platform, auto = mesh.devices.flat[0].platform, config.dtype == "auto"
    dtype = default_dtype(platform, models) if auto else config.dtype
    return {"dtype": dtype, **common}, mesh
