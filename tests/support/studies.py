"""What a chapter says of a study, as tests read it."""

import re
from types import ModuleType

from analysis import Study
from analysis.blocks import Finding


def found(chapter: ModuleType, study: Study) -> list[Finding]:
    """The findings that it has evidence for."""
    return list(chapter.ANALYSIS.section(study).findings)


def told(chapter: ModuleType, study: Study) -> list[str]:
    """The sentences of its findings."""
    return [finding.text for finding in found(chapter, study)]


def texts(chapter: ModuleType, study: Study) -> list[str]:
    """The texts between its figures and tables."""
    return [b.text for b in chapter.ANALYSIS.section(study).blocks if b.kind == "text"]


def cited(text: str) -> list[str]:
    """What a sentence cites, in its order: what stands in “quotes”, and its numbers.

    Tests pin these and not the words between them. A digit of a word ("m0") is no number.
    """
    values = re.finditer(r"“([^”]*)”|(?<![\w.])(−?\.?\d(?:[\d,.]*\d)?)", text)
    return [value[1] or value[2] for value in values]
