"""What `--help` prints: what the command does, examples, then its flags and settings in groups."""

import re
import textwrap

from absl import flags
from absl.flags import FlagValues

from launch.common import config

# Lines that do something useful, of every command. `--help` explains the flags in them first.
EXAMPLES = """\
assay report out/my-reward-model --prompt="What makes a good answer?"
assay report org/model-a org/model-b --items=pairs.jsonl --out=reports/both
assay demo
assay demo --small --config.root=out/tried
assay models
assay cache --clear=my-reward-model
assay plan Skywork/Skywork-Reward-V2-Qwen3-8B
assay convert --source=out/my-reward-model --checkpoint=checkpoints/mine
assay convert --source=org/model --revision=main --checkpoint=checkpoints/its
assay sweep out/my-reward-model --run=runs/mine --prompt="What is best?"
assay sweep model-a model-b --run=runs/both --config.prompts=greatest,worst
assay score model --run=runs/mine --items=words.txt --prompt="What is best?"
assay score model --run=runs/mine --items=pairs.jsonl --probes
assay search out/my-reward-model --run=runs/mine --config.length=4
assay search model --run=runs/mine --prompt="Best?" --config.direction=min
assay logprobs org/language-model --run=runs/mine --config.form=chat
assay logprobs org/language-model --run=runs/mine --items=words.txt
assay import_scores --source=elo.csv --layout=items --run=runs/elo --prompt=best
assay import_scores --source=model_scores --layout=tokens --run=runs/theirs
assay import_scores --source=steps.csv --layout=items --run=runs/mine --model=mine
assay reproduce --root=out/paper --source-dir=models --elo=elo.csv
assay verify --run=runs/mine
assay verify --run=runs/mine --rescore=16 --checkpoint=checkpoints/mine
assay diff --before=old-model --after=new-model --run=runs/both --report=both
assay diff --before=runs/old --after=runs/new --report=reports/both
assay watch out/my-reward-model --items=pairs.jsonl
assay watch out/my-reward-model --once --config.every=5
assay analyze --run=runs/mine --report=reports/mine
assay serve out/my-reward-model
assay serve model-a model-b --run=runs/asked --port=8431""".splitlines()
# Group -> its flags and settings; a section of settings by its name. All others are the command's.
_GROUPS = {
    "model": "folder checkpoint reward-of beta language_model base cache convert verify mode "
    "pooling",
    "prompt": "prompt prompts form items column name probes word_prompts",
    "": "",
    "output": "run report out objectives lens analyze part_size",
    "computing": "dtype step_size mesh check_memory self_check seed shard multihost coordinator "
    "processes process join_timeout",
    "general": "config wait json help",
}
_WIDTH = 80
_REPEATED = re.compile(r";\s+repeat this option to specify a list of values$")  # absl's words


def text(
    name: str,
    doc: str,
    given: FlagValues,
    settings: config.CommandSettings | None,
    positional: str,
) -> str:
    """The whole text; a file that `--config` names decides which defaults are shown."""
    does, *details = doc.strip().split("\n\n")
    examples = [line for line in EXAMPLES if line.split()[1] == name]
    entries = {key: _flag(given[key]) for key in given if given[key].name == key}
    for key, value, meaning in settings.described(given.config) if settings else ():
        entries[f"config.{key}"] = _entry(f"config.{key}", meaning, value)
    shown = [*filter(None, [positional]), *re.findall(r"--([\w.-]+)", " ".join(examples))]
    groups = {"most used": [entries.pop(key) for key in dict.fromkeys(shown)]}
    groups |= {group or name: [] for group in _GROUPS}
    group_of = {key: group for group, keys in _GROUPS.items() for key in keys.split()}
    for key, entry in entries.items():
        groups[group_of.get(key.removeprefix("config.").split(".")[0]) or name].append(entry)
    blocks = ["\n".join([f"{title}:", *group]) for title, group in groups.items() if group]
    blocks[bool(shown) : bool(shown)] = map(_filled, details)
    return "\n\n".join([_filled(does), "\n  ".join(["examples:", *examples]), *blocks])


def _flag(flag: flags.Flag[object]) -> str:
    """A flag with its meaning, and its default where that says something."""
    meaning = _REPEATED.sub(" (repeatable)", flag.help or "")
    if flag.boolean and flag.default is not None:
        return _entry(f"[no]{flag.name}", meaning, None)
    return _entry(flag.name, meaning, flag.default)


def _entry(name: str, meaning: str, default: object) -> str:
    shown = "" if default in (None, "", []) else f" (default:\xa0{default})"  # on one line
    line = f"  --{name}: {' '.join(meaning.split())}{shown}"
    filled = textwrap.fill(line, _WIDTH, subsequent_indent="    ", break_on_hyphens=False)
    return filled.replace("\xa0", " ")


def _filled(paragraph: str) -> str:
    """A paragraph in lines of a terminal's width; where lines are indented, all stay."""
    return paragraph if re.search("^ ", paragraph, re.M) else textwrap.fill(paragraph, _WIDTH)
