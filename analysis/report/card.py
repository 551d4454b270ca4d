"""What people share of a report: a picture of 1200 × 630, and lines for a model card."""

import dataclasses
import math
import pathlib
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from analysis.measures.pairs import LENGTH
from analysis.report import first_screen
from analysis.run import Run
from analysis.sentences import cell, number
from analysis.study import Section, Study
from engine import display

CITATION = "Assay 0.2.0, after Christian et al., arXiv:2506.07326 (FAccT 2025)"
_WORDS = 5  # At either end, of the picture.
_NO_XML = re.compile("[^\\t\\n\\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_WIDE, _LINES = 78, 2  # Characters of a line of the sentence, and its lines.


@dataclasses.dataclass(frozen=True)
class Card:
    """The card of one model.

    Attributes:
      stem: path of its files in the report, without their suffixes.
      image: the picture, a PNG.
      text: the lines, Markdown.
    """

    stem: str
    image: bytes
    text: str


def made(svg: str, text: str, at: int, model: str) -> Card:
    """The card of the model at a place of the report; that of the first stands at its top."""
    import vl_convert

    return Card(f"cards/{model}" if at else "card", vl_convert.svg_to_png(svg), text)


def shown(study: Study) -> list[tuple[str, Mapping[str, Any]]]:  # Any: see `first_screen`
    """The first question, and under it the panel of each model that tells words apart."""
    prompts = list(study.run.vocabulary_prompts)[:1]
    return [
        (question["text"], panel)
        for question in first_screen.questions(study, prompts, len(study.scored))
        for panel in question["panels"]
        if panel["least"] < panel["most"] and panel["highest"]
    ]


def first_sentence(sections: Sequence[Section]) -> str:
    """The first sentence that a chapter tells, or ""."""
    return next((s.findings[0].text for s in sections if s.findings), "")


def values(
    study: Study, question: str, panel: Mapping[str, Any], sentence: str
) -> dict[str, Any]:  # Any: what a template reads
    """What the template of the picture shows of what `shown` returned; `sentence` ends it."""
    columns = [
        [display.plain(word["token"].strip()) for word in panel[end][:_WORDS]]
        for end in ("highest", "lowest")
    ]
    lines = textwrap.wrap(sentence, _WIDE)
    if len(lines) > _LINES:
        lines = [*lines[: _LINES - 1], " ".join(lines[_LINES - 1 :])]
    return {
        "name": _cut(_name(study, panel["model"]), 44),
        "question": _cut(question, 64),
        "columns": [[_cut(word, 24) for word in words] for words in columns],
        "lines": [_cut(line, _WIDE) for line in lines],
        "citation": CITATION,
    }


def markdown(
    study: Study, sections: Sequence[Section], question: str, panel: Mapping[str, Any]
) -> str:  # Any: see `first_screen`
    """Lines for a model card: words, noise, length and conventions, of what `shown` returned."""
    model = panel["model"]
    prompt = next(iter(study.run.vocabulary_prompts))
    rows = [
        ("Question", f"“{question}”"),
        *((f"Rated {end}", _listed(panel[end])) for end in ("highest", "lowest")),
        ("Rewards", f"{number(panel['least'])} to {number(panel['most'])}"),
        ("Noise", _noise(study.run, model, prompt)),
        *(("Length", text) for text in _lengths(study, model)),
        ("Conventions", _conventions(study.run, model, prompt)),
        ("Findings", first_sentence(sections) or "none whose evidence holds"),
        ("Made with", CITATION),
    ]
    lines = [f"## Words that {_plain(_name(study, model))} rewards", "", "| | |", "|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {_plain(text)} |" for name, text in rows), ""])


def _cut(text: str, wide: int) -> str:
    """`text` on one line of so many characters, of which an East Asian one counts as two.

    Signs that no picture may hold are left out.
    """
    shown, room = "", wide
    for sign in _NO_XML.sub("", " ".join(text.split())):
        room -= 1 + (unicodedata.east_asian_width(sign) in "WF")
        if room < 0:
            return f"{shown[:-1].rstrip()}…"
        shown += sign
    return shown


def _listed(words: Sequence[Mapping[str, Any]]) -> str:  # Any: see `first_screen`
    return ", ".join(display.plain(word["token"].strip()) for word in words)


def _noise(run: Run, model: str, prompt: str) -> str:
    check = run.results[model, prompt].self_check
    if check is None:
        return "not known"
    return f"scored again, rewards differ by at most {number(check.max_abs_difference)}"


def _name(study: Study, model: str) -> str:
    """Its whole nickname: a card stands alone."""
    names: list[str] = study.described.filter(model=model)["nickname"].to_list()
    return names[0]


def _lengths(study: Study, model: str) -> Iterator[str]:
    """How often the longer of two replies has the higher reward, in each list of pairs."""
    table = study.tables.get(LENGTH.name)
    rows = [] if table is None else table.filter(model=model).iter_rows(named=True)
    for row in rows:
        if row["longer_higher"] is not None and not math.isnan(row["longer_higher"]):
            numbers = (
                cell(row[key], "share", key) for key in ("longer_higher", "ci_low", "ci_high")
            )
            share, low, high = numbers
            yield (
                f"the longer reply has the higher reward in {share} (95% {low} to {high}) of the "
                f"pairs of “{row['list']}”"
            )


def _conventions(run: Run, model: str, prompt: str) -> str:
    identity = run.results[model, prompt].identity
    rewards = f"{len(run.rewards(model, prompt)[1]):,} tokens"
    mode = {"ids": "each as its id", "text": "each as its text"}.get(identity.mode or "", "")
    dtype = f"computed in {identity.dtype}" if identity.dtype else ""
    return ", ".join(part for part in (rewards, mode, dtype) if part)


def _plain(text: str) -> str:
    """`text` without what Markdown or HTML would read as markup."""
    return re.sub(r"([\\`*_\[\]<>|&#~])", r"\\\1", " ".join(text.split()))


def write(folder: pathlib.Path, cards: Iterable[Card]) -> None:
    """Writes the files of cards into a report."""
    for card in cards:
        place = folder / card.stem
        place.parent.mkdir(exist_ok=True)
        place.with_name(f"{place.name}.png").write_bytes(card.image)
        place.with_name(f"{place.name}.md").write_text(card.text, encoding="utf-8")
