"""The page of a run of many prompts: most sections show only some of them.

Chapters draw a figure for each prompt, and list numbers for each model and prompt. Where
vocabularies were scored under more prompts than `analyze.page_prompts`, a chapter's section is
made from a study of that many; its tables and its findings still come from all of them. A chapter
whose section shows all prompts together has `every_prompt`.
"""

import dataclasses
from collections.abc import Collection, Sequence

import polars as pl

from analysis.blocks import Finding, pictures
from analysis.study import Analysis, Section, Study, Tables
from analysis.words.questions import questions

_PANELS = 120  # Of the figures of one kind, one for each model and prompt that is shown.
_COLUMNS = ("prompt", "prompt_a", "prompt_b")


def sections_of(study: Study, chapters: Sequence[Analysis]) -> list[Section]:
    """The sections of the page, in the order of `chapters`."""
    prompts = shown(study)
    if len(prompts) == len(study.run.vocabulary_prompts):
        return [chapter.section(study) for chapter in chapters]
    few = limited(study, prompts)
    return [_section(chapter, study, few) for chapter in chapters]


def shown(study: Study) -> list[str]:
    """Ids of the prompts of vocabularies that most sections show, in the order of the run.

    They are the first of each question that prompts ask in several wordings, then the others in
    their order, up to `page_prompts`. Above 20 models there are fewer, because a
    figure has a panel for each.
    """
    swept = study.run.vocabulary_prompts
    first = questions(swept).unique("question", keep="first", maintain_order=True)["prompt"]
    most = min(study.settings.page_prompts, max(_PANELS // max(len(study.scored), 1), 1))
    chosen = list(dict.fromkeys([*first, *swept]))[:most]
    return [prompt for prompt in swept if prompt in chosen]


def limited(study: Study, prompts: Collection[str]) -> Study:
    """The study without what is of other prompts of vocabularies than `prompts`."""
    run = study.run
    swept = run.vocabulary_prompts
    with_forms = {p for p in run.prompts if p in swept or _base(p) in swept}
    # A prompt's form for a language model stays with the prompt.
    dropped = {p for p in with_forms if p not in prompts and _base(p) not in prompts}
    few = dataclasses.replace(
        run, results={pair: r for pair, r in run.results.items() if pair[1] not in dropped}
    )
    tables = Tables()
    tables.absent = dict(study.tables.absent)
    for key, frame in study.tables.frames.items():
        if not dropped.intersection(key):
            tables.frames[key] = _without(frame, dropped)
    return dataclasses.replace(study, run=few, tables=tables)


def _section(chapter: Analysis, study: Study, few: Study) -> Section:
    whole = chapter.section(study)
    if chapter.every_prompt:
        return whole
    section = chapter.section(few)
    stems = {picture.stem for picture in pictures(section.blocks)}
    findings = [
        Finding(text=f.text, picture=f.picture * (f.picture in stems)) for f in whole.findings
    ]
    return dataclasses.replace(
        section, findings=findings, described=whole.described, marks=whole.marks
    )


def _base(prompt: str) -> str:
    """The prompt's id without its form: `greatest` for `greatest.chat`."""
    return prompt.rpartition(".")[0] or prompt


def _without(frame: pl.DataFrame, dropped: Collection[str]) -> pl.DataFrame:
    """`frame` without the rows of some prompts."""
    for name in _COLUMNS:
        if name in frame.columns:
            frame = frame.filter(~pl.col(name).is_in(sorted(dropped)))
    return frame
