"""Flags and files of `assay reproduce` on tiny models that stand in for two of the paper's."""

import re
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from configs import known_models
from tests.support import tiny

GEMMA, SKYWORK = "grm-gemma2-2b-rewardmodel-ft", "skywork-reward-gemma-2-27b"
LANGUAGE = "gemma-2-2b-it"
SPEC = known_models.KNOWN[GEMMA]
# Short searches, and few draws of the analysis.
SHORT = (
    "--config.search.steps=2",
    "--config.search.candidates=4",
    "--config.search.length=2",
    "--config.search.buffer=2",
    "--config.search.topk=4",
    "--config.permutations=99",
    "--config.bootstraps=99",
)
# Tiny models have neither the bytes nor the vocabulary of the published ones.
TINY = (
    "--config.check_identity=false",
    "--config.language_models=",
    "--readings=none",
    "--config.part_size=64",
    "--config.self_check=2",
    *SHORT,
)
ITEMS = ("love", "war", "truth", "the", "7", "zq")


def write_models(folder: Path) -> Path:
    """Folders of two reward models and a language model, one named owner--name."""
    tiny.write_model(folder / SPEC.hub_id.replace("/", "--"), seed=1)
    tiny.write_model(folder / SKYWORK, seed=2)
    tiny.write_model(folder / LANGUAGE, seed=3, head="lm")
    return folder


def write_items(folder: Path, items: Sequence[str] = ITEMS, best: int = 1700) -> Path:
    """Items with human ranks, in the layout of the authors' release."""
    count = range(1, len(items) + 1)
    columns = {"elo_rank": count, "elo_score": [best - i for i in count], "name": items}
    folder.mkdir(parents=True, exist_ok=True)
    pl.DataFrame({**columns, "elo_matches": 60, "a/b": 0.0}).write_csv(folder / "items.csv")
    return folder / "items.csv"


def flags(root: Path, folders: Path, *more: str, models: Sequence[str] = (GEMMA,)) -> list[str]:
    """The flags of a call; those of `more` come last, and win."""
    named = f"--models={','.join(models)}"
    return [f"--root={root}", f"--source-dir={folders}", named, *TINY, *more]


def rows(lines: Sequence[str]) -> dict[str, str]:
    """First word -> the last line that begins with it: the rows of a table."""
    return {line.split()[0]: line for line in lines if line.strip()}


def counts(line: str) -> dict[str, int]:
    """`page: … (3 same, 0 within noise, …)` -> kind -> count."""
    return {kind: int(n) for n, kind in re.findall(r"(\d+) ([a-z ]+?)(?:,|;|\))", line)}
