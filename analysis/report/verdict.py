"""The verdict of `assay diff`: two models by name, the limits, and the words that moved most."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from analysis.chapters.calibration import in_a_line
from analysis.measures.changes import (
    AT_MOST,
    CHANGE,
    EDITED,
    RANK_AGREEMENT,
    RIGHT,
    moved_tokens,
    worst_first,
)
from analysis.measures.two_models import AFTER, BEFORE, differs_in
from analysis.report.first_screen import whole_words
from analysis.run import Run
from analysis.sentences import beside, minus, outward
from analysis.study import Study
from analysis.words import lexicons
from engine.display import aligned, plain

JSON, MARKDOWN = "verdict.json", "verdict.md"
WORDS = 10  # Of each direction under a prompt, and of all of them in short.
_LIMITS = 12  # Of the short form.
_SPELLINGS = 8  # Of one word, at most.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """What changed between two models, in short."""

    # "before" and "after" -> where its numbers come from: name (the end of `source` that tells the
    # two models apart), model (its slug in the run), source (hub id or folder that was converted;
    # of imported rewards, what the import names), revision (of the hub; None for a folder) and run
    # (the folder).
    sources: Mapping[str, Mapping[str, str | None]]
    differs_in: str  # settings that the two models do not share; "" where there are none
    questions: Mapping[str, str]  # prompt id -> its words
    # Rows of `changes_checks.csv`, the worst violation first, with both ends of τ's interval.
    checks: pl.DataFrame
    # Prompt, end ("rose" or "fell"), token, token_id, word (in lower case), before, after
    # (percentiles, 0 to 1), shift, and beyond_noise: whether it moved further than every token does
    # between two sweeps of one model; null where no noise was measured.
    words: pl.DataFrame
    margins: Sequence[str] = ()  # of both models on the pairs, in a line each

    @property
    def failed(self) -> int:
        """Number of limits that do not hold."""
        return int((~self.checks["holds"]).sum())

    @property
    def word(self) -> str:
        """PASS or FAIL."""
        return "FAIL" if self.failed else "PASS"

    @property
    def summary(self) -> str:
        """How many limits hold, in words."""
        of = self.checks.height
        return (
            f"{self.failed} of {of} limits do not hold" if self.failed else f"all {of} limits hold"
        )

    @property
    def limits(self) -> list[dict[str, Any]]:  # Any: texts, and whether it holds
        """The limits for a reader, the worst violation first.

        Each has: holds; on (what is limited); prompt (its id); question (its words); measured (the
        value with its unit, of τ with its interval); allowed (at least or at most what); noise (the
        value of two sweeps of one model; "–" where none was measured).
        """
        return [_limit(row, self.questions) for row in self.checks.iter_rows(named=True)]

    def moved(self, prompt: str, end: str) -> list[dict[str, Any]]:  # Any: cells of a table
        """The words that rose or fell most under a prompt, the furthest first."""
        return self.words.filter(prompt=prompt, end=end).to_dicts()

    def moved_most(self) -> list[dict[str, Any]]:  # Any: cells of a table
        """The words that moved most, either way, each under the prompt where it moved furthest."""
        furthest = self.words.sort(pl.col("shift").abs(), descending=True, maintain_order=True)
        return furthest.unique("word", keep="first", maintain_order=True).head(WORDS).to_dicts()


def of(study: Study) -> Verdict | None:
    """The verdict of a study with the chapter `changes_between`; None for any other study."""
    checks = study.tables.get("changes_checks")
    if checks is None:
        return None
    margins = study.tables.get("changes_margins")
    change = study.tables["changes"].filter(of=CHANGE).fill_nan(None)
    intervals = change.select("prompt", "ci_low", "ci_high", check=pl.lit(RANK_AGREEMENT))
    return Verdict(
        sources=_sources(study.run),
        differs_in=differs_in(study.run),
        questions={prompt: study.run.prompts.get(prompt, prompt) for prompt in checks["prompt"]},
        checks=worst_first(checks).join(
            intervals, on=["prompt", "check"], how="left", validate="1:1", maintain_order="left"
        ),
        words=_words(study),
        margins=[] if margins is None else [*map(in_a_line, margins.iter_rows(named=True))],
    )


def files(verdict: Verdict) -> dict[str, str]:
    """File name -> text of what a report holds of the verdict, for programs and for pull requests.

    Paths in `verdict.json` are relative to it. A value that is undefined is null there.
    """
    content = {
        "verdict": verdict.word.lower(),
        "said": verdict.summary,
        **verdict.sources,
        "differs_in": verdict.differs_in or None,
        "limits": [
            {
                "prompt": row["prompt"],
                "question": verdict.questions[row["prompt"]],
                "on": row["check"],
                "what": row["what"] or None,
                "value": None if math.isnan(row["measured"]) else row["measured"],
                "low": row["ci_low"],
                "high": row["ci_high"],
                "allowed": row["allowed"],
                "limit": row["limit"],
                "noise": row["noise"],
                "ok": row["holds"],
            }
            for row in verdict.checks.iter_rows(named=True)
        ],
        "words": verdict.words.to_dicts(),
        "paths": {"page": "index.html", "summary": MARKDOWN, "tables": "tables"},
    }
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    return {JSON: text + "\n", MARKDOWN: _markdown(verdict)}


def shortened(verdict: Verdict) -> tuple[list[dict[str, Any]], str]:  # Any: of `limits`
    """The limits that a short form shows, and what it says of the others; "" where it has all."""
    limits = verdict.limits
    more = len(limits) - _LIMITS
    return limits[:_LIMITS], f"{more} more in {JSON}" if more > 0 else ""


def from_to(word: Mapping[str, float]) -> tuple[str, str]:
    """Percentiles of a word before and after, with one decimal."""
    return f"{100 * word['before']:.1f}", f"{100 * word['after']:.1f}"


def terminal_lines(verdict: Verdict) -> list[str]:
    """The verdict for a terminal: models, settings that differ, limits, words that moved most."""
    limits, more = shortened(verdict)
    keys, sides = ("name", "source"), verdict.sources.items()
    sources = [(side, *(str(source[key]) for key in keys)) for side, source in sides]
    table = [("", "limit on", "prompt", "measured", "allowed", "noise")]
    for limit in limits:
        shown = [limit[key] for key in ("on", "prompt", "measured", "allowed", "noise")]
        table.append(("holds" if limit["holds"] else "FAILS", *shown))
    words = [("moved most", "prompt", "percentile before", "after")]
    for word in verdict.moved_most():
        token = plain(word["token"].strip())
        words.append((token, word["prompt"], *from_to(word)))
    parts = [aligned(sources), [*aligned(table), *[more] * bool(more)], aligned(words)]
    parts += [[*verdict.margins]] * bool(verdict.margins)
    body = [line for part in parts for line in ("", *part)]
    differs = [f"differs in: {verdict.differs_in}"] * bool(verdict.differs_in)
    return [f"{verdict.word}: {verdict.summary}", *differs, *body, ""]


def _markdown(verdict: Verdict) -> str:
    limits, more = shortened(verdict)
    sources = verdict.sources
    lines = [
        f"**{verdict.word}**: {verdict.summary}",
        "",
        *(f"- {side}: {_plain(str(source['source']))}" for side, source in sources.items()),
        *[f"- differs in: {_plain(verdict.differs_in)}"] * bool(verdict.differs_in),
        "",
        "| | limit on | question | measured | allowed | noise |",
        "|---|---|---|---:|---|---:|",
    ]
    for limit in limits:
        cells = [limit[key] for key in ("on", "question", "measured", "allowed", "noise")]
        lines.append(f"| {'✓' if limit['holds'] else '✗'} | {' | '.join(map(_plain, cells))} |")
    lines += ["", more] * bool(more)
    if words := verdict.moved_most():
        lines += ["", "| word that moved most | question | percentile before | after |"]
        lines.append("|---|---|---:|---:|")
    for word in words:
        cells = (word["token"].strip(), verdict.questions[word["prompt"]], *from_to(word))
        lines.append(f"| {' | '.join(map(_plain, cells))} |")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Text in one line in which Markdown and HTML mean nothing."""
    return re.sub(r"([\\`*_\[\]<>&|~@$#])", r"\\\1", " ".join(text.split()))


def _limit(row: Mapping[str, Any], questions: Mapping[str, str]) -> dict[str, Any]:
    on, sign, scale, places, unit = row["check"], "", 100, 1, " %"
    if on == RANK_AGREEMENT:
        scale, places, unit = 1, 3, ""
    if on == RIGHT:
        on += f" ({row['what']})"
    if on == EDITED:
        on = f"{on}{row['what'] and ': ' + row['what']}"
        sign, scale, places, unit = "±", 1, 2, " median margins"
    elif row["allowed"] == AT_MOST:
        on = f"shift of a kind of words{row['what'] and ': ' + row['what']}"
        sign, unit = "±", " points"

    def shown(value: float | None) -> str:
        if value is None:
            return "–"
        known = not math.isnan(value)
        return beside(scale * value, scale * row["limit"], places) + unit if known else "undefined"

    measured, limit = shown(row["measured"]), minus(f"{scale * row['limit']:g}")
    if row["ci_low"] is not None:
        low, high = (outward(row[f"ci_{end}"], end == "high", places) for end in ("low", "high"))
        measured += minus(f" ({low:.{places}f} to {high:.{places}f})")
    return {
        "holds": row["holds"],
        "on": on,
        "prompt": row["prompt"],
        "question": questions[row["prompt"]],
        "measured": f"+{measured}" if sign and row["measured"] > 0 else measured,
        "allowed": f"{row['allowed']} {sign}{limit}{unit}",
        "noise": shown(row["noise"]),
    }


def _sources(run: Run) -> dict[str, dict[str, str | None]]:
    sides = (BEFORE, AFTER)
    records = [run.models[side] for side in sides]
    sources = [str(record.get("source") or record["slug"]) for record in records]
    folders = [next(r.run for (m, _), r in run.results.items() if m == side) for side in sides]
    pairs = zip(sources, records, strict=True)
    revisions = [f"{source} at {record.get('revision')}" for source, record in pairs]
    places = [f"{record['slug']} in {at}" for record, at in zip(records, folders, strict=True)]
    names = _names(sources, revisions, places)
    known = zip(sides, names, records, sources, folders, strict=True)
    return {
        side: {
            "name": name,
            "model": record["slug"],
            "source": source,
            "revision": record.get("revision"),
            "run": str(folder),
        }
        for side, name, record, source, folder in known
    }


def _names(sources: Sequence[str], *longer: Sequence[str]) -> Sequence[str]:
    """The shortest ends of two paths that differ; of equal paths, the first of `longer` that do."""
    parts = [source.rstrip("/").split("/") for source in sources]
    ends = [["/".join(path[-n:]) for path in parts] for n in range(1, max(map(len, parts)) + 1)]
    return next((pair for pair in (*ends, *longer) if pair[0] != pair[1]), ends[0])


def _words(study: Study) -> pl.DataFrame:
    """Whole words by their spelling that moved most; see `Verdict.words`."""
    words = whole_words(study, AFTER, lexicons.common_words(study.options.frequency))
    token_ids = words["token_id"].to_numpy()
    moved = moved_tokens(study.run, (), _SPELLINGS * WORDS, token_ids).drop("beyond_noise")
    moved = moved.join(words.select("token_id", "word"), on="token_id", validate="m:1")
    moved = moved.join(study.tables["noise_floors"], on="prompt", validate="m:1")
    moved = moved.sort("prompt", "end", "rank").unique(
        ["prompt", "end", "word"], keep="first", maintain_order=True
    )
    first = moved.group_by("prompt", "end", maintain_order=True).head(WORDS)
    return first.select(
        "prompt",
        "end",
        "token",
        "token_id",
        "word",
        "before",
        "after",
        "shift",
        beyond_noise=pl.col("shift").abs() > pl.col("floor"),
    )
