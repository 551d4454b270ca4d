"""index.html from finished tables and drawn figures. Jinja2 escapes whatever it is given."""

import base64
import functools
import hashlib
import json
import pathlib
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from analysis.blocks import Picture
from analysis.charts import look
from analysis.model_info import about, in_common
from analysis.report import card, drawing, few_prompts, first_screen, hero, outline
from analysis.report.explorer import LIMIT, Packed
from analysis.report.verdict import Verdict, from_to
from analysis.run import Run
from analysis.sentences import cell, count, number
from analysis.study import Section, Study
from engine import display
from engine.runs.result import Result
from engine.runs.schema import LOGPROBS_DIR

TEMPLATES = pathlib.Path(__file__).parent / "templates"
_PLAIN = ("table.js", "question.js", "charts.js", "copy.js")
SCRIPTS = (
    *_PLAIN,
    *(f"explorer-{part}.js" for part in ("data", "text", "plot", "table")),
    "explorer.js",
)
_HALF = 447  # Pixels of a chart that a column of analyses can show.


def render(
    study: Study,
    sections: Sequence[Section],
    figures: Mapping[str, drawing.Drawn],
    explorer: Packed,
    verdict: Verdict | None = None,
    shared: Mapping[str, card.Card] | None = None,
    of_steps: str = "",
) -> str:
    """The page as one string of HTML that loads nothing from outside.

    Args:
      study: the run and its tables.
      sections: those of the chapters, in their order.
      figures: file stem -> chart.
      explorer: the data of the token explorer.
      verdict: that of a comparison of two models, which then takes the first screen.
      shared: its cards (`analysis.report.card`) by model, if any.
      of_steps: the lede of the steps of a training, which then have no first screen.
    """
    full = [section for section in sections if not section.is_empty]
    shown = few_prompts.shown(study)
    compared = [section for section in sections if verdict and section.analysis.id == "changes"]
    groups = outline.groups([section for section in sections if section not in compared])
    unranked = verdict is not None or bool(of_steps) or of_language_models(study.run)
    page = _templates().get_template("index.html.j2")
    return page.render(
        _context(study) | ({"lede": of_steps} if of_steps else {}),
        of_steps=of_steps,
        shown=shown,
        questions=[] if unranked else first_screen.questions(study, shown),
        hero=None if unranked else hero.story(study),
        verdict=verdict,
        cards=shared or {},
        citation=card.CITATION,
        compared=compared,
        groups=[group for group in groups if group["sections"]],
        empty=outline.by_reason([section for group in groups for section in group["empty"]]),
        headlines=outline.headlines(full),
        figures=figures,
        files=list(study.tables.makers.items()),
        explorer=explorer,
        explorer_limit=LIMIT,
        # JSON in a script element ends at "</script", even inside a string.
        explorer_meta=json.dumps(explorer.meta).replace("<", "\\u003c"),
        style="".join(map(_text, ["style.css", *(["verdict.css"] if verdict else [])])),
        themes=json.dumps([look.config(), look.config(dark=True)]),
        scripts=[
            _hashed(f"/*! {_text('vendor/vega.LICENSE')}*/\n{drawing.vega()}"),
            *(_hashed(_text(name)) for name in (SCRIPTS if explorer.meta["models"] else _PLAIN)),
        ],
    )


def cards(study: Study, sections: Sequence[Section]) -> dict[str, card.Card]:
    """The card of each model of a report, by its slug; none of language models."""
    if of_language_models(study.run) or not study.scored:
        return {}
    finding, picture = hero.story(study), _templates().get_template("card.svg.j2")
    sentence = f"{finding.text}." if finding else card.first_sentence(sections)
    return {
        panel["model"]: card.made(
            picture.render(card.values(study, question, panel, sentence)),
            card.markdown(study, sections, question, panel),
            at,
            panel["model"],
        )
        for at, (question, panel) in enumerate(card.shown(study))
    }


def _broad(beside: Mapping[str, Picture], figures: Mapping[str, drawing.Drawn]) -> bool:
    """Whether a chart beside an answer needs the whole width of the page."""
    return any(figures[picture.stem].width > _HALF for picture in beside.values())


_FILTERS = {
    "segments": display.segments,
    "number": number,
    "count": lambda n: f"{n:,}",
    "percent": lambda x: number(x, "{:.2f} %"),
    "broad": _broad,
    "charts": outline.charts,
    "question": outline.question,
    "without": outline.without,
    "fixed": lambda x: number(x, "{:.2f}"),
    "capitalize_first": lambda text: text[:1].upper() + text[1:],
    "cell": cell,
    "from_to": from_to,
    # Not between a number and its sign, nor in “τ = 0.4”.
    "unbroken": lambda text: re.sub(r"(?<=\d) (?=%)|(?<=\b\w) (?==)|(?<==) ", "\u00a0", text),
    "urlpart": lambda text: urllib.parse.quote(text, safe=""),
}


@functools.cache
def _templates() -> jinja2.Environment:
    """Each template is compiled once a process."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= _FILTERS
    return environment


def _text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _hashed(text: str) -> dict[str, str]:
    """A script of the page with its hash: the page's policy runs no other script."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return {"text": text, "hash": f"sha256-{digest}"}


def lede(study: Study) -> str:
    """What the report is about, in one or two sentences: models, prompts, tokens, lists."""
    run, scored = study.run, len(study.scored)
    sentences = []
    if scored:
        sizes: list[int] = study.described["vocabulary"].drop_nulls().to_list()
        least, most = min(sizes), max(sizes)
        tokens = count(most, "token") if least == most else f"{least:,} to {most:,} tokens"
        prompts = count(len(run.vocabulary_prompts), "prompt")
        who, numbers = count(scored, "reward model"), count(_scores(study), "reward")
        did, place = "scored", "as the whole reply"
        if of_language_models(run):
            who, numbers = count(scored, "model"), count(_scores(study), "number")
            did, place = "gave a reward or a log-probability to", "as the reply"
        what, of = "every token of the vocabulary", f": {tokens} a model, {numbers}"
        what, of = (f"{tokens}, its vocabulary,", "") if scored == 1 else (what, of)
        sentences.append(f"{who} {did} {what} {place} to {prompts}{of}.")
    if run.appended:
        models = count(len({model for model, _ in run.appended}), "reward model")
        replies = count(len({prompt for _, prompt in run.appended}), "reply", "replies")
        sentences.append(f"{models} scored every token behind {replies}.")
    lists = run.item_lists()
    if lists:
        models = {model for items, model, _ in run.items if items in lists}
        prompt_ids = {prompt for items, _, prompt in run.items if items in lists}
        same = models == set(study.scored)
        who = "They also" if same else count(len(models), "reward model")
        what = f"{count(len(lists), 'list')} of replies under {count(len(prompt_ids), 'prompt')}"
        sentences.append(f"{who} scored {what}.")
    if conversations := run.conversation_lists():
        models = {model for _, model in run.conversations}
        who, what = count(len(models), "reward model"), count(len(conversations), "list")
        sentences.append(f"{who} scored {what} of replies that have prompts of their own.")
    sentences += _in_common(study) if len(study.models) > 1 else []
    return (
        " ".join(sentences) or "Searches and language models, without the scores of a vocabulary."
    )


def _in_common(study: Study) -> list[str]:
    """What the scored models share, and what their names here leave out."""
    models = study.scored or study.models
    shared = in_common([study.run.models[m] for m in models], [study.infos.get(m) for m in models])
    full, short = study.described["nickname"][0], next(iter(study.names.values()))
    left = f"Their names leave out “{'…'.join(full.rsplit(short, 1))}”." if full != short else ""
    return [sentence for sentence in (shared, left) if sentence]


def of_language_models(run: Run) -> bool:
    """Whether log-probabilities stand in place of some rewards, as `assay diff` may have it."""
    return any(result.kind == LOGPROBS_DIR for result in run.results.values())


def _context(study: Study) -> dict[str, Any]:  # Any: what templates read
    run = study.run
    results = [
        *run.results.values(),
        *run.appended.values(),
        *run.conversations.values(),
        *run.probes.values(),
        *run.running.values(),
    ]
    folders = {result.run for result in results}
    paths = len({folder.name for folder in folders}) < len(folders)
    worded: dict[str, list[str]] = {}
    for prompt, text in run.prompts.items():
        worded.setdefault(text, []).append(prompt)
    return {
        "names": study.names,
        "about": {slug: about(run.models[slug], study.infos.get(slug)) for slug in run.models},
        "colours": look.colours(study.models),
        "lede": lede(study),
        "worded": list(worded.items()),
        "prompts": list(run.vocabulary_prompts),
        "prompt_names": study.prompt_names,
        "results": [_provenance(result, paths) for result in results],
        "language_models": of_language_models(run),
        "modes": sorted(
            {r.identity.mode or "–" for r in run.results.values() if r.kind != LOGPROBS_DIR}
        ),
    }


def _scores(study: Study) -> int:
    """Number of scores of vocabularies."""
    sizes = dict(study.described.select("model", "vocabulary").iter_rows())
    return sum(sizes[model] for model, _ in study.run.results)


def _provenance(result: Result, paths: bool) -> dict[str, Any]:  # Any: what templates read
    """A result's row; `paths`: two runs have one name, so paths are shown."""
    check = result.self_check
    return {
        "model": result.model,
        "prompt": result.prompt or result.items,
        "mode": result.identity.mode or None,
        "dtype": result.identity.dtype or None,
        "candidates": check and check.candidates,
        "difference": check and check.max_abs_difference,
        "tolerance": check and check.tolerance,
        "identity": result.identity.short,
        "mixed": result.mixed,
        "complete": result.complete,
        "run": str(result.run) if paths else result.run.name,
    }
