"""What a chapter says of a study, as tests read it."""

from types import ModuleType

from analysis import Study


def told(chapter: ModuleType, study: Study) -> list[str]:
    """The sentences that it has evidence for."""
    return [finding.text for finding in chapter.ANALYSIS.section(study).findings]


def texts(chapter: ModuleType, study: Study) -> list[str]:
    """The texts between its figures and tables."""
    return [b.text for b in chapter.ANALYSIS.section(study).blocks if b.kind == "text"]
