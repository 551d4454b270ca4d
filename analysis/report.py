"""The report: one page that opens from disk, its figures, and the tables behind them.

write_report(analysis.load("out/run"), "out/report", infos, settings)
"""

import base64
import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping

from analysis import page, tables
from analysis.figures import agreement, distributions, framing, style, tokens
from analysis.load import Run
from analysis.models import ModelInfo
from analysis.publish import check_target, staged
from analysis.tables import Tables
from engine.errors import AssayError

_INLINE_SVG_BYTES = 300_000  # Above this the page takes the PNG, which then is the smaller.


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnalyzeSettings:
    """Settings of one report; `configs/analyze.py` declares each.

    Attributes:
      top: tokens an end in the tables.
      figure_top: tokens an end in the charts and in the lists of the page.
      summary_tokens: tokens a list in the summary.
      contrast: two prompt ids whose rewards are drawn against each other, where both exist.
      allow_incomplete: report on a sweep that has not finished.
    """

    top: int
    figure_top: int
    summary_tokens: int
    contrast: tuple[str, str]
    allow_incomplete: bool

    def __post_init__(self):
        for key in ("top", "figure_top", "summary_tokens"):
            value = getattr(self, key)
            if type(value) is not int or value < 1:
                raise AssayError(f"analyze.{key}={value!r}; allowed: integers >= 1")
        if self.figure_top > self.top:
            raise AssayError(
                f"analyze.figure_top={self.figure_top!r}; allowed: at most top={self.top}"
            )
        names = self.contrast
        pair = isinstance(names, tuple) and len(names) == 2
        if not pair or not all(isinstance(name, str) for name in names) or names[0] == names[1]:
            raise AssayError(f"analyze.contrast={names!r}; allowed: two different prompt ids")
        if type(self.allow_incomplete) is not bool:
            raise AssayError(
                f"analyze.allow_incomplete={self.allow_incomplete!r}; allowed: True, False"
            )


def write_report(
    run: Run,
    report: str | os.PathLike,
    infos: Mapping[str, ModelInfo],
    settings: AnalyzeSettings,
    progress: Callable[[str], None] = lambda stage: None,
) -> pathlib.Path:
    """Writes index.html, figures/ and tables/ of `run` under the folder `report`.

    The folder appears whole, in place of an older report; the page needs no other file and no
    network.

    Args:
      run: what `analysis.load` returned.
      report: folder to write; its parents are made.
      infos: slug -> metadata of the model, as far as it is known.
      settings: sizes and choices.
      progress: called with the name of each stage as it starts.

    Returns:
      The path of index.html.

    Raises:
      ReportError: `report` is something else than an older report.
    """
    report = pathlib.Path(report)
    check_target(report, run.folders)
    progress("tables")
    found = tables.compute(run, infos, settings.top)
    with staged(report, _about(run)) as folder:
        (folder / "tables").mkdir()
        (folder / "figures").mkdir()
        files = tables.write(found.named(), folder / "tables")
        progress("figures")
        drawn = _draw(run, found, settings, folder / "figures")
        progress("page")
        html = page.render(run, found, drawn, files, settings.summary_tokens, settings.figure_top)
        (folder / "index.html").write_text(html, encoding="utf-8")
    return report / "index.html"


def _about(run: Run) -> dict:
    results = {f"{m} × {p}": r.fingerprint_id for (m, p), r in run.results.items()}
    return {"runs": [str(folder) for folder in run.folders], "fingerprints": results}


def _draw(
    run: Run, found: Tables, settings: AnalyzeSettings, folder: pathlib.Path
) -> dict[str, str]:
    """Draws and saves every figure; file stem -> data URI for the page."""
    names = dict(found.models.select("model", "nickname").iter_rows())
    drawn = {
        "distributions": distributions.violins(
            found.densities, found.quantiles, names, list(run.prompts)
        )
    }
    for prompt, table in found.top_bottom.items():
        drawn[f"top_bottom_{prompt}"] = tokens.top_bottom(
            table, found.quantiles.filter(prompt=prompt), names, settings.figure_top
        )
    for prompt, matrix in found.kendall.items():
        drawn[f"kendall_tau_{prompt}"] = agreement.heat_map(matrix, names, "Kendall’s τ")
    pairs, correlations = tables.contrasts(run, settings.contrast, list(names))
    if pairs:
        stem = "contrast_{}_{}".format(*settings.contrast)
        drawn[stem] = framing.contrast(pairs, correlations, names, settings.contrast)
    return {stem: _data_uri(style.save(figure, folder, stem)) for stem, figure in drawn.items()}


def _data_uri(paths: Mapping[str, pathlib.Path]) -> str:
    small = paths["svg"].stat().st_size <= _INLINE_SVG_BYTES
    kind, path = ("svg+xml", paths["svg"]) if small else ("png", paths["png"])
    return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
