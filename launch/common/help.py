"""What `--help` prints: the command's text, an example, its flags in order, and its settings."""

import textwrap

from absl import flags
from absl.flags import FlagValues

from launch.common import config, joining

# A line that does something useful, for each command.
EXAMPLES = {
    "report": 'assay report out/my-reward-model --prompt="What makes a good answer?"',
    "demo": "assay demo",
    "models": "assay models",
    "cache": "assay cache",
    "plan": "assay plan --source=Skywork/Skywork-Reward-V2-Qwen3-8B",
    "convert": "assay convert --source=out/my-reward-model --checkpoint=checkpoints/mine",
    "sweep": "assay sweep out/my-reward-model --run=runs/mine --config.prompts=greatest,worst",
    "score": "assay score out/my-reward-model --run=runs/mine --items=replies.txt",
    "search": "assay search out/my-reward-model --run=runs/mine --config.length=4",
    "logprobs": "assay logprobs Qwen/Qwen2.5-0.5B-Instruct --run=runs/mine --config.form=chat",
    "import_scores": "assay import_scores --source=elo.csv --layout=items --run=runs/released "
    "--prompt=elo_greatest",
    "reproduce": "assay reproduce --root=out/paper --plan",
    "verify": "assay verify --run=runs/mine",
    "diff": "assay diff --before=checkpoints/old --after=checkpoints/new --run=runs/both "
    "--report=reports/both",
    "analyze": "assay analyze --run=runs/mine --report=reports/mine",
    "serve": "assay serve out/my-reward-model --run=runs/asked",
}
# Flags that few calls need: after the others, in this order.
_LATE = ("wait", "shard", *joining.FLAGS, "config", "print-config", "json", "help")


def text(name: str, doc: str, given: FlagValues, settings: config.CommandSettings | None) -> str:
    """The whole text; a file that `--config` names decides which defaults are shown."""
    parts = [doc.strip()]
    if name in EXAMPLES:
        parts.append(f"example:\n  {EXAMPLES[name]}")
    names = [one for one in given.flag_values_dict() if given[one].name == one]
    late = [one for one in _LATE if one in names]
    ordered = [one for one in names if one not in late] + late
    parts.append("\n".join(["flags:", *(_flag(given[one]) for one in ordered)]))
    return "\n\n".join(parts) + (settings.help_text(given.config) if settings else "")


def _flag(flag: flags.Flag[object]) -> str:
    """A flag with its meaning, and its default where that says something."""
    named = f"--[no]{flag.name}" if flag.boolean and flag.default is not None else f"--{flag.name}"
    said = " ".join(flag.help.split())
    lines = textwrap.wrap(f"  {named}: {said}", 80, subsequent_indent="    ")
    if not flag.boolean and flag.default not in (None, "", []):
        lines.append(f"    (default: {flag.default!r})")
    return "\n".join(lines)
