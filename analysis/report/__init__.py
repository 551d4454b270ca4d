"""The report: one page that opens from disk, its figures, and the tables behind them.

write_report(analysis.load("out/run"), "out/report", infos, settings)
"""

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from etils import epath

from analysis.blocks import pictures
from analysis.chapters import CHAPTERS
from analysis.charts import look
from analysis.model_info import ModelInfo
from analysis.report import card, drawing, explorer, few_prompts, page, verdict
from analysis.report.folder import check_target, staged
from analysis.report.token_sets import sets_of
from analysis.run import Run
from analysis.settings import AnalyzeSettings
from analysis.study import Analysis, Study, compute
from analysis.words import lexicons
from engine.runs import storage


def write_report(
    run: Run,
    report: str | os.PathLike[str],
    infos: Mapping[str, ModelInfo],
    settings: AnalyzeSettings,
    progress: Callable[[str], None] = lambda stage: None,
    chapters: Sequence[Analysis] = CHAPTERS,
    lede: str = "",
) -> pathlib.Path | epath.Path:
    """Writes index.html, figures/ and tables/ of `run` under the folder `report`.

    Where `chapters` compare two models, verdict.json and verdict.md are written too, else card.png
    and card.md of the first model, and in cards/ those of the others.

    The folder appears complete, in place of an older report; the page needs no other file and no
    network.

    Args:
      run: what `analysis.load` returned.
      report: folder to write, local or in an object store; its parents are made.
      infos: slug -> metadata of the model, as far as it is known.
      settings: sizes and choices.
      progress: called with the name of each stage as it starts.
      chapters: the analyses, in the order of the page.
      lede: what the page is of, where it is of the steps of a training: it then has no first
        screen, no explorer and no cards.

    Returns:
      The path of index.html.

    Raises:
      ReportError: `report` is something else than an older report.
    """
    report = storage.path_of(report)
    check_target(report, run.folders)
    progress("tables")
    study = compute(run, infos, settings, chapters)
    sections = few_prompts.sections_of(study, chapters)
    told = verdict.of(study)
    with staged(report, _about(run)) as folder:
        (folder / "tables").mkdir()
        (folder / "figures").mkdir()
        for stem, frame in study.tables.files.items():
            frame.write_csv(folder / "tables" / f"{stem}.csv")
        progress("figures")
        # Packing is gzip and polars, which release the interpreter to the drawing.
        with ThreadPoolExecutor(1) as beside:
            packed = beside.submit(lambda: explorer.NOTHING if lede else _packed(study))
            all_pictures = pictures(block for section in sections for block in section.blocks)
            drawn = drawing.draw(
                all_pictures, folder / "figures", settings.formats, settings.figure_width
            )
            progress("page")
            shared = {} if told or lede else page.cards(study, sections)
            html = page.render(study, sections, drawn, packed.result(), told, shared, lede)
        (folder / "index.html").write_text(html, encoding="utf-8")
        card.write(folder, shared.values())
        for name, text in (verdict.files(told) if told else {}).items():
            (folder / name).write_text(text, encoding="utf-8")
    index = report / "index.html"
    return index if storage.is_remote(index) else pathlib.Path(index)


def _about(run: Run) -> dict[str, object]:
    swept = {**run.results, **run.appended}
    results = {f"{m} × {p}": r.identity.short for (m, p), r in swept.items()}
    return {"runs": [str(folder) for folder in run.folders], "identities": results}


def _packed(study: Study) -> explorer.Packed:
    if page.of_language_models(study.run):
        return explorer.NOTHING

    colours = look.colours(study.models)
    filters = partial(sets_of, options=study.options)
    first = few_prompts.shown(study)
    common = lexicons.common_words(study.options.frequency)
    about = (study.run, study.models, study.names, colours)
    return explorer.pack(*about, filters, first, common=common)
