"""index.html from finished tables and drawn figures. Jinja2 escapes whatever it is given."""

import base64
import hashlib
import json
import math
import pathlib
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import polars as pl

from analysis import chapters, display, summary
from analysis.explorer import Packed
from analysis.figures import style
from analysis.load import Run
from analysis.manifests import Result
from analysis.tables import Tables

_TEMPLATES = pathlib.Path(__file__).parent / "templates"
_SCRIPTS = ("table.js", "vendor/slickgrid.min.js", "explorer-data.js", "explorer.js")
_LICENCE = "/*! SlickGrid 5.20.2\n{}*/\n"


def render(
    run: Run,
    tables: Tables,
    figures: Mapping[str, str],
    files: Sequence[str],
    explorer: Packed,
    count: int,
    top: int,
) -> str:
    """The page as one string of HTML that asks for nothing outside itself.

    Args:
      run: the run, for prompts and provenance.
      tables: what `tables.compute` returned.
      figures: file stem -> data URI of the image.
      files: names of the tables that were written beside the page.
      explorer: the data of the token explorer.
      count: tokens a list in the summary.
      top: tokens an end in the lists side by side.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "count": lambda n: f"{n:,}",
        "fixed": lambda x: number(x, "{:.2f}"),
        "segments": display.segments,
        "cell": cell,
        "urlpart": lambda text: urllib.parse.quote(text, safe=""),
    }
    return environment.get_template("index.html.j2").render(
        _context(run, tables, count, top),
        figures=figures,
        files=files,
        explorer=explorer,
        # JSON in a script element ends at "</script", in whatever string that stands.
        explorer_meta=json.dumps(explorer.meta).replace("<", "\\u003c"),
        style=_text("vendor/slickgrid.min.css") + _text("style.css"),
        scripts=[_script(name) for name in (_SCRIPTS if explorer.meta["models"] else _SCRIPTS[:1])],
    )


def _text(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _script(name: str) -> dict[str, str]:
    """A script of the page, and its hash: the only scripts that the page's policy lets run."""
    licence = _LICENCE.format(_text("vendor/slickgrid.LICENSE")) if "vendor" in name else ""
    text = licence + _text(name)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return {"text": text, "hash": f"sha256-{digest}"}


def number(value: float | None, form: str = "{:.4g}") -> str:
    """A number as a reader writes it: a true minus sign, and a dash where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return form.format(value).replace("-", "−")


def cell(value: Any, kind: str) -> str:
    """A value of a table as a reader writes it; `kind` as `blocks.Column` has it."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if kind == "bool":
        return "yes" if value else "no"
    if kind == "p":
        return "< .001" if value < 0.001 else f"{value:.3f}".removeprefix("0")
    if kind == "share":
        return number(100 * value, "{:.1f} %")
    if kind == "count":
        return number(value, "{:,.0f}" if float(value).is_integer() else "{:,.1f}")
    if kind == "fixed":
        return number(value, "{:.3f}")
    return number(value) if kind == "number" else str(value)


def _context(run: Run, tables: Tables, count: int, top: int) -> dict[str, Any]:
    names = dict(tables.models.select("model", "nickname").iter_rows())
    sizes = tables.models["vocabulary"].drop_nulls()
    scored = [model for model in names if model in run.vocabulary_models]
    prompts = dict(run.vocabulary_prompts)
    folders = {result.run for result in run.results.values()}
    paths = len({folder.name for folder in folders}) < len(folders)
    return {
        "names": names,
        "colours": style.colours(names),
        "scored": scored,
        "prompts": prompts,
        "asked": len(set(run.prompts.values())),
        "listed": bool(run.items),
        "chapters": chapters.chapters(tables),
        "absent": tables.absent,
        "models": tables.models.to_dicts(),
        "scores": sum(_scored(tables)),
        "vocabulary": (sizes.min(), sizes.max()) if len(sizes) else None,
        "shared": tables.shared.height,
        "findings": summary.findings(tables, prompts, names, count),
        "people": summary.people(tables, names, run.prompts, count),
        "skews": summary.skews(tables.moments),
        "moments": tables.moments.to_dicts(),
        "ends": {p: _ends(table, top) for p, table in tables.top_bottom.items()},
        "rows": {p: table.to_dicts() for p, table in tables.top_bottom.items()},
        "matrices": {p: _matrices(tables, p) for p in tables.kendall},
        "results": [_provenance(result, paths) for result in run.results.values()],
        "missing": [(names[m], p) for m in scored for p in prompts if (m, p) not in run.results],
        "modes": sorted({str(r.fingerprint.get("mode", "–")) for r in run.results.values()}),
    }


def _scored(tables: Tables) -> list[int]:
    sizes = dict(tables.models.select("model", "vocabulary").iter_rows())
    return [sizes[model] for table in tables.rewards.values() for model in table.columns[1:]]


def _ends(table: pl.DataFrame, top: int) -> dict[str, dict[str, Any]]:
    """Top and bottom side by side: models, and a row a rank with one cell (or None) a model."""
    ends = {}
    for end in ("top", "bottom"):
        part = table.filter(end=end)
        models = part["model"].unique(maintain_order=True).to_list()
        cells = {(row["model"], row["rank"]): row for row in part.to_dicts()}
        ranks = range(1, min(top, max(part["rank"])) + 1)
        rows = [(rank, [cells.get((model, rank)) for model in models]) for rank in ranks]
        ends[end] = {"models": models, "rows": rows}
    return ends


def _matrices(tables: Tables, prompt: str) -> list[tuple[str, list[tuple[str, list[float]]]]]:
    kinds = (
        ("Kendall’s τ", tables.kendall),
        ("Spearman’s ρ", tables.spearman),
        ("Rank-biased overlap", tables.rbo),
    )
    return [(title, _square(by[prompt])) for title, by in kinds if prompt in by]


def _square(table: pl.DataFrame) -> list[tuple[str, list[float]]]:
    return [(row[0], list(row[1:])) for row in table.iter_rows()]


def _provenance(result: Result, paths: bool) -> dict[str, Any]:
    """A result's row; `paths`: two runs are of one name, so paths tell them apart."""
    check = result.self_check or {}
    return {
        "model": result.model,
        "prompt": result.prompt,
        "mode": result.fingerprint.get("mode"),
        "dtype": result.fingerprint.get("dtype"),
        "candidates": check.get("candidates"),
        "difference": check.get("max_abs_difference"),
        "tolerance": check.get("tolerance"),
        "fingerprint": result.fingerprint_id,
        "complete": result.complete,
        "run": str(result.run) if paths else result.run.name,
    }
