"""index.html from finished tables and drawn figures. Jinja2 escapes whatever it is given."""

import base64
import hashlib
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import polars as pl

from analysis import display, summary
from analysis.figures import style
from analysis.load import Run
from analysis.manifests import Result
from analysis.tables import Tables

_TEMPLATES = pathlib.Path(__file__).parent / "templates"


def render(
    run: Run, tables: Tables, figures: Mapping[str, str], files: Sequence[str], count: int, top: int
) -> str:
    """The page as one string of HTML that asks for nothing outside itself.

    Args:
      run: the run, for prompts and provenance.
      tables: what `tables.compute` returned.
      figures: file stem -> data URI of the image.
      files: names of the tables that were written beside the page.
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
    }
    script = (_TEMPLATES / "table.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("index.html.j2").render(
        _context(run, tables, count, top),
        figures=figures,
        files=files,
        style=(_TEMPLATES / "style.css").read_text(encoding="utf-8"),
        script=script,
        script_hash=f"sha256-{digest}",
    )


def number(value: float | None, form: str = "{:.4g}") -> str:
    """A number as a reader writes it: a true minus sign, and a dash where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return form.format(value).replace("-", "−")


def _context(run: Run, tables: Tables, count: int, top: int) -> dict[str, Any]:
    names = dict(tables.models.select("model", "nickname").iter_rows())
    sizes = tables.models["vocabulary"]
    return {
        "names": names,
        "colours": style.colours(names),
        "prompts": dict(run.prompts),
        "models": tables.models.to_dicts(),
        "scores": sum(_scored(tables)),
        "vocabulary": (sizes.min(), sizes.max()),
        "shared": tables.shared.height,
        "findings": summary.findings(tables, run.prompts, names, count),
        "skews": summary.skews(tables.moments),
        "moments": tables.moments.to_dicts(),
        "ends": {p: _ends(table, top) for p, table in tables.top_bottom.items()},
        "rows": {p: table.to_dicts() for p, table in tables.top_bottom.items()},
        "matrices": {
            p: [("Kendall’s τ", _square(table)), ("Spearman’s ρ", _square(tables.spearman[p]))]
            for p, table in tables.kendall.items()
        },
        "results": [_provenance(result) for result in run.results.values()],
        "missing": [(names[m], p) for m in names for p in run.prompts if (m, p) not in run.results],
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


def _square(table: pl.DataFrame) -> list[tuple[str, list[float]]]:
    return [(row[0], list(row[1:])) for row in table.iter_rows()]


def _provenance(result: Result) -> dict[str, Any]:
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
        "run": result.run.name,
    }
