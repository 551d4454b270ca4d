"""The report: one page that opens from disk, its figures, and the tables behind them.

write_report(analysis.load("out/run"), "out/report", infos, settings)
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from analysis import explorer, page, tables
from analysis.figures import drawing, style
from analysis.load import Run
from analysis.models import ModelInfo
from analysis.options import Options
from analysis.publish import check_target, staged
from analysis.tables import Tables
from engine.errors import AssayError


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnalyzeSettings:
    """Settings of one report; `configs/analyze.py` declares each.

    Attributes:
      top: tokens an end in the tables.
      figure_top: tokens an end in the charts and in the lists of the page.
      summary_tokens: tokens a list in the summary.
      allow_incomplete: report on a sweep that has not finished.
      options: choices of the analyses.
    """

    top: int
    figure_top: int
    summary_tokens: int
    allow_incomplete: bool
    options: Options

    def __post_init__(self):
        for key in ("top", "figure_top", "summary_tokens"):
            value = getattr(self, key)
            if type(value) is not int or value < 1:
                raise AssayError(f"analyze.{key}={value!r}; allowed: integers >= 1")
        if self.figure_top > self.top:
            raise AssayError(
                f"analyze.figure_top={self.figure_top!r}; allowed: at most top={self.top}"
            )
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
    found = tables.compute(run, infos, settings.top, settings.options)
    with staged(report, _about(run)) as folder:
        (folder / "tables").mkdir()
        (folder / "figures").mkdir()
        files = tables.write(found.named(), folder / "tables")
        progress("figures")
        # Packing is gzip and polars, which leave the interpreter to the drawing.
        with ThreadPoolExecutor(1) as beside:
            packed = beside.submit(_packed, run, found)
            drawn = drawing.draw(run, found, settings.figure_top, folder / "figures")
            progress("page")
            data = packed.result()
        html = page.render(
            run, found, drawn, files, data, settings.summary_tokens, settings.figure_top
        )
        (folder / "index.html").write_text(html, encoding="utf-8")
    return report / "index.html"


def _about(run: Run) -> dict:
    results = {f"{m} × {p}": r.fingerprint_id for (m, p), r in run.results.items()}
    return {"runs": [str(folder) for folder in run.folders], "fingerprints": results}


def _packed(run: Run, found: Tables) -> explorer.Packed:
    names = dict(found.models.select("model", "nickname").iter_rows())
    return explorer.pack(run, list(names), names, style.colours(names))
