"""The outline of the page: its headlines, its groups, and what found nothing.

Which analyses there are, and in which order, stands in `analysis/chapters/__init__.py`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from analysis.blocks import Block, Finding, Heading, Picture, Text, Under, pictures
from analysis.chapters import GROUPS, OVER_STEPS
from analysis.study import Section

HEADLINES = 5  # At most.


def groups(sections: Sequence[Section]) -> list[dict[str, Any]]:
    """The sections with blocks, by group of `chapters.GROUPS`; unknown ones are in the last.

    Returns:
      For each group its anchor in the page (`id`), its heading (`title`), its `sections` with a
      figure or a table, and the others (`empty`).
    """
    group_of = {chapter.id: group for group, _, inside in GROUPS for chapter in inside}
    group_of |= {s.analysis.id: OVER_STEPS for s in sections if s.analysis.id.startswith("steps")}
    made = []
    for id_, title, _ in GROUPS:
        inside = [s for s in sections if group_of.get(s.analysis.id, GROUPS[-1][0]) == id_]
        full, empty = ([s for s in inside if s.blocks and s.is_empty is e] for e in (False, True))
        made.append({"id": id_, "title": title, "sections": full, "empty": empty})
    return made


def by_reason(sections: Sequence[Section]) -> list[tuple[str, list[Section]]]:
    """Sections without a figure or a table, by the reason that they give.

    Returns:
      The reason, one sentence or "", and the sections that give it; in page order.
    """
    of_reason: dict[str, list[Section]] = {}
    for section in sections:
        of_reason.setdefault(_reason(section), []).append(section)
    return list(of_reason.items())


def headlines(sections: Sequence[Section]) -> list[tuple[Section, Finding]]:
    """The first finding of each section that has one, with the section; the first sections' alone.

    Raises:
      ValueError: a finding names a figure that its section does not have.
    """
    told = [section for section in sections if section.findings]
    return [(section, _first(section)) for section in told[:HEADLINES]]


def _first(section: Section) -> Finding:
    finding, name = section.findings[0], section.analysis.id
    if finding.picture and finding.picture not in {p.stem for p in pictures(section.blocks)}:
        raise ValueError(f"finding of {name}: no figure {finding.picture!r} in its section")
    return finding


def _reason(section: Section) -> str:
    texts = [block for block in section.blocks if isinstance(block, Text)]
    texts.sort(key=lambda block: block.role != "note")  # stable: a note before other text
    return texts[0].text if texts else ""


def charts(section: Section, prompts: Sequence[str]) -> dict[str, Picture]:
    """The chart that stands beside a section's answer.

    It is the one that the first finding names. Where none is named it is the first of the section,
    and where that is of one prompt, its like under the question that the reader chooses.

    Returns:
      Prompt -> chart, or "" -> chart where it is of all prompts; empty without a figure.
    """
    by_stem = {picture.stem: picture for picture in pictures(section.blocks)}
    if section.findings and section.findings[0].picture:
        return {"": by_stem[section.findings[0].picture]}
    stem = next(iter(by_stem), "")
    if not stem:
        return {}
    of = next((prompt for prompt in prompts if stem.endswith(f"_{prompt}")), None)
    if of is None:
        return {"": by_stem[stem]}
    base = stem.removesuffix(of)
    return {prompt: by_stem[base + prompt] for prompt in prompts if base + prompt in by_stem}


def question(block: Block, beside: Sequence[Block], prompts: Sequence[str]) -> str:
    """The prompt under whose question alone `block` is shown, or "".

    It is that of `Under`. Charts with one stem for each of `prompts` take turns, too.
    """
    if isinstance(block, Under):
        return block.prompt if len(prompts) > 1 else ""
    if not isinstance(block, Picture) or len(prompts) < 2:
        return ""
    stems = {picture.stem for picture in beside if isinstance(picture, Picture)}
    for prompt in prompts:
        base = block.stem.removesuffix(prompt)
        if base != block.stem and {base + other for other in prompts} <= stems:
            return prompt
    return ""


def without(blocks: Sequence[Block], shown: Sequence[Picture]) -> list[Block]:
    """`blocks` without some pictures, and without headings that then stand above nothing."""
    kept: list[Block] = []
    for block in reversed(blocks):
        above_nothing = not kept or isinstance(kept[-1], Heading)
        if any(block is picture for picture in shown):
            continue
        if isinstance(block, Under):
            block = dataclasses.replace(block, blocks=without(block.blocks, shown))
        if not (isinstance(block, Heading) and above_nothing):
            kept.append(block)
    return kept[::-1]
