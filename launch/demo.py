"""Builds the embedded reward models, sweeps, searches, writes the report. See configs/demo.py.

Every step keeps finished work: a second run ends in seconds, and a killed run is continued.
"""

import dataclasses
import itertools
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from etils import epath

from demo import build
from demo.embedded_models import EMBEDDED
from engine.checkpoint.card import Checkpoint
from engine.convert.conversion import convert_model
from engine.convert.hub import fetch
from engine.convert.safetensors import TensorFiles
from engine.errors import AssayError
from engine.sweep.rewards import sweep_vocabulary
from engine.text.chat_template import TemplatePolicy
from launch.common import command, findings, locking, reporting, scoring, searching


def main(argv: Sequence[str]) -> int:
    """Runs the command with its arguments; returns the exit status."""
    define = [scoring.define_prompt, locking.define_wait]
    return command.run("demo", argv, demo, doc=__doc__, define=define, config="demo")


def demo(given: command.Given) -> str:
    """Flags -> settings -> build, convert, sweep, search, analyze."""
    config = given.config
    root = Path(config.root)
    run = str(root / "run")
    slugs = _chosen(config.models)
    prompts = scoring.prompts(given)
    settings, mesh = scoring.settings(config, [])  # every embedded model is stored in bfloat16
    own, _ = searching.settings(config.search, [])
    _say(f"1/5 building {len(slugs)} reward models in {root}/hf")
    folders = _built(root / "hf", slugs)
    _say(f"2/5 converting them to {root}/checkpoints")
    converted = [_converted(folders[slug], root / "checkpoints" / slug) for slug in slugs]
    checkpoints = [dataclasses.replace(c, verify=scoring.verify(config)) for c in converted]
    with locking.held(given, run, "demo"):
        _say(f"3/5 scoring every token under {len(prompts)} prompts into {run}")
        rewards = sweep_vocabulary(
            checkpoints, prompts, run, settings, mesh, finished=findings.show
        )
        asked = dict(itertools.islice(prompts.items(), 1))
        _say(f"4/5 searching {own.length}-token replies to {next(iter(asked))!r} into {run}")
        searched = checkpoints[: config.searched]
        found = (
            searching.search(searched, asked, run, own, mesh, config.search, judges=checkpoints)
            if searched
            else []
        )
    page = root / "report" / "index.html"
    if rewards or any(one.new for one in found) or not page.exists():
        _say(f"5/5 writing {root}/report")
        reporting.write_report([epath.Path(run)], epath.Path(root / "report"))
    else:
        _say(f"5/5 keeping {root}/report: nothing new was scored (remove it to write it again)")
    return f"report: {page.resolve()}"


def _chosen(models: str) -> Sequence[str]:
    slugs = [slug.strip() for slug in models.split(",") if slug.strip()] or list(EMBEDDED)
    for slug in slugs:
        if slug not in EMBEDDED:
            raise AssayError(f"models={slug!r}; allowed: {', '.join(EMBEDDED)}")
    return slugs


def _built(destination: Path, slugs: Sequence[str]) -> dict[str, Path]:
    try:
        return {path.name: path for path in build.build(destination, [EMBEDDED[s] for s in slugs])}
    except OSError as error:  # no weights package, or no room
        raise AssayError(f"building into {destination}: {error}") from error


def _converted(folder: Path, destination: Path) -> Checkpoint:
    """The checkpoint of a built folder; an existing one is kept if it was made from this folder."""
    policy = TemplatePolicy(bos="template", date=None)
    if destination.exists():
        if checkpoint := _current(folder, destination, policy):
            return checkpoint
        shutil.rmtree(destination)
    return convert_model(fetch(str(folder), None), destination, slug=folder.name, policy=policy)


def _current(folder: Path, destination: Path, policy: TemplatePolicy) -> Checkpoint | None:
    """The checkpoint at `destination`, if it is what converting `folder` would make."""
    try:
        checkpoint = Checkpoint.open(destination)
        template = checkpoint.template
    except AssayError:  # written by an earlier version, or damaged
        return None
    card = checkpoint.card
    same_files = dict(card.files) == TensorFiles.open(folder).hashes()
    same_template = template.tokenizer.chat_template == build.CHAT_TEMPLATE
    return checkpoint if same_files and same_template and card.policy == policy else None


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
