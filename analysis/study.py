"""What the analyses of a report share: the run, the settings, and the tables made so far.

An analysis is an `Analysis`: what it makes (tables), its parts (blocks of the page) and what it
tells (sentences that its tables support). `study.tables` holds every table that analyses earlier
in the list, and earlier lines of the same `make`, have made. A table that cannot be made raises
`Absent` with the reason: it then has no file, and a part that asks for it becomes that reason.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import polars as pl

from analysis.blocks import Block, Finding, Marks, has_rows, notes, only_words
from analysis.model_info import ModelInfo, describe, short_names
from analysis.run import Run
from analysis.sentences import shortened
from analysis.settings import AnalyzeSettings, Options
from engine.errors import AssayError

_WORDS = 60  # Characters of a prompt that are shown where it has no name.
NO_VOCABULARY = "No model scored its vocabulary."


class Absent(Exception):
    """A table that cannot be made; the message is the sentence that the page shows."""


@dataclasses.dataclass(frozen=True)
class Table:
    """A table that a chapter makes.

    Attributes:
      key: its name, and then what it is of, such as ("kendall_tau", "greatest").
      make: computes it; raises `Absent` where it cannot be made.
      file: whether it is written, as the parts of `key` joined by "_".
      why: why it is absent where it has no rows; "": it may have none.
    """

    key: tuple[str, ...]
    make: Callable[[], pl.DataFrame]
    file: bool
    why: str


def table(*key: str, make: Callable[[], pl.DataFrame], file: bool = True, why: str = "") -> Table:
    """A `Table` of the given key; `file=False` for one that only other chapters read."""
    return Table(key=key, make=make, file=file, why=why)


class Tables:
    """Tables by key, and the reason why each absent one is absent.

    Attributes:
      frames: key -> table, in the order they were made.
      absent: key of every absent table -> the reason, one sentence.
      files: file stem -> table, for every table that is written, in the order they were made.
      makers: file stem -> title of the analysis that made it.
    """

    def __init__(self) -> None:
        self.frames: dict[tuple[str, ...], pl.DataFrame] = {}
        self.absent: dict[tuple[str, ...], str] = {}
        self.files: dict[str, pl.DataFrame] = {}
        self.makers: dict[str, str] = {}

    def add(self, wanted: Table, maker: str = "") -> None:
        """Makes a table, or keeps the reason why it cannot be made.

        Raises:
          ValueError: a table of that key was made already.
          AssayError: a table of another key has the same file.
        """
        stem = "_".join(wanted.key)
        if wanted.key in self.frames or wanted.key in self.absent:
            raise ValueError(f"table {wanted.key}: made twice")
        try:
            made = wanted.make()
            self.frames[wanted.key] = required(made, wanted.why) if wanted.why else made
        except Absent as absent:
            self.absent[wanted.key] = str(absent)
            return
        if not wanted.file:
            return
        if stem in self.files:
            raise AssayError(
                f"table {stem}.csv: made twice, because the names of two models or lists and their "
                "prompts join to the same name; allowed: other names"
            )
        self.files[stem] = self.frames[wanted.key]
        self.makers[stem] = maker

    def __getitem__(self, key: str | tuple[str, ...]) -> pl.DataFrame:
        """The table of `key`.

        Raises:
          Absent: it could not be made, for the reason that its own chapter gave.
          LookupError: no chapter so far makes such a table.
        """
        key = (key,) if isinstance(key, str) else key
        if key in self.absent:
            raise Absent(self.absent[key])
        if key not in self.frames:
            raise LookupError(f"table {key}: not made by this chapter or one before it in the list")
        return self.frames[key]

    def get(self, *key: str) -> pl.DataFrame | None:
        """The table of `key`; None where there is none."""
        return self.frames.get(key)

    def of(self, name: str) -> dict[tuple[str, ...], pl.DataFrame]:
        """The tables of one name, by the rest of their keys, in the order they were made."""
        return {key[1:]: frame for key, frame in self.frames.items() if key[0] == name}

    def reason(self, *key: str) -> str | None:
        """Why the table of `key` is absent; None where it is not."""
        return self.absent.get(key)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """A run, the settings of its analysis, and the tables made so far.

    Attributes:
      run: the run.
      infos: slug -> metadata of the model, as far as it is known.
      settings: sizes and choices.
      tables: the tables made so far.
      shared: what several chapters compute once, beside tables; by its name.
    """

    run: Run
    infos: Mapping[str, ModelInfo]
    settings: AnalyzeSettings
    tables: Tables = dataclasses.field(default_factory=Tables)
    shared: dict[str, Any] = dataclasses.field(default_factory=dict)  # Any: of several types

    @property
    def options(self) -> Options:
        """Choices of the analyses."""
        return self.settings.options

    @cached_property
    def described(self) -> pl.DataFrame:
        """`models.csv`."""
        return describe(self.run, self.infos)

    @cached_property
    def names(self) -> dict[str, str]:
        """Slug -> nickname of every model, in the order in which the report lists them.

        Long ones lack what all of them have in common.
        """
        models, nicknames = self.described.select("model", "nickname")
        return dict(zip(models, short_names(nicknames.to_list()), strict=True))

    @cached_property
    def prompt_names(self) -> dict[str, str]:
        """Prompt id -> how the page calls it: its words, or the id where that is one of them.

        Words with which all prompts begin are left out. Of prompts that would be called alike,
        each is called by its id.
        """
        words = {prompt: " ".join(text.split()) for prompt, text in self.run.prompts.items()}
        texts = list(dict.fromkeys(words.values()))
        short = dict(zip(texts, shortened(texts), strict=True))
        called = {
            p: re.sub(r"\.(.+)”", r"” (\1)", f"“{p}”") if _has_id(p, w) else _called(short[w])
            for p, w in words.items()
        }
        times = collections.Counter(called.values())
        return {p: name if times[name] == 1 else f"“{p}”" for p, name in called.items()}

    @property
    def models(self) -> list[str]:
        """Slugs of every model, in the order in which the report lists them."""
        return list(self.names)

    @property
    def scored(self) -> list[str]:
        """Slugs of the models that scored their vocabulary, in that order."""
        return [model for model in self.names if model in self.run.vocabulary_models]

    def scored_under(self, prompt: str) -> list[str]:
        """Slugs of the models that scored their vocabulary under `prompt`, in that order."""
        return [model for model in self.names if (model, prompt) in self.run.results]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Analysis:
    """One analysis of a report.

    Attributes:
      id: anchor in the page.
      title: heading of its section.
      lead: the question, and how the answer is read.
      make: yields its tables, in the order in which they are made.
      parts: each gives blocks of the section; one that raises `Absent` becomes a note.
      told: each gives sentences that a test or an interval supports, the most important first.
      described: one sentence that says what the tables hold, without a test; the answer of the
        section where nothing is told.
      caveats: the limits of its numbers.
      label: its name in the list of sections; the title by default.
      marks: the small chart beside its headline, from what is told first; or None.
      every_prompt: whether its section shows all prompts, however many there are.
    """

    id: str
    title: str
    lead: str
    make: Callable[[Study], Iterable[Table]]
    parts: Sequence[Callable[[Study], Iterable[Block]]]
    told: Sequence[Callable[[Study], Iterable[Finding]]] = ()
    described: Callable[[Study], str] = lambda study: ""
    caveats: Callable[[Study], Sequence[str]] = lambda study: ()
    label: str = ""
    marks: Callable[[Study], Marks | None] = lambda study: None
    every_prompt: bool = False

    def section(self, study: Study) -> Section:
        """Its section of the page."""
        blocks: list[Block] = []
        reasons: list[str] = []
        findings: list[Finding] = []
        for part in self.parts:
            try:
                blocks += part(study)
            except Absent as absent:
                reasons.append(str(absent))
        for told in self.told:
            with contextlib.suppress(Absent):
                findings += [*told(study)]
        described = ""
        with contextlib.suppress(Absent):
            described = self.described(study)
        return Section(
            analysis=self,
            blocks=[*blocks, *notes(reasons)],
            findings=findings,
            described=described,
            caveats=self.caveats(study),
            marks=self.marks(study) if findings else None,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """The section of one analysis on the page.

    Attributes:
      analysis: whose section it is.
      blocks: its content.
      findings: what its tables say, the most important first.
      described: what they hold, in one sentence without a test; or "".
      caveats: the limits of its numbers; shown where it has a table.
      marks: the small chart beside its headline, or None.
    """

    analysis: Analysis
    blocks: Sequence[Block]
    findings: Sequence[Finding] = ()
    described: str = ""
    caveats: Sequence[str] = ()
    marks: Marks | None = None

    @property
    def label(self) -> str:
        """Its name in the list of sections."""
        return self.analysis.label or self.analysis.title

    @property
    def answer(self) -> str:
        """The sentence below its heading: what it found, else what its tables hold, else `lead`."""
        return self.findings[0].text if self.findings else self.described or self.analysis.lead

    @property
    def has_rows(self) -> bool:
        """Whether a table stands in the section."""
        return has_rows(self.blocks)

    @property
    def is_empty(self) -> bool:
        """Whether it has neither a figure nor a table: nothing but words."""
        return only_words(self.blocks)


def _has_id(prompt: str, words: str) -> bool:
    word = prompt.split(".")[0]  # "best" of "best.chat", which is another form of one prompt
    return word.lower() in re.findall(r"\w+", words.lower())


def _called(words: str) -> str:
    return (
        f"“{words}”"
        if len(words) <= _WORDS
        else f"“{words[: _WORDS // 2]}…{words[-_WORDS // 2 :]}”"
    )


def required(frame: pl.DataFrame, reason: str) -> pl.DataFrame:
    """`frame`, if it has rows.

    Raises:
      Absent: with `reason`; it has none.
    """
    if frame.height == 0:
        raise Absent(reason)
    return frame


def prompts_in(frame: pl.DataFrame | None) -> list[str]:
    """The prompts of a table, in the order of its rows; none for None."""
    return [] if frame is None else frame["prompt"].unique(maintain_order=True).to_list()


def compute(
    run: Run,
    infos: Mapping[str, ModelInfo],
    settings: AnalyzeSettings,
    chapters: Sequence[Analysis],
) -> Study:
    """A study with every table of `chapters`, made in their order.

    Args:
      run: what `analysis.load` returned.
      infos: slug -> metadata of the model, as far as it is known.
      settings: sizes and choices.
      chapters: the analyses, such as `analysis.chapters.CHAPTERS`.
    """
    study = Study(run=run, infos=infos, settings=settings)
    for chapter in chapters:
        for wanted in chapter.make(study):
            study.tables.add(wanted, chapter.title)
    return study
