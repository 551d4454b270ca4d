"""Flags and settings that launch.sweep, launch.score, launch.logprobs and launch.search share."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags
from absl.flags import FlagValues
from jax.sharding import Mesh
from ml_collections import ConfigDict

from engine import programs
from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.mesh import build_mesh
from engine.scoring.reward_passes import default_dtype
from engine.settings import Settings, SweepSettings
from launch.common import joining
from launch.common.command import Given, paths
from launch.common.inputs import chosen_prompts
from launch.common.locking import define_wait


def define_flags(given: FlagValues) -> None:
    """Defines --checkpoint, --run, --prompt, --wait, and those that join several processes."""
    flags.DEFINE_list(
        "checkpoint",
        [],
        "Checkpoints to score, comma-separated. They are run in float32 on a CPU, elsewhere in "
        "bfloat16, or in float16 where they are stored in it; --config.dtype names another.",
        flag_values=given,
    )
    flags.DEFINE_string(
        "run", None, "A run folder, new or to be continued or added to.", flag_values=given
    )
    define_prompt(given)
    define_wait(given)
    joining.define_flags(given)


def define_prompt(given: FlagValues) -> None:
    """Defines --prompt."""
    flags.DEFINE_multi_string(
        "prompt", [], "A prompt of your own instead of --config.prompts", flag_values=given
    )


def inputs(given: Given) -> tuple[str, Sequence[Checkpoint], Mapping[str, str]]:
    """The run folder, the checkpoints and the prompts (id -> text) of the command line."""
    run = paths(given, "run")[0]
    chosen = verify_setting(given.config)
    models = [Checkpoint.open(path, verify=chosen) for path in paths(given, "checkpoint")]
    return run, models, prompts(given)


def verify_setting(config: ConfigDict) -> bool | None:
    """What `Checkpoint.open` takes as `verify`."""
    choices = {"auto": None, "true": True, "false": False}
    chosen = str(config.verify).lower()
    if chosen not in choices:
        raise AssayError(f"verify={config.verify!r}; allowed: {', '.join(choices)}")
    return choices[chosen]


def prompts(given: Given) -> Mapping[str, str]:
    """Prompt id -> text of the prompts that replies answer."""
    return chosen_prompts(given.config.prompts, given.prompt)


def settings(config: ConfigDict, models: Sequence[Checkpoint]) -> tuple[SweepSettings, Mesh]:
    """The settings of a scoring config for some models, and its mesh."""
    common, mesh = shared_settings(config, models)
    given = given_fields(SweepSettings, config) | common
    if "tokens" in given:
        given["tokens"] = None if config.tokens == "all" else config.tokens
    return SweepSettings(**given), mesh


def shared_settings(
    config: ConfigDict, models: Sequence[Checkpoint]
) -> tuple[dict[str, Any], Mesh]:  # Any: settings are of several types
    """The fields of `engine.settings.Settings`, of several types, and the mesh."""
    dtype, mesh = dtype_and_mesh(config, models)
    resolved = {"dtype": dtype, "step_size": step_size(config.step_size)}
    return given_fields(Settings, config) | resolved, mesh


# Any: settings are of several types.
def given_fields(settings: type, config: ConfigDict) -> dict[str, Any]:
    """The fields of a settings class that a config has, by name."""
    names = (field.name for field in dataclasses.fields(settings))
    return {name: config[name] for name in names if name in config}


def step_size(value: object) -> int | None:
    """The candidates of a step that a setting names; None for `auto`."""
    if value == "auto":
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise AssayError(f"step_size={value!r}; allowed: 'auto', or integers >= 1")
    return value


def dtype_and_mesh(config: ConfigDict, models: Sequence[Checkpoint]) -> tuple[str, Mesh]:
    """The dtype that a config names, or `auto`'s choice for the models and devices; the mesh."""
    programs.enable_cache()
    mesh = build_mesh(config.mesh.model)
    if config.dtype != "auto":
        return config.dtype, mesh
    return default_dtype(mesh.devices.flat[0].platform, models), mesh


def outcome(computed: int, what: str) -> str:
    """`1,152 new rewards`, or that nothing was missing."""
    return f"{computed:,} new {what}" if computed else "complete already"
