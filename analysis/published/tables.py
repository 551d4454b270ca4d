"""The tables and figures of a run that the paper has too: a part of the chapters of the report."""

import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import numpy as np
import polars as pl

from analysis.blocks import Picture, pictures
from analysis.chapters import (
    agreement,
    distributions,
    explained,
    framing,
    frequency,
    humans,
    language_models,
    model_list,
    sentiment,
    sequences,
    tokens,
)
from analysis.chapters.agreement import kendall_matrix
from analysis.charts.heat_map import heat_map
from analysis.model_info import ModelInfo
from analysis.published.data import Published
from analysis.published.exhibits import EXHIBITS, ITEMS, Exhibit
from analysis.published.rounding import rounded_agreement
from analysis.published.run_values import GREATEST, Key, RunValues
from analysis.report import drawing
from analysis.run import Run, load
from analysis.study import Analysis, Chapter, Study, Table, compute, required, table
from engine.runs import storage
from engine.runs.reader import read_contents
from engine.runs.schema import MANIFEST
from engine.settings import AnalyzeSettings

# Tables of a chapter that the paper has only under "greatest", and tables that it does not have.
_ONE_PROMPT = ("kendall_tau", "spearman", "rbo", "mds")
_LEFT_OUT = ("kendall_pairs", "blocs", "consensus", "disputed_words")
_LEFT_OUT += ("logprobs_rewards", "logprobs_ratio")
_CHAPTERS: tuple[Chapter, ...] = (
    model_list.ANALYSIS,
    tokens.ANALYSIS,
    distributions.ANALYSIS,
    agreement.ANALYSIS,
    explained.ANALYSIS,
    sentiment.ANALYSIS,
    frequency.ANALYSIS,
    framing.ANALYSIS,
    humans.ANALYSIS,
    sequences.ANALYSIS,
    language_models.ANALYSIS,
)
_WITHOUT_PICTURES = [
    module.ANALYSIS for module in (model_list, tokens, agreement, sequences, language_models)
]


def _wanted(chapter: Chapter, study: Study) -> Iterator[Table]:
    """The tables of a chapter that the paper has."""
    for each in chapter.tables(study):
        name, prompt = each.key[0], each.key[-1]
        if name not in _LEFT_OUT and (name not in _ONE_PROMPT or prompt == GREATEST):
            yield each


def _items_agreement(study: Study) -> Iterator[Table]:
    """Kendall's tau of models on lists of items without human ranks: ("items_kendall", …)."""
    for name, prompt in study.run.lists():
        if name in study.run.item_lists() and study.run.humans(name) is None:
            make = partial(_items_kendall, study, name, prompt)
            yield table("items_kendall", name, prompt, make=make, file=False)


def _items_kendall(study: Study, name: str, prompt: str) -> pl.DataFrame:
    scored = [model for model in study.models if (name, model, prompt) in study.run.items]
    return kendall_matrix(study.run.item_scores(name, prompt, scored).drop("item_id"))


def complete(run: str | os.PathLike[str]) -> Run | None:
    """The complete results of a run; None where it has none.

    What a failed model left behind is no result: it is computed to the end later, or not at all.

    Raises:
      RunError: the run is damaged.
    """
    folder = storage.path_of(run)
    if not storage.exists(folder / MANIFEST):
        return None
    contents = read_contents(folder)
    if not contents.searches and not any(r.complete for r in contents.results.values()):
        return None
    return load(run, finished_only=True)


def study_of(
    run: Run,
    infos: Mapping[str, ModelInfo],
    settings: AnalyzeSettings,
    published: Published,
) -> Study:
    """The tables of a run that the paper has.

    Args:
      run: complete results.
      infos: slug -> metadata of every model that may be asked for.
      settings: of the analyses.
      published: whose tokens are looked up.
    """
    slugs = {info.nickname: slug for slug, info in infos.items()}

    def of_tokens(study: Study) -> Iterator[Table]:
        make = partial(printed_scores, study.run, published, slugs)
        yield table("printed_scores", make=make)

    parts: list[Callable[[Study], Iterable[Table]]]
    parts = [partial(_wanted, chapter) for chapter in _CHAPTERS]
    parts += [rounded_agreement, _items_agreement, of_tokens]
    chapters = [Analysis(id="", title="", lead="", make=make, parts=()) for make in parts]
    return compute(run, infos, settings, chapters)


def own_of(
    name: str,
    study: Study | None,
    infos: Mapping[str, ModelInfo],
    failures: Mapping[str, str] | None = None,
    reasons: Mapping[Key, str] | None = None,
    items: str = "",
) -> RunValues:
    """A reading's tables as `compare` takes them.

    Args:
      name: of the reading.
      study: its tables; None: nothing of it was run.
      infos: slug -> metadata of every model that may be asked for.
      failures: slug -> why a model has no results.
      reasons: key of a table -> why it is absent, where the caller knows better than the study.
      items: name of the list of items that is compared; "": the only one that was scored.
    """
    made = {} if study is None else study.tables.frames
    return RunValues(
        name=name,
        tables=made,
        reasons={**({} if study is None else study.tables.absent), **(reasons or {})},
        slugs={info.nickname: slug for slug, info in infos.items()},
        items=items,
        failures=failures or {},
    )


def printed_scores(run: Run, published: Published, slugs: Mapping[str, str]) -> pl.DataFrame:
    """model, prompt, token_id, reward: the tokens whose rewards are printed.

    Raises:
      Absent: none of their models was scored.
    """
    schema = {"model": pl.String, "prompt": pl.String, "token_id": pl.Int64, "reward": pl.Float64}
    frames = [pl.DataFrame(schema=schema)]
    scored = published.tokens.filter(pl.col("token_id").is_not_null())
    for (model, prompt), part in scored.group_by("model", "prompt", maintain_order=True):
        slug, named = slugs.get(str(model), ""), str(prompt)
        if (slug, named) in run.results:
            ids, rewards = run.rewards(slug, named)
            kept = np.isin(ids, part["token_id"])
            columns = {"token_id": ids[kept], "reward": rewards[kept]}
            frame = pl.DataFrame(columns).with_columns(model=pl.lit(slug), prompt=pl.lit(named))
            frames.append(frame.select(list(schema)).cast(pl.Schema(schema)))
    return required(pl.concat(frames), "None of the models was scored under that prompt.")


def draw(study: Study, folder: pathlib.Path, items: str = "") -> dict[str, list[tuple[str, str]]]:
    """Draws the figures of the exhibits into a folder.

    Args:
      study: the tables.
      folder: an empty one.
      items: name of the list of items whose figures are drawn; "": of every list.

    Returns:
      Exhibit -> data URI and caption of each of its figures.
    """
    there = [*_heat_maps(study)]
    for chapter in _CHAPTERS:
        if chapter not in _WITHOUT_PICTURES:
            there += pictures(chapter.section(study).blocks)
    there = [picture for picture in there if picture.stem not in _of_other_lists(study, items)]
    of = {e.id: [p for p in there if _belongs(p, e)] for e in EXHIBITS}
    drawn = drawing.draw(itertools.chain.from_iterable(of.values()), folder)
    return {
        name: [(drawn[p.stem].image, p.caption) for p in computed] for name, computed in of.items()
    }


def _of_other_lists(study: Study, items: str) -> set[str]:
    """Stems of the figures of every list but one; none where no list is named."""
    prefixes = [stem for e in EXHIBITS if e.stage == ITEMS for stem in e.pictures]
    other_lists = [key for key in study.run.lists() if items and key[0] != items]
    return {f"{prefix}{name}_{prompt}" for prefix in prefixes for name, prompt in other_lists}


def _belongs(picture: Picture, exhibit: Exhibit) -> bool:
    stem = picture.stem
    return any(
        stem == wanted or (stem.startswith(wanted) and wanted.endswith("_"))
        for wanted in exhibit.pictures
    )


def _heat_maps(study: Study) -> Iterator[Picture]:
    matrix = study.tables.get("kendall_tau", GREATEST)
    if matrix is not None:
        caption = "Kendall’s τ-b on the shared vocabulary, in the order of the paper."
        yield Picture("kendall_tau", caption, partial(heat_map, matrix, study.names, "Kendall’s τ"))
    for key, matrix in study.tables.of("items_kendall").items():
        drawn = partial(heat_map, matrix, study.names, "Kendall’s τ")
        yield Picture("_".join(("items_kendall", *key)), "Kendall’s τ-b on the items.", drawn)
