"""What commands that score share: flags, prompts, settings, and what they print at the end."""

import hashlib
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

import polars as pl
from jax.sharding import Mesh
from ml_collections import ConfigDict
from tqdm import tqdm

from configs.prompts import PROMPTS, SETS
from engine import display, programs
from engine.checkpoint.card import Checkpoint
from engine.display import aligned, counted
from engine.errors import AssayError
from engine.mesh import build_mesh, one_device
from engine.runs.schema import parted
from engine.scoring.reward_passes import default_dtype
from engine.settings import AUTO
from engine.sweep.outcomes import Outcome
from engine.text.chat_template import with_reply_start
from launch.common import command, joining, sources
from launch.common.command import WAIT, Flags, Given, paths
from launch.common.config import given_fields, keys_set, keys_typed
from launch.common.text import nearest, pieces

_Kind = TypeVar("_Kind")
_SHOWN = 5  # tokens per end

MODELS: Flags = {
    "checkpoint": (
        [],
        "Models, as arguments or comma-separated: checkpoints, folders that transformers or TRL "
        "saved, or hub ids.",
    ),
}
PROMPT: Flags = {"prompt": ((), "Your own question, instead of --config.prompts")}
RUN: Flags = {"run": (None, "Folder for the results, new or an earlier one to continue or add to.")}
# Of commands that score models into a run, by several processes too.
FLAGS = (MODELS, RUN, PROMPT, WAIT, joining.FLAGS)
# Prompts with reply starts, which `launch.common.behind_replies` reads.
AFTER: Flags = {
    "after": (
        (),
        "The start of a reply: score every token behind it, under each prompt "
        "(docs/behind-a-reply.md).",
    ),
    "after_items": (
        None,
        "File of replies or pairs, as --items: score every token behind some of its replies, under "
        "their own prompts where they have any.",
    ),
}
REWARD_OF: Flags = {
    "reward-of": (
        [],
        "<policy>,<reference>: two language models instead of --checkpoint; the reward of a reply "
        "is DPO's β (log π - log π_ref) (docs/implicit-rewards.md).",
    ),
}


def inputs(given: Given) -> tuple[str, Sequence[Checkpoint], Mapping[str, str]]:
    """The run folder, the checkpoints and the prompts (id -> text) of the command line."""
    for key in keys_set(given):
        if key == "beta" or (key == "form" and "beta" in given.config):
            raise AssayError(f"{key}={given.config[key]!r}: allowed only with --reward-of")
    run = paths(given, "run")[0]
    asked = prompts(given)
    return run, models_given(given), asked


def sweeps_behind(given: Given) -> bool:
    """Whether the command line has reply starts; raises AssayError for settings of none."""
    for key in keys_set(given) if given.after_items is None else ():
        if key.startswith("after."):
            raise AssayError(f"--config.{key} without --after_items; give both or neither")
    return bool(given.after) or given.after_items is not None


def models_given(given: Given) -> list[Checkpoint]:
    """The checkpoints of --checkpoint."""
    names = paths(given, "checkpoint")
    return sources.checkpoints(names, given.config, given.config.verify)


def prompts(given: Given) -> Mapping[str, str]:
    """Prompt id -> text of the prompts that replies answer; refuses two ways to name them."""
    if given.prompt and "prompts" in keys_typed(given):
        raise AssayError("--prompt beside --config.prompts; give one of the two")
    return chosen_prompts(given.config.prompts, given.prompt)


def chosen_prompts(ids: str, own: Sequence[str]) -> Mapping[str, str]:
    """Prompt id -> text: the texts of --prompt, or the prompts and sets that `ids` names."""
    if own:
        return {prompt_id(text): with_reply_start(text, "") for text in own}
    chosen, known = dict[str, str](), {**PROMPTS, **SETS}
    for name in pieces(ids):
        if name not in known:
            raise AssayError(f"prompts={name!r}{nearest(name, known)}; allowed: {', '.join(known)}")
        chosen |= SETS.get(name) or {name: PROMPTS[name]}
    return chosen


def prompt_id(text: str) -> str:
    """Id of a prompt: its name in configs/prompts.py, or its first words and a hash.

    With a reply start, the id of the prompt without it, and a hash.
    """
    plain, reply_start = parted(text)
    if reply_start:
        return f"{prompt_id(plain)}-after-{hashlib.sha256(text.encode()).hexdigest()[:6]}"
    for name, known in PROMPTS.items():
        if text == known:
            return name
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:32].strip("-")
    return f"{words or 'prompt'}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def settings(
    kind: type[_Kind], config: ConfigDict, models: Sequence[Checkpoint]
) -> tuple[_Kind, Mesh]:
    """Settings of a kind, such as `SweepSettings`, for some models, and the mesh of a config."""
    chosen, mesh = resolved(kind, config, models)
    return kind(**chosen), mesh


# Any: settings are of several types.
def resolved(
    kind: type, config: ConfigDict, models: Sequence[Checkpoint]
) -> tuple[dict[str, Any], Mesh]:
    """The fields of a settings class in a config, `auto` resolved for some models; the mesh.

    Without a setting of the mesh it is one device.
    """
    programs.enable_cache()
    mesh = build_mesh(config.mesh.model) if "mesh" in config else one_device()
    chosen = given_fields(kind, config)
    if config.dtype == AUTO:
        chosen["dtype"] = default_dtype(mesh.devices.flat[0].platform, models)
    if chosen.get("step_size") == AUTO:
        chosen["step_size"] = None
    return chosen, mesh


def result(
    text: str, run: str, slugs: Sequence[str], prompts: Collection[str]
) -> command.CommandResult:
    """The last line of a command that has scored, and for --json what the run holds of it.

    That is, of some models under prompts of some texts.
    """

    def json_facts() -> Mapping[str, Any]:  # Any: what JSON holds
        from analysis.report import facts  # the analysis, which a sweep does not import

        return facts.of_run(run, slugs, prompts)

    return command.CommandResult(text, json_facts)


def computed(
    run: str,
    place: str,
    models: Sequence[Checkpoint],
    prompts: Mapping[str, str],
    new: int,
    what: str = "rewards",
) -> command.CommandResult:
    """`result` of models under prompts: the place in the run, and how many numbers are new."""
    size = f"{counted(len(models), 'model')} × {counted(len(prompts), 'prompt')}"
    line = f"{run}/{place}: {size}, {outcome(new, what)}"
    return result(line, run, [model.card.slug for model in models], [*prompts.values()])


def judged(run: str, name: str, size: str, slugs: Sequence[str], new: int) -> command.CommandResult:
    """`result` of models that have scored a list of conversations of a size in words."""
    place = f"{run}/conversations/{name}/replies.csv"

    def json_facts() -> Mapping[str, Any]:  # Any: what JSON holds
        from analysis.report import facts  # the analysis, which other lists do not import

        results = facts.of_conversations(run, name, slugs)
        return {"run": run, "replies": place, "results": results}

    line = f"{counted(len(slugs), 'model')} × {size}, {outcome(new, 'rewards')}"
    return command.CommandResult(f"{place}: {line}", json_facts)


def outcome(computed: int, what: str) -> str:
    """`1,152 new rewards`, or that nothing was missing."""
    return f"{computed:,} new {what}" if computed else "complete already"


def show_extremes(model: str, prompt: str, scores: pl.DataFrame, left: int) -> None:
    """Prints `extremes` on standard error, above the progress bar."""
    tqdm.write(extremes(model, prompt, scores, left), file=sys.stderr)


def extremes(model: str, prompt: str, scores: pl.DataFrame, left: int = 0) -> str:
    """The five highest and five lowest tokens of a model under a prompt, as three lines.

    `scores` has token_id, token and reward, one row per token; `left` tokens have none yet. Spaces,
    line ends and other invisible characters are shown as marks. Equal rewards are ordered by id.
    """
    so_far = f" (the first {len(scores):,} of {len(scores) + left:,} tokens)" if left else ""
    title = f"{model}, prompt {prompt!r}{so_far}:"
    highest = scores.sort("reward", "token_id", descending=[True, False]).head(_SHOWN)
    lowest = scores.sort("reward", "token_id").head(_SHOWN)
    return "\n".join([title, f"  highest  {_row(highest)}", f"  lowest   {_row(lowest)}"])


def show_first_rows(outcomes: Sequence[Outcome]) -> None:
    """Prints how the first row of a list is rendered: once, unless models render it differently."""
    for row in dict.fromkeys(outcome.first_row for outcome in outcomes if outcome.first_row):
        models = ", ".join(dict.fromkeys(o.model for o in outcomes if o.first_row == row))
        tqdm.write(f"{models}: first row as rendered, read at ⟦ ⟧: {row}", file=sys.stderr)


def show_models(outcomes: Sequence[Outcome]) -> None:
    """Prints what was done of each of several models, and how they render a list's rows."""
    show_first_rows(outcomes)
    if len(outcomes) < 2:
        return
    head = ("model", "prompts", "new rows", "seconds", "status")
    rows = [
        (
            outcome.model,
            f"{outcome.done}/{outcome.prompts}",
            f"{outcome.rows:,}",
            f"{outcome.seconds:.1f}",
            f"failed: {outcome.failure}" if outcome.failure else "complete",
        )
        for outcome in outcomes
    ]
    tqdm.write("\n".join(aligned([head, *rows])), file=sys.stderr)


def _row(scores: pl.DataFrame) -> str:
    rows = scores.select("token", "reward").iter_rows()
    return "   ".join(f"{display.plain(token, limit=24)} {reward:.2f}" for token, reward in rows)
