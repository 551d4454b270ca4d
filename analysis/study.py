"""What the chapters of a report share: the run, the settings, and the tables made so far.

A chapter is a module of `analysis.chapters` with two functions, which are called in this order:

    def tables(study: Study) -> Iterable[Table]       # what it computes
    def section(study: Study) -> Section              # its section of the page, and its figures

`study.tables` holds every table that chapters earlier in the list, and earlier lines of the same
`tables` function, have made. A table that cannot be made raises `Absent` with the reason: it then
has no file, and the section shows the reason.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import polars as pl

from analysis.blocks import Section
from analysis.model_info import ModelInfo, describe
from analysis.run import Run
from engine.errors import AssayError
from engine.settings import AnalyzeSettings, Options

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
    """

    key: tuple[str, ...]
    make: Callable[[], pl.DataFrame]
    file: bool


def table(*key: str, make: Callable[[], pl.DataFrame], file: bool = True) -> Table:
    """A `Table` of the given key; `file=False` for one that only other chapters read."""
    return Table(key=key, make=make, file=file)


class Tables:
    """Tables by key, and the reason why each absent one is absent."""

    def __init__(self) -> None:
        self._frames: dict[tuple[str, ...], pl.DataFrame] = {}
        self._reasons: dict[tuple[str, ...], str] = {}
        self._files: dict[str, tuple[str, ...]] = {}

    def add(self, wanted: Table) -> None:
        """Makes a table, or keeps the reason why it cannot be made.

        Raises:
          ValueError: a table of that key was made already.
          AssayError: a table of another key has the same file.
        """
        stem = "_".join(wanted.key)
        if wanted.key in self._frames or wanted.key in self._reasons:
            raise ValueError(f"table {wanted.key}: made twice")
        try:
            self._frames[wanted.key] = wanted.make()
        except Absent as absent:
            self._reasons[wanted.key] = str(absent)
            return
        if not wanted.file:
            return
        if stem in self._files:
            raise AssayError(
                f"table {stem}.csv: made twice, because the names of two models or lists and their "
                "prompts join to the same name; allowed: other names"
            )
        self._files[stem] = wanted.key

    def __getitem__(self, key: str | tuple[str, ...]) -> pl.DataFrame:
        """The table of `key`.

        Raises:
          Absent: it could not be made, for the reason that its own chapter gave.
          LookupError: no chapter so far makes such a table.
        """
        key = (key,) if isinstance(key, str) else key
        if key in self._reasons:
            raise Absent(self._reasons[key])
        if key not in self._frames:
            raise LookupError(f"table {key}: not made by this chapter or one before it in the list")
        return self._frames[key]

    def get(self, *key: str) -> pl.DataFrame | None:
        """The table of `key`; None where there is none."""
        return self._frames.get(key)

    def of(self, name: str) -> dict[tuple[str, ...], pl.DataFrame]:
        """The tables of one name, by the rest of their keys, in the order they were made."""
        return {key[1:]: frame for key, frame in self._frames.items() if key[0] == name}

    def filtered(
        self,
        keep: Callable[[tuple[str, ...]], bool],
        cut: Callable[[pl.DataFrame], pl.DataFrame],
    ) -> "Tables":
        """The tables whose key `keep` accepts, each as `cut` leaves it; for the page alone."""
        part = Tables()
        part._frames = {key: cut(frame) for key, frame in self._frames.items() if keep(key)}
        part._reasons = dict(self._reasons)
        return part

    def reason(self, *key: str) -> str | None:
        """Why the table of `key` is absent; None where it is not."""
        return self._reasons.get(key)

    @property
    def absent(self) -> Mapping[tuple[str, ...], str]:
        """Key of every absent table -> the reason, one sentence."""
        return self._reasons

    @property
    def files(self) -> dict[str, pl.DataFrame]:
        """File stem -> table, for every table that is written, in the order they were made."""
        return {stem: self._frames[key] for stem, key in self._files.items()}


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
        """Slug -> nickname of every model, in the order in which the report lists them."""
        return dict(self.described.select("model", "nickname").iter_rows())

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


class Chapter(Protocol):
    """One analysis: a module, or anything with its two functions."""

    def tables(self, study: Study, /) -> Iterable[Table]:
        """The tables, in the order in which they are made."""

    def section(self, study: Study, /) -> Section:
        """The section of the page, with its figures."""


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
    chapters: Sequence[Chapter],
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
        for wanted in chapter.tables(study):
            study.tables.add(wanted)
    return study
