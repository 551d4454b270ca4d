"""Metadata of models, which the scores do not hold: developer, base, size, rank."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from analysis.run import Run
from analysis.sentences import alike, listed
from engine.runs.schema import Columns

_DESCRIBED: Columns = {
    **dict.fromkeys(("model", "nickname", "developer", "base"), pl.String),
    **{"size_b": pl.Float64, "rewardbench_rank": pl.Int64, "vocabulary": pl.Int64},
}


_LONG = 20  # Characters above which names lose what all have in common.


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """Metadata of one model; None where it is not known."""

    nickname: str  # the short name that tables and figures show
    developer: str | None  # who trained it
    base: str | None  # the family of base models it was trained from, such as "Gemma 2"
    size_b: float | None  # parameters in billions
    rewardbench_rank: int | None  # its rank on RewardBench; orders the models in figures
    # The reward-model weights or preference data it was trained from; models of one lineage have
    # the same string. A confound of the base model.
    lineage: str | None = None
    # Base, head and training in a few plain words; the page shows them below the nickname.
    about: str = ""


def describe(run: Run, infos: Mapping[str, ModelInfo]) -> pl.DataFrame:
    """The table `models.csv`, ordered by RewardBench rank (unranked last), then as in the run.

    Args:
      run: the run whose models are described.
      infos: slug -> its metadata. A slug that is not in it is its own nickname.

    Returns:
      model, nickname, developer, base, size_b, rewardbench_rank, vocabulary (number of tokens;
      null for a model that scored no vocabulary).
    """
    scored = run.vocabulary_models
    rows = []
    for slug in run.models:
        info = infos.get(slug) or _unknown(slug)
        about = (info.nickname, info.developer, info.base, info.size_b, info.rewardbench_rank)
        size = run.vocabulary(slug).select(pl.len()).collect().item() if slug in scored else None
        rows.append((slug, *about, size))
    table = pl.DataFrame(rows, schema=_DESCRIBED, orient="row")
    return table.sort("rewardbench_rank", nulls_last=True, maintain_order=True)


def about(record: Mapping[str, Any], info: ModelInfo | None) -> str:  # Any: JSON of run.json
    """A model in a few plain words: those of its metadata, else head, base and source; or "".

    Args:
      record: of the model in run.json.
      info: its metadata, where it is known.
    """
    if info is not None and info.about:
        return info.about
    if not record.get("head"):
        return ""
    parts = [f"{record['head']} head"]
    parts += [f"adapter of {base['source']}"] if (base := record.get("base")) else []
    return ", ".join([*parts, f"from {record['source']}"])


def short_names(names: Sequence[str]) -> list[str]:
    """`names` without the parts with which all of them begin or end.

    Parts end at `-`, `_`, `/` or a space. What stays of each name has a letter. Names of which none
    is longer than `_LONG` characters stay as they are.
    """
    parts = [re.split(r"(?<=[-_/ ])", name) for name in names]
    start = alike(parts)
    end = alike([name[start:][::-1] for name in parts])
    for kept in range(start, -1, -1):
        short = ["".join(name[kept : len(name) - end]).strip("-_/ ") for name in parts]
        if len(set(short)) == len(names) and all(re.search(r"[^\W\d_]", name) for name in short):
            return short if max(map(len, names)) > _LONG else list(names)
    return list(names)


def in_common(records: Sequence[Mapping[str, Any]], infos: Sequence[ModelInfo | None]) -> str:
    """What some models share, as one sentence; "" where nothing is known to be shared.

    Args:
      records: of the models in run.json.
      infos: the metadata of each, where it is known.
    """
    bases = {(info.base or "").partition(", ")[0] if info else "" for info in infos}
    base = next(iter(bases)) if len(bases) == 1 else ""
    layers = [record.get("layers") or [] for record in records]
    depths, deepest = sorted({len(own) for own in layers}), max(layers, key=len, default=[])
    decoder = f"one decoder ({base})" if base else "one decoder"
    facts = [f"the base {base}"] if base else []
    if depths[:1] > [0] and all(own == deepest[: len(own)] for own in layers):
        cut = f"the first {listed([str(n) for n in depths], 'or')} layers of {decoder}"
        facts = [cut if len(depths) > 1 else f"all {depths[0]} layers of {decoder}"]
    elif _same(records, "decoder_hash"):
        facts = [decoder]
    facts += ["one tokenizer"] * _same(records, "vocab")
    return f"They share {listed(facts)}." if facts and len(records) > 1 else ""


def family(base: str | None) -> str | None:
    """Name of a base model without its version: "Llama 3.1" is of the family "Llama"."""
    return None if base is None else re.sub(r"[\s-]*v?\d[\w.]*$", "", base).strip() or base


def _same(records: Sequence[Mapping[str, Any]], key: str) -> bool:
    values = {record.get(key) for record in records}
    return len(values) == 1 and None not in values


def _unknown(slug: str) -> ModelInfo:
    return ModelInfo(nickname=slug, developer=None, base=None, size_b=None, rewardbench_rank=None)
