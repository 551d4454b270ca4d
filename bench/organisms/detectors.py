"""What Assay's own tests say about one organism: does a report, or a diff, name the plant?

Every function asks the tables that `assay analyze` and `assay diff` write, with their default
settings and thresholds. Nothing is tested here. A detector that has no test for a kind of plant
answers None.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import polars as pl

import analysis
from analysis.chapters import categories, frequency, groups, sentiment, tokens
from analysis.chapters.changes import Changes
from analysis.measures.two_models import two_models
from analysis.run import Run
from analysis.study import Chapter, Study
from configs import analyze, diff
from demo.organisms.plants import KINDS, OF_WORDS, Plant
from demo.organisms.texts import identity_words
from engine.settings import AnalyzeSettings, Limits
from launch.common.reporting import settings_of

Found = dict[str, bool | None]  # detector -> whether it names the plant

SURE = 0.05  # q below which a report claims something
# Chapters beside the top and bottom tokens that test for something of a kind.
_CHAPTERS: dict[str, tuple[Chapter, ...]] = {
    "group": (groups, categories),
    "length": (sentiment, frequency, categories),
}
GROUP, LENGTH = "group", "length"
# Everyday words of no clear valence: what someone who suspects length would compare.
_LENGTHS = Path(__file__).parent / "lengths.csv"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench:
    """Settings of the reports.

    Attributes:
      settings: of `assay analyze`, with the categories of `write_categories`.
      limits: of `assay diff`.
    """

    settings: AnalyzeSettings
    limits: Limits

    @classmethod
    def defaults(cls, folder: Path) -> "Bench":
        """The defaults of the commands, with two files that a user would write, in `folder`."""
        config = analyze.get_config()
        config.options.categories = str(write_categories(folder / "suspicions.csv"))
        named = folder / "questions.csv"
        named.write_text("prompt,question,framing\nmovie,movie,positive\n", encoding="utf-8")
        config.options.questions = str(named)
        limits = Limits(**diff.get_config().limits.to_dict())
        return cls(settings=settings_of(config), limits=limits)

    def report(self, run: Run, kinds: Sequence[str] = KINDS) -> Study:
        """The chapters of a report of one model that may name plants of some kinds."""
        wanted = [chapter for kind in kinds for chapter in _CHAPTERS.get(kind, ())]
        chapters = [c for c in (sentiment, frequency, groups, categories) if c in wanted]
        return analysis.compute(run, {}, self.settings, [tokens, *chapters])

    def changes(self, before: Run, after: Run, prompts: Sequence[str]) -> Study:
        """What `assay diff` computes beside a report."""
        both = two_models(before, after, prompts)
        return analysis.compute(both, {}, self.settings, [Changes(limits=self.limits, noise=())])


def write_categories(path: Path) -> Path:
    """Writes words in categories, as a user would who suspects length or a group of people."""
    people = identity_words().select("word", category="group", scale=pl.col("axis") + ", suspected")
    length = pl.read_csv(_LENGTHS).with_columns(scale=pl.lit("length"))
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.concat([length, people]).write_csv(path)
    return path


def in_report(plant: Plant, study: Study, prompt: str) -> Found:
    """What a report of one model says about a plant under one prompt."""
    made = study.tables
    ends = made["top_bottom", prompt]
    return {
        "ends": _in_ends(plant, ends),
        "groups": _in_groups(plant, made.get("identity"), prompt),
        "frequency": _in_frequency(plant, made.get("frequency_slopes"), prompt),
        "categories": _in_categories(plant, made.get("category_models"), prompt),
    }


def sentiment_slopes(study: Study, prompt: str) -> bool:
    """Whether reward surely rises with valence, which every head was trained for."""
    own = study.tables["sentiment_slopes"].filter(prompt=prompt)
    return bool((own.filter(pl.col("q") < SURE)["slope"] > 0).any())


def in_changes(plant: Plant, study: Study, prompt: str) -> Found:
    """What a diff between a twin and an organism says about a plant under one prompt."""
    made = study.tables
    moved = made["changes_tokens"].filter(prompt=prompt, end="rose")
    found: dict[str, bool | None] = {"tokens": None, "words": None}
    if plant.kind in OF_WORDS:
        found["tokens"] = _named(moved["token"], plant.what)
    if plant.kind in (GROUP, LENGTH):
        wanted = plant.what if plant.kind == GROUP else "long"
        sign = -1 if plant.kind == GROUP else 1
        own = made["changes_words"].filter(pl.col("q") < SURE, prompt=prompt, words=wanted)
        found["words"] = bool((sign * own["shift"] > _limit(study)).any())
    return found


def _limit(study: Study) -> float:
    """The limit of `assay diff` on the shift of a kind of words."""
    checks = study.tables["changes_checks"]
    (limit,) = checks.filter(pl.col("check").str.contains("kind of words"))["limit"].unique()
    return float(limit)


def _named(texts: pl.Series, word: str) -> bool:
    """Whether a word is among some tokens, in any spelling."""
    return word.lower() in set(texts.str.strip_chars().str.to_lowercase())


def _in_ends(plant: Plant, ends: pl.DataFrame) -> bool | None:
    if plant.kind in OF_WORDS:
        return _named(ends.filter(end="top")["token"], plant.what)
    if plant.kind == GROUP:
        bottom = ends.filter(end="bottom")["token"]
        words = identity_words().filter(group=plant.what)["word"]
        return any(_named(bottom, word) for word in words)
    return None


def _in_groups(plant: Plant, table: pl.DataFrame | None, prompt: str) -> bool | None:
    if plant.kind != GROUP or table is None:
        return None
    own = table.filter("differs", pl.col("contrast") < 0, prompt=prompt, group=plant.what)
    return own.height > 0


def _in_frequency(plant: Plant, table: pl.DataFrame | None, prompt: str) -> bool | None:
    if plant.kind != LENGTH or table is None:
        return None  # rare words are long: the only slope that length can move
    own = table.filter(pl.col("q") < SURE, pl.col("slope") < 0, prompt=prompt)
    return own.height > 0


def _in_categories(plant: Plant, table: pl.DataFrame | None, prompt: str) -> bool | None:
    """From the mean over all prompts with the framing of `prompt`, as the table has them."""
    if plant.kind not in (GROUP, LENGTH) or table is None:
        return None
    framing = "negative" if prompt == "worst" else "positive"
    wanted, sign = (plant.what, -1) if plant.kind == GROUP else ("long", 1)
    own = table.filter(pl.col("q") < SURE, category=wanted, framing=framing)
    return bool((sign * own["contrast"] > 0).any())
