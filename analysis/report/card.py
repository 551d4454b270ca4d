"""What people share of a report: a picture of 1200 × 630, and lines for a model card."""

import pathlib
import re
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.report import first_screen
from analysis.run import Run
from analysis.sentences import number
from analysis.study import Section, Study
from engine import display

PNG, MARKDOWN = "card.png", "card.md"
CITATION = "Assay 0.2.0, after Christian et al., arXiv:2506.07326 (FAccT 2025)"
_WORDS = 5  # At either end, of the picture.
_NO_XML = re.compile("[^\\t\\n\\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_WIDE, _LINES = 78, 2  # Characters of a line of the sentence, and its lines.


def files(study: Study, sections: Sequence[Section], svg: str) -> dict[str, bytes]:
    """The files of the card, by name; none of a run without the rewards of a vocabulary.

    `svg` is what `picture` returned.
    """
    import vl_convert

    if not svg:
        return {}
    image: bytes = vl_convert.svg_to_png(svg)
    return {PNG: image, MARKDOWN: markdown(study, sections).encode()}


def shown(study: Study) -> tuple[str, Mapping[str, Any]] | None:  # Any: see `first_screen`
    """The first question that tells words apart, and the panel of the first model under it."""
    for question in first_screen.questions(study, list(study.run.vocabulary_prompts)[:1]):
        for panel in question["panels"]:
            if panel["least"] < panel["most"] and panel["highest"]:
                return question["text"], panel
    return None


def said(sections: Sequence[Section]) -> str:
    """The first sentence that a chapter tells, or ""."""
    return next((s.findings[0].text for s in sections if s.findings), "")


def values(study: Study, sentence: str) -> dict[str, Any] | None:  # Any: what a template reads
    """What the template of the picture shows, or None; `sentence` is the last line."""
    if (found := shown(study)) is None:
        return None
    question, panel = found
    columns = [
        [display.plain(word["token"].strip()) for word in panel[end][:_WORDS]]
        for end in ("highest", "lowest")
    ]
    lines = textwrap.wrap(sentence, _WIDE)
    if len(lines) > _LINES:
        lines = [*lines[: _LINES - 1], " ".join(lines[_LINES - 1 :])]
    return {
        "name": _cut(study.names[panel["model"]], 44),
        "question": _cut(question, 64),
        "columns": [[_cut(word, 24) for word in words] for words in columns],
        "lines": [_cut(line, _WIDE) for line in lines],
        "citation": CITATION,
    }


def markdown(study: Study, sections: Sequence[Section]) -> str:
    """Twelve lines for a model card: words, noise and conventions of the first model."""
    found = shown(study)
    assert found is not None
    question, panel = found
    model = panel["model"]
    prompt = next(iter(study.run.vocabulary_prompts))
    rows = [
        ("Question", f"“{question}”"),
        *((f"Rated {end}", _listed(panel[end])) for end in ("highest", "lowest")),
        ("Rewards", f"{number(panel['least'])} to {number(panel['most'])}"),
        ("Noise", _noise(study.run, model, prompt)),
        ("Conventions", _conventions(study.run, model, prompt)),
        ("Findings", said(sections) or "none whose evidence holds"),
        ("Made with", CITATION),
    ]
    lines = [f"## Words that {_plain(study.names[model])} rewards", "", "| | |", "|---|---|"]
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


def _conventions(run: Run, model: str, prompt: str) -> str:
    identity = run.results[model, prompt].identity
    rewards = f"{len(run.rewards(model, prompt)[1]):,} tokens"
    mode = {"ids": "each as its id", "text": "each as its text"}.get(identity.mode or "", "")
    dtype = f"computed in {identity.dtype}" if identity.dtype else ""
    return ", ".join(part for part in (rewards, mode, dtype) if part)


def _plain(text: str) -> str:
    """`text` without what Markdown or HTML would read as markup."""
    return re.sub(r"([\\`*_\[\]<>|&#~])", r"\\\1", " ".join(text.split()))


def write(folder: pathlib.Path, card: Mapping[str, bytes]) -> None:
    """Writes the files of a card into a report."""
    for name, content in card.items():
        (folder / name).write_bytes(content)
