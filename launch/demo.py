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
from jax.sharding import Mesh
from ml_collections import ConfigDict

import analysis
from analysis import report
from analysis.chapters.changes import Changes
from analysis.measures.two_models import two_models
from configs import analyze
from demo import build
from demo.embedded_models import EMBEDDED, LANGUAGE_MODEL, EmbeddedModel
from engine.checkpoint.card import Checkpoint
from engine.convert.conversion import convert_model
from engine.convert.hub import fetch
from engine.convert.safetensors import TensorFiles
from engine.errors import AssayError
from engine.settings import Limits, LogprobSettings, SearchSettings, SweepSettings
from engine.sweep.logprobs import next_tokens
from engine.sweep.logprobs import replies as reply_logprobs
from engine.sweep.rewards import sweep_replies, sweep_vocabulary
from engine.text.chat_template import TemplatePolicy
from launch.common import command, findings, items, locking, reporting, scoring, searching
from launch.common.prompts import chosen_prompts

_CATEGORIES = Path(analysis.__file__).parent / "words" / "categories.csv"
_FORM = "chat"  # of the prompts of the language model, which was tuned to chat
_STEPS = 9
SEARCHES = ("search", "together", "certified")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What the demo computes.

    Attributes:
      run: run folder.
      prompts: prompt id -> text, of the sweeps.
      words: name of the list of words, or "" for none.
      replies: the words.
      word_prompts: prompt id -> text, of the words.
      settings: of the reward models.
      logprobs: of the language model.
      mesh: devices.
    """

    run: str
    prompts: Mapping[str, str]
    words: str
    replies: Sequence[str]
    word_prompts: Mapping[str, str]
    settings: SweepSettings
    logprobs: LogprobSettings
    mesh: Mesh


def main(argv: Sequence[str]) -> int:
    """Runs the command with its arguments; returns the exit status."""
    define = [scoring.define_prompt, locking.define_wait]
    return command.run("demo", argv, demo, doc=__doc__, define=define, config="demo")


def demo(given: command.Given) -> str:
    """Flags -> settings -> build, convert, score, search, analyze."""
    config = given.config
    root = Path(config.root)
    slugs = _chosen(config.models)
    plan = _plan(config, str(root / "run"), scoring.prompts(given))
    models = [EMBEDDED[slug] for slug in slugs]
    language = [LANGUAGE_MODEL] if config.language_model else []
    searches = {name: searching.settings(config[name], [])[0] for name in SEARCHES}
    pair, limits = pair_of(config.compared), Limits(**config.limits.to_dict())
    _say(1, f"building {len(models) + len(language)} models in {root}/hf")
    folders = _built(root / "hf", [*models, *language])
    _say(2, f"converting them to {root}/checkpoints")
    converted = [_converted(folder, root / "checkpoints" / folder.name) for folder in folders]
    opened = [dataclasses.replace(c, verify=scoring.verify(config)) for c in converted]
    checkpoints, language_models = opened[: len(models)], opened[len(models) :]
    both = {*pair} <= {*slugs}
    for prompt in plan.prompts if both else []:
        limits.check_ends(prompt, len(checkpoints[0].token_ids))
    with locking.held(given, plan.run, "demo"):
        new = _scored(plan, checkpoints) + _logprobs(plan, language_models)
        new += searched(plan, checkpoints, config, searches)
    page = root / "report" / "index.html"
    if new or not page.exists():
        _say(8, f"writing {root}/report")
        reporting.write_report([epath.Path(plan.run)], epath.Path(root / "report"))
    else:
        _say(8, f"keeping {root}/report: nothing new was scored (remove it to write it again)")
    if both and plan.prompts:
        compare(pair, plan, limits, root / "diff")
    return f"report: {page.resolve()}"


def searched(
    plan: Plan,
    checkpoints: Sequence[Checkpoint],
    config: ConfigDict,
    searches: Mapping[str, SearchSettings],
) -> int:
    """Searches of the first prompt; returns how many sequences are new."""
    asked = dict(itertools.islice(plan.prompts.items(), 1))
    of = checkpoints[: config.searched] if asked else []

    def search(name: str, models: Sequence[Checkpoint], allow: tuple[str, ...] = ()) -> int:
        own = searches[name]
        changed = dataclasses.replace(own, allow=allow) if allow else own
        where = (asked, plan.run, changed, plan.mesh, config[name])
        return sum(one.new for one in searching.search(models, *where, judges=checkpoints))

    _say(6, f"searching {searches['search'].length}-token replies to {list(asked)} into {plan.run}")
    new = search("search", of) if of else 0
    tokens = set(of[0].tokens.values()) if of else set()
    words = tuple(text for word in plan.replies if (text := f" {word}") in tokens)
    enough = len(words) >= searches["certified"].topk
    what = (
        f"the best of {len(words)} words, certified" if enough else "too few words to choose from"
    )
    together = f"one reply for {len(of)} models; " if len(of) > 1 else ""
    _say(7, f"{together}{what}")
    if len(of) > 1:
        new += search("together", of)
    if enough:
        new += search("certified", of[:1], words)
    return new


def pair_of(compared: str) -> Sequence[str]:
    """The slugs of the two models that are compared."""
    slugs = compared.split(",")
    if len({*slugs}) != 2 or len(slugs) != 2 or not {*slugs} <= {*EMBEDDED}:
        raise AssayError(
            f"compared={compared!r}; allowed: two different ones of {', '.join(EMBEDDED)}"
        )
    return slugs


def compare(pair: Sequence[str], plan: Plan, limits: Limits, target: Path) -> None:
    """Writes what `assay diff` says of two models of the run: each time, as it takes seconds."""
    _say(9, f"comparing {' with '.join(pair)} into {target}")
    run = analysis.load(plan.run)
    both = two_models(run, run, list(plan.prompts), (pair[0], pair[1]))
    changes = Changes(limits=limits, noise=())
    settings = reporting.settings_of(analyze.get_config())
    report.write_report(both, target, {}, settings, chapters=[changes])


def _plan(config: ConfigDict, run: str, prompts: Mapping[str, str]) -> Plan:
    # Every embedded model is stored in bfloat16.
    settings, mesh = scoring.settings(config, [])
    common, _ = scoring.shared_settings(config, [])
    path = _CATEGORIES if config.words == "categories" else Path(config.words)
    replies = items.read_items(path, "word") if config.words else []
    return Plan(
        run=run,
        prompts=prompts,
        words=items.list_name(path) if config.words else "",
        replies=list(dict.fromkeys(replies)),
        word_prompts=chosen_prompts(config.word_prompts, ()),
        settings=settings,
        logprobs=LogprobSettings(form=_FORM, **common),
        mesh=mesh,
    )


def _scored(plan: Plan, checkpoints: Sequence[Checkpoint]) -> int:
    """Rewards of every token and every word; returns how many are new."""
    of = (plan.run, plan.settings, plan.mesh)
    _say(3, f"scoring every token under {len(plan.prompts)} prompts into {plan.run}")
    new = 0
    if plan.prompts:
        new += sweep_vocabulary(checkpoints, plan.prompts, *of, finished=findings.show)
    _say(4, f"scoring {len(plan.replies)} words under {len(plan.word_prompts)} prompts")
    if plan.words:
        listed = (plan.word_prompts, plan.words, plan.replies, plan.run)
        own = dataclasses.replace(plan.settings, lens=False)
        new += sweep_replies(checkpoints, *listed, own, plan.mesh, findings.show_models)
    return new


def _logprobs(plan: Plan, models: Sequence[Checkpoint]) -> int:
    """Log-probabilities of every token and every word; returns how many are new."""
    of = (plan.run, plan.logprobs, plan.mesh)
    _say(5, f"log-probabilities of {len(models)} language model under the same prompts")
    new = 0
    if models and plan.prompts:
        new += next_tokens(models, plan.prompts, *of)
    if models and plan.words:
        new += reply_logprobs(models, plan.word_prompts, plan.words, plan.replies, *of)
    return new


def _chosen(models: str) -> Sequence[str]:
    slugs = [slug.strip() for slug in models.split(",") if slug.strip()] or list(EMBEDDED)
    for slug in slugs:
        if slug not in EMBEDDED:
            raise AssayError(f"models={slug!r}; allowed: {', '.join(EMBEDDED)}")
    return slugs


def _built(destination: Path, models: Sequence[EmbeddedModel]) -> list[Path]:
    try:
        return build.build(destination, models)
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


def _say(step: int, line: str) -> None:
    print(f"{step}/{_STEPS} {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
