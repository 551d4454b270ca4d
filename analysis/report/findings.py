"""The findings at the top of the page: the first finding of each section, at most five."""

from collections.abc import Sequence

from analysis.blocks import Finding, Section, pictures

MOST = 5
# Ids of sections in the order in which their findings are shown; others follow in page order.
# First the verdict of `assay diff`; then whether the models agree and what they rate highest, then
# what they value, then how far that depends on the prompt, then where it may come from.
ORDER = (
    "changes",
    "agreement",
    "tokens",
    "sentiment",
    "identity",
    "humans",
    "categories",
    "items_agreement",
    "framing",
    "items_framing",
    "wording",
    "conventions",
    "variance",
    "overoptimisation",
    "policies",
    "lens",
    "logprobs",
    "item_logprobs",
    "explained",
    "frequency",
    "items_controls",
    "distributions",
    "shared-ends",
    "items",
    "objectives",
    "sequences",
)


def chosen(sections: Sequence[Section], most: int = MOST) -> list[tuple[Section, Finding]]:
    """The first finding of each section that has one, with the section, in the order of `ORDER`.

    Args:
      sections: those of the page.
      most: number of findings at most.

    Raises:
      ValueError: a finding names a figure that its section does not have.
    """
    places = {name: place for place, name in enumerate(ORDER)}
    found = [section for section in sections if section.findings]
    found.sort(key=lambda section: places.get(section.id, len(places)))  # stable: page order
    return [(section, _first(section)) for section in found[:most]]


def _first(section: Section) -> Finding:
    finding = section.findings[0]
    if finding.picture and finding.picture not in {p.stem for p in pictures(section.blocks)}:
        raise ValueError(f"finding of {section.id}: no figure {finding.picture!r} in its section")
    return finding
