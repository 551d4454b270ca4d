"""The steps of a training: found as a trainer saves them, scored, and put on one page."""

import contextlib
import dataclasses
import json
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from etils import epath

import analysis
from analysis import report
from analysis.chapters.steps import headline, lede, over_steps
from analysis.measures.steps import Step, Steps, panel
from analysis.report.folder import check_target
from analysis.settings import AnalyzeSettings, Limits
from analysis.words.questions import check_files
from configs import known_models
from engine.checkpoint.card import REWARD, Checkpoint
from engine.convert.safetensors import check_whole
from engine.display import counted
from engine.errors import AssayError
from engine.lists.files import ConversationList
from engine.runs import schema, storage
from engine.runs.folder import RunFolder
from engine.settings import SweepSettings, check_integer, check_switch, setting
from engine.sources.resolve import name_of
from engine.sweep.reward_jobs import sweep_rewards
from launch.common import behind_replies, command, inputs, reporting, scoring, sources, trackers
from launch.common.config import keys_set, made
from launch.common.text import say

_FOLDER = re.compile(r"checkpoint-(\d+)|global_step(\d+)_hf")
_SERIES = re.compile(r"(.+)-step-(\d+)")  # a model that `import_scores` made of a column
_LOOK_S = 1.0  # between two looks at a folder
_QUIET_S = 60.0  # files that are older are no longer written
_CONVERTED = ".converted"  # in `out`: the model of a step while it is scored


@dataclasses.dataclass(frozen=True, kw_only=True)
class WatchSettings:
    """What `assay watch` takes beside the settings of a sweep."""

    every: int = setting("Score the whole vocabulary at every k-th step; between them a panel.", 10)
    cpu: bool = setting("Score on the CPU, and leave accelerators to the training.", False)
    training: str = setting("Of imported steps of several trainings, the one to show.", "")
    limits: Limits = setting("Limits that steps must hold; only those that are set are checked.")
    analyze: AnalyzeSettings = setting("Settings of the page", like="assay analyze")

    def __post_init__(self) -> None:
        check_integer("every", self.every, 1)
        check_switch("cpu", self.cpu)


class OtherTokens(AssayError):
    """A step of another tokenizer than the steps before it."""


@dataclasses.dataclass(kw_only=True)
class Watch:
    """What is watched and how, and what is known of its steps."""

    given: command.Given
    source: Path
    out: epath.Path
    prompt: tuple[str, str]  # id and text
    settings: WatchSettings
    asked: Sequence[str]  # names of the limits that were set
    lists: Sequence[ConversationList]  # the pairs and their edits, where they are scored
    behind: Mapping[str, str]  # prompt id -> text, of prompts with a reply start
    tracker: trackers.Tracker
    known: dict[int, Step] = dataclasses.field(default_factory=dict)
    last: Mapping[str, Step] = dataclasses.field(default_factory=dict)  # of imported trainings
    looks: dict[Path, object] = dataclasses.field(default_factory=dict)  # folder -> its files
    left_out: set[Path] = dataclasses.field(default_factory=set)  # that cannot be scored
    waited: set[Path] = dataclasses.field(default_factory=set)  # of which it said what is missing

    def place(self, step: int, kind: str = "steps") -> epath.Path:
        """Run folder of a step."""
        return self.out / kind / str(step)

    def found(self) -> dict[int, Path]:
        """Step -> the folder that the trainer saved, ascending, of steps that are not done."""
        names = ((_FOLDER.fullmatch(path.name), path) for path in self.source.iterdir())
        folders = {int(match[1] or match[2]): path for match, path in names if match}
        return {
            step: folders[step]
            for step in sorted(folders)
            if folders[step] not in self.left_out and not self.is_done(step)
        }

    def is_done(self, step: int) -> bool:
        """Whether the runs of a step hold all that is asked."""
        done = _complete(self.place(step)) | _complete(self.place(step, "behind"))
        keys = [f"/{schema.CONVERSATIONS_DIR}/{listed.name}/" for listed in self.lists]
        keys += [f"/prompt={prompt}/" for prompt in (self.prompt[0], *self.behind)]
        return all(any(key in f"/{path}/" for path in done) for key in keys)

    def is_over(self) -> bool:
        """Whether the last step that is wanted is done."""
        last = self.given.until
        return last is not None and any(s >= last and self.is_done(s) for s in self.known)

    def is_whole(self, folder: Path, *, last: bool) -> bool:
        """Whether a folder is written: its files have stopped growing, and their tensors are there.

        Where its files have stopped growing, it says once why not; if it is the `last` look, the
        folder is left out.
        """
        quiet = False
        try:
            state = _state(folder)
            before, self.looks[folder] = self.looks.get(folder), state
            youngest = max((changed / 1e9 for _, changed in state.values()), default=time.time())
            quiet = time.time() - youngest >= _QUIET_S
            if state != before and not quiet:
                return False
            check_whole(folder)
        except (AssayError, FileNotFoundError) as error:
            if last:
                self.left_out.add(folder)
            if last or (quiet and folder not in self.waited):
                self.waited.add(folder)
                say(f"{folder.name}: {error}; {'skipped' if last else 'waiting for it'}")
            return False
        return True

    def read(self) -> None:
        """Opens the runs of steps that are scored."""
        kept, path = self.out / "steps", f"/prompt={self.prompt[0]}"
        for name in storage.names(kept) if storage.exists(kept) else ():
            if not name.isdigit() or (step := int(name)) in self.known:
                continue
            if not any(done.endswith(path) for done in _complete(kept / name)):
                continue
            run, behind = analysis.load(kept / name, finished_only=True), None
            [model] = {model for model, prompt in run.results if prompt == self.prompt[0]}
            if _complete(self.place(step, "behind")) and self.behind:
                behind = analysis.load(self.place(step, "behind"), finished_only=True)
                asked = {key: r for key, r in behind.appended.items() if key[1] in self.behind}
                behind = dataclasses.replace(behind, appended=asked) if asked else None
            items = self.lists[0].name if self.lists else ""
            self.known[step] = Step(
                step=step, model=model, run=run, prompt=self.prompt[0], items=items, behind=behind
            )
        self.known = dict(sorted(self.known.items()))

    def score(self, step: int, folder: Path) -> None:
        """Converts the model of a step, and computes what is missing of its runs."""
        [model] = sources.opened([str(folder)], self.given.config, self.given.config.verify)
        model.expect(REWARD)
        self.check_tokens(model)
        settings, mesh = scoring.settings(SweepSettings, self.given.config, [model])
        run = str(self.place(step))
        arguments = (run, settings, mesh)
        prompts = dict([self.prompt])
        chosen = self.chosen(step, model)
        with command.run_lock("watch", run):
            sweep_rewards([model], prompts, *arguments, chosen=chosen)
            texts = "text" if settings.mode == "auto" else settings.mode
            worded = (run, dataclasses.replace(settings, mode=texts), mesh)
            for listed in self.lists:
                inputs.check_rendering([model], listed)
                sweep_rewards([model], None, *worded, items=listed[:3])
        if self.behind:
            place = str(self.place(step, "behind"))
            self.behind = behind_replies.fitting(
                [model], self.behind, settings.mode, settings.pooling
            )
            with command.run_lock("watch", place):
                panelled = chosen or self.panel(step)
                sweep_rewards([model], self.behind, place, settings, mesh, chosen=panelled)

    def check_tokens(self, model: Checkpoint) -> None:
        """Raises OtherTokens for a model whose tokens are not those of the steps before it."""
        if self.known:
            whole = max(self.known.values(), key=lambda known: known.scores.height)
            same = whole.run.models[whole.model]["vocab"] == model.card.tokenizer_hash
            if not same and dict(whole.scores["token_id", "token"].rows()) != model.tokens:
                raise OtherTokens(f"other tokens than those of step {whole.step}")

    def chosen(self, step: int, model: Checkpoint) -> list[int] | None:
        """The token ids that a step scores; None for the whole vocabulary.

        A step that was begun goes on with its own.
        """
        if storage.is_file(self.place(step) / schema.RUN):
            folder = RunFolder.read(self.place(step))
            table = folder.table(schema.vocab_path(model.card.tokenizer_hash))
            if table is not None:
                ids: list[int] = table["token_id"].sort().to_list()
                return None if len(ids) == len(model.token_ids) else ids
        return self.panel(step) if len(self.known) % self.settings.every else None

    def panel(self, step: int) -> list[int]:
        """The panel behind the last step before it that scored the whole vocabulary.

        Behind a later one, where a step is found after those that follow it.
        """
        self.read()
        size = max(known.scores.height for known in self.known.values())
        whole = [known for known in self.known.values() if known.scores.height == size]
        last = max(whole, key=lambda known: (known.step <= step, known.step))
        return panel(last, self.settings.analyze.options)

    # Any: what JSON holds.
    def write(self) -> tuple[str, list[dict[str, Any]]]:
        """Writes watch.jsonl and the page; returns what they say, and the lines of watch.jsonl."""
        steps, options = [*self.known.values()], self.settings.analyze.options
        training = Steps(steps=steps, options=options, last=self.last)
        records = [
            training.record(at, training.checks(at, self.settings.limits, self.asked))
            for at in range(len(self.known))
        ]
        lines = "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records)
        storage.write_atomic(self.out / "watch.jsonl", lines.encode())
        report.write_report(
            training.steps[-1].run,
            self.out / "report",
            reporting.metadata(),
            self.settings.analyze,
            chapters=over_steps(training),
            lede=lede(training, self.settings.training or str(self.source), self.prompt[1]),
        )
        return headline(training), records


def watched(given: command.Given) -> command.CommandResult:
    """Flags -> settings -> steps, as they are found -> one page."""
    [source] = command.paths(given, "folder") if len(given.folder) == 1 else [""]
    watch = _opened(given, source)
    with command.run_lock("watch", str(watch.out), wait=given.wait):
        if storage.is_file(storage.path_of(source) / schema.RUN):
            _import(watch)
        else:
            _follow(watch)
        if not watch.known:
            raise AssayError(f"{source}: no step is scored; allowed: folders checkpoint-<step>")
        sentence, records = watch.write()
    page = watch.out / "report" / "index.html"
    failed = {record["step"]: names for record in records if (names := _broken(record))}
    lines = [f"step {step} breaks a limit: {', '.join(names)}" for step, names in failed.items()]
    text = "\n".join([*lines, sentence, f"{page}: {counted(len(records), 'step')}"])
    facts = {"page": str(page), "steps": str(watch.out / "watch.jsonl"), "broken": failed}
    return command.CommandResult(text, lambda: facts, exit_status=int(bool(failed)))


def _opened(given: command.Given, source: str) -> Watch:
    """Checks all flags; nothing is written."""
    if not source or not Path(source).is_dir():
        raise AssayError(f"--folder={given.folder}; allowed: one folder, in which a trainer writes")
    if given.config.cpu:
        jax.config.update("jax_platforms", "cpu")
        if jax.default_backend() != "cpu":
            raise AssayError("cpu=True: jax has started on another device; start a new process")
    settings = made(WatchSettings, given.config)
    if settings.training and not storage.is_file(storage.path_of(source) / schema.RUN):
        raise AssayError(f"training={settings.training!r}; allowed: none of the steps of a trainer")
    check_files(settings.analyze.options)
    prompts = scoring.prompts(given)
    if len(prompts) != 1:
        raise AssayError(f"{len(prompts)} prompts; allowed: one, and another --out for another")
    out = storage.path_of(
        given.out or Path("reports", f"watch-{name_of(source, known_models.find)}")
    )
    check_target(out / "report", [storage.path_of(source)])
    if not given.config.cache:
        given.config.cache = str(out / _CONVERTED)
    [prompt], has_starts = prompts.items(), scoring.sweeps_behind(given)
    return Watch(
        given=given,
        source=Path(source),
        out=out,
        prompt=prompt,
        settings=settings,
        asked=[k.removeprefix("limits.") for k in keys_set(given) if k.startswith("limits.")],
        lists=inputs.limited_pairs(given),
        behind=behind_replies.prompts(given, prompts, only=False) if has_starts else {},
        tracker=trackers.tracker(given.log, str(out)),
    )


def _follow(watch: Watch) -> None:
    """Scores steps as they are saved, and writes the page after each, until nothing is left."""
    given = watch.given
    watch.read()
    try:
        while not watch.is_over():
            found = watch.found()
            if given.once and not found:
                return
            ready = (s for s, at in found.items() if watch.is_whole(at, last=given.once))
            if (step := next(ready, None)) is None:
                time.sleep(_LOOK_S)
            else:
                _do(watch, step, found[step])
    except KeyboardInterrupt:
        if not watch.known:
            raise


def _do(watch: Watch, step: int, folder: Path) -> None:
    """Scores a step and writes the page; none of a folder that changes meanwhile."""
    began = time.monotonic()
    try:
        watch.score(step, folder)
    except OtherTokens as error:
        watch.left_out.add(folder)
        say(f"{folder.name}: {error}; skipped")
        return
    except (AssayError, OSError) as error:
        if watch.looks.get(folder) == _state(folder):
            raise
        what = "changed" if folder.is_dir() else "deleted"
        say(f"{folder.name}: {what} meanwhile ({error}); skipped")
        return
    finally:
        shutil.rmtree(watch.out / _CONVERTED, ignore_errors=True)
    scored = time.monotonic()
    watch.known.pop(step, None)
    watch.read()
    sentence, records = watch.write()
    record = next(line for line in records if line["step"] == step)
    watch.tracker(record)
    numbers = {"τ": record["tau_previous"], "pairs right": record["accuracy"]}
    parts = [f"{name} {value:.3f}" for name, value in numbers.items() if value is not None]
    parts += [f"breaks {', '.join(names)}"] if (names := _broken(record)) else []
    times = f"scored in {scored - began:.1f} s, page in {time.monotonic() - scored:.1f} s"
    say("; ".join([f"step {step}: {record['tokens']:,} tokens", *parts, times]))
    say(sentence)


def _broken(record: Mapping[str, Any]) -> list[str]:  # Any: what JSON holds
    """The limits that a step does not hold."""
    return [limit["check"] for limit in record["limits"] if not limit["holds"]]


def _state(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of the last change of the files in a folder; none where it is gone."""
    with contextlib.suppress(FileNotFoundError):
        stats = {path.name: path.stat() for path in folder.iterdir() if path.is_file()}
        return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}
    return {}


def _complete(run: epath.Path) -> set[str]:
    """Paths of the finished results of a run; none where there is no run."""
    if not storage.is_file(run / schema.RUN):
        return set()
    return {path for path, result in RunFolder.read(run).results.items() if result.complete}


def _import(watch: Watch) -> None:
    """Takes the steps of a run that `import_scores` made of columns step-<n>."""
    run, prompt, asked = analysis.load(watch.source), watch.prompt[0], watch.settings.training
    trainings: dict[str, dict[int, Step]] = {}
    for model, under in dict.fromkeys([*run.results, *((m, p) for _, m, p in run.items)]):
        if under == prompt and (match := _SERIES.fullmatch(model)):
            step = Step(step=int(match[2]), model=model, run=run, prompt=prompt)
            trainings.setdefault(match[1], {})[step.step] = step
    ordered = {name: dict(sorted(steps.items())) for name, steps in sorted(trainings.items())}
    asked = next(iter(ordered)) if not asked and len(ordered) == 1 else asked
    if asked not in ordered:
        names = ", ".join(ordered) or "none (--config.prompts chooses the prompt)"
        raise AssayError(
            f"training={asked!r} under {prompt!r}; allowed in {run.folders[0]}: {names}"
        )
    watch.known = ordered[asked]
    watch.last = {name: [*steps.values()][-1] for name, steps in ordered.items()}
