"""Runs as frames: every score of every model and prompt, joined with what each token says.

run = analysis.load("out/run")
run.scores(prompts=["greatest"]).filter(pl.col("token") == " love").collect()
"""

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from analysis.manifests import Manifest, Result, RunError, merge, read_manifest
from engine.runs import schema

_NAMED = 5  # How many token ids a message names before it stops.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """The scores of one run folder, or of several merged. Made by `load`; read lazily.

    Attributes:
      folders: the run folders.
      models: slug -> what the manifest says of the model, sorted by slug.
      prompts: prompt id -> prompt text, in the order of the manifest.
      results: (slug, prompt id) -> its `Result`; a pair that was not scored is absent.
    """

    folders: tuple[pathlib.Path, ...]
    models: Mapping[str, Mapping[str, Any]]
    prompts: Mapping[str, str]
    results: Mapping[tuple[str, str], Result]
    _vocabularies: Mapping[str, pathlib.Path]

    def scores(
        self, *, models: Iterable[str] | None = None, prompts: Iterable[str] | None = None
    ) -> pl.LazyFrame:
        """Scores of the named models and prompts (all by default), one row a token.

        Returns:
          A lazy frame with the columns model, prompt, token_id, token, reward, is_special and
          round_trip, sorted by model, prompt and token_id. Several token_ids may share a token:
          join on token_id, or take `shared_vocabulary`.

        Raises:
          RunError: a name that the run does not hold, or no such pair was scored.
        """
        chosen = (self._chosen("model", models), self._chosen("prompt", prompts))
        frames = [
            self._joined(result)
            for (model, prompt), result in self.results.items()
            if model in chosen[0] and prompt in chosen[1]
        ]
        if not frames:
            raise RunError(f"no scores of {sorted(chosen[0])} under {sorted(chosen[1])}")
        return pl.concat(frames)

    def rewards(self, model: str, prompt: str) -> tuple[np.ndarray, np.ndarray]:
        """Token ids (uint32, ascending) and rewards (float32) of one model under one prompt."""
        frame = _scan(self.results[model, prompt]).collect()
        return frame["token_id"].to_numpy(), frame["reward"].to_numpy()

    def vocabulary(self, model: str) -> pl.LazyFrame:
        """Vocabulary of `model`: token_id, token, is_special, round_trip, sorted by token_id."""
        path = self._vocabularies[model]
        frame = pl.scan_parquet(path, glob=False, hive_partitioning=False)
        return frame.select(list(schema.VOCAB_COLUMNS)).sort("token_id")

    def models_under(self, prompt: str) -> list[str]:
        """Slugs of the models that were scored under `prompt`, sorted."""
        return [model for model in self.models if (model, prompt) in self.results]

    def same_vocabulary(self, model: str) -> str:
        """Key that two models share exactly when they share a vocabulary table."""
        return str(self.models[model]["vocab"])

    def _chosen(self, what: str, names: Iterable[str] | None) -> list[str]:
        known = list(self.models if what == "model" else self.prompts)
        chosen = known if names is None else list(names)
        unknown = [name for name in chosen if name not in known]
        if unknown:
            raise RunError(f"{what} {unknown[0]!r} is not in the run; there: {known}")
        return chosen

    def _joined(self, result: Result) -> pl.LazyFrame:
        scores = _scan(result).join(
            self.vocabulary(result.model), on="token_id", how="left", validate="1:1"
        )
        columns = ["token_id", "token", "reward", "is_special", "round_trip"]
        names = {"model": pl.lit(result.model), "prompt": pl.lit(result.prompt)}
        return scores.select(**names, **{c: pl.col(c) for c in columns}).sort("token_id")


def load(
    run: str | os.PathLike | Sequence[str | os.PathLike], *, allow_incomplete: bool = False
) -> Run:
    """Opens a run folder, or several, and checks every score before anything is computed.

    Args:
      run: one local run folder or a sequence of them.
      allow_incomplete: take what is there of a sweep that has not finished.

    Raises:
      RunError: not a run folder; nothing scored; an unfinished result (unless allowed); bytes
        that the manifest does not know; a reward that is not finite (polars would rank NaN
        above every number); a token scored twice or missing from the vocabulary; or two runs
        that disagree on what they both hold.
    """
    paths = [run] if isinstance(run, str | os.PathLike) else list(run)
    folders = tuple(pathlib.Path(path) for path in paths)
    if not folders:
        raise RunError("no run folder was named")
    manifest = merge([read_manifest(folder) for folder in folders])
    if not manifest.results:
        raise RunError(f"{', '.join(map(str, folders))}: no scores of a vocabulary in this run")
    results = {key: _present(result, allow_incomplete) for key, result in manifest.results.items()}
    for model in manifest.models:
        _check_model(manifest, model, results, allow_incomplete)
    return Run(
        folders=folders,
        models=manifest.models,
        prompts=manifest.prompts,
        results=results,
        _vocabularies=manifest.vocabularies,
    )


def _scan(result: Result) -> pl.LazyFrame:
    # Neither the order of the files nor that of a scan is promised: sort. The folder names hold
    # `model=`, which polars would read as hive columns unless told not to.
    files = [result.folder / name for name in result.parts]
    frame = pl.scan_parquet(files, glob=False, hive_partitioning=False)
    return frame.select(list(schema.SCORE_COLUMNS)).sort("token_id")


def _present(result: Result, allow_incomplete: bool) -> Result:
    """`result` with the parts that exist, each checked against its sha256."""
    missing = [name for name in result.parts if not (result.folder / name).is_file()]
    if not allow_incomplete and (missing or not result.complete):
        why = f"{missing[0]} is missing" if missing else "the sweep has not finished"
        raise RunError(f"{result.where} is incomplete: {why} (resume it or allow incomplete)")
    parts = {name: digest for name, digest in result.parts.items() if name not in missing}
    if not parts:
        raise RunError(f"{result.where} holds no scores")
    for name, digest in parts.items():
        path = result.folder / name
        if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise RunError(f"{path}: not the bytes that the manifest names (sha256)")
        _check_schema(path, schema.SCORE_COLUMNS)
    return dataclasses.replace(result, parts=parts)


def _check_model(manifest: Manifest, model: str, results: Mapping, allow_incomplete: bool) -> None:
    path = manifest.vocabularies[model]
    if not path.is_file():
        raise RunError(f"{path}: no such vocabulary, which {model} needs")
    _check_schema(path, schema.VOCAB_COLUMNS)
    vocabulary = pl.read_parquet(path, glob=False, columns=["token_id", "token"])
    _refuse(vocabulary, pl.col("token_id").is_duplicated(), f"{path}: duplicate token ids")
    _refuse(vocabulary, pl.col("token").is_null(), f"{path}: token ids without a token")
    ids = vocabulary.select("token_id")
    for (slug, _), result in results.items():
        if slug == model:
            _check_scores(result, ids, allow_incomplete)


def _check_scores(result: Result, ids: pl.DataFrame, allow_incomplete: bool) -> None:
    scores = _scan(result).collect()
    broken = pl.col("reward").is_null() | ~pl.col("reward").is_finite()
    _refuse(scores, broken, f"{result.where}: rewards that are not finite, token ids")
    _refuse(scores, pl.col("token_id").is_duplicated(), f"{result.where}: duplicate token ids")
    unknown = scores.join(ids, on="token_id", how="anti")
    _refuse(unknown, pl.lit(True), f"{result.where}: token ids that its vocabulary lacks")
    if not allow_incomplete:
        unscored = ids.join(scores, on="token_id", how="anti")
        _refuse(unscored, pl.lit(True), f"{result.where} is incomplete: no score of token ids")


def _refuse(frame: pl.DataFrame, condition: pl.Expr, message: str) -> None:
    ids = frame.filter(condition)["token_id"].unique().sort().to_list()
    if ids:
        named = ", ".join(map(str, ids[:_NAMED]))
        more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
        raise RunError(f"{message} {named}{more}")


def _check_schema(path: pathlib.Path, columns: Mapping[str, type[pl.DataType]]) -> None:
    try:
        found = pl.scan_parquet(path, glob=False, hive_partitioning=False).collect_schema()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise RunError(f"{path}: not a parquet file") from error
    wrong = [name for name, dtype in columns.items() if found.get(name) != dtype]
    if wrong:
        raise RunError(
            f"{path}: column {wrong[0]} is {found.get(wrong[0], 'absent')}; "
            f"expected {columns[wrong[0]].__name__}"
        )
