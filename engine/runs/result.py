"""A result: a folder with its parts, and `result.json`, which says what they are.

`result.json` vouches for every part by its hash: a part that it does not name does not count, and
is computed again. `Result.open` and `Result.frame` check all that they read.
"""

import dataclasses
import hashlib
import io
import re
from collections.abc import Iterable
from typing import Any

import polars as pl
from etils import epath

from engine.errors import AssayError
from engine.runs import schema, storage
from engine.runs.identity import Identity, Json, from_json, sealed, to_json, unsealed

AGAIN = "remove it and run again"
_NAMED = 5  # ids that a message lists at most
_MOST = 100_000  # parts, or layers: what a damaged or malicious file cannot exceed
_LISTS = (schema.ITEMS_DIR, schema.ITEM_LOGPROBS_DIR)  # under prompts of the run
_OWN_PROMPTS = (schema.CONVERSATIONS_DIR, schema.CONVERSATION_LOGPROBS_DIR)
_PATH = re.compile(
    rf"(?P<kind>{'|'.join(schema.COLUMNS)})(?:/(?P<items>(?!model=)[^/]+))?"
    r"/model=(?P<model>[^/]+)(?:/prompt=(?P<prompt>[^/]+))?"
    r"(?:/direction=(?P<direction>max|min)/(?P<method>[^/]+)-seed(?P<seed>\d+))?"
)

Span = tuple[int, int]  # start, stop of a range of rows


class RunError(AssayError):
    """A run folder that cannot be read as it stands; the message is one line."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A file of a result: its rows, the sha256 of its bytes, and its place in `Result.ways`."""

    rows: int
    sha256: str
    way: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelfCheck:
    """A comparison of some rows with the plain pass.

    Attributes:
      candidates: number of rows.
      max_abs_difference: the largest difference.
      relative_difference: what was compared: a difference relative to max(1, |number|), that of
        the row which `compared` names.
      tolerance: of it, when it was compared; of a pair, of `max_abs_difference`.
      dtype, compared: what decides the tolerance (`schema.tolerance`).
      reward_from_text: of a search, the reward of the reply's text as a chat would tokenise it.
      of: of a pair of language models, the checks of both log-probabilities.
    """

    candidates: int
    max_abs_difference: float
    relative_difference: float
    tolerance: float
    dtype: str
    compared: str
    reward_from_text: float | None = None
    of: tuple["SelfCheck", ...] = ()

    @property
    def noise(self) -> float:
        """The gap below which two numbers are noise: twice the largest difference of the sample.

        So far can two errors move a gap. A further row has a larger error with a probability of
        1 / (candidates + 1).
        """
        return 2 * self.max_abs_difference

    def problem(self, dtype: str, *, mixture: bool) -> str:
        """Why the difference is not within the tolerance that the code has; "" if it is.

        `dtype` is that of the result, `mixture` whether its model is a mixture of experts.
        """
        if self.compared == schema.PAIR_OF and len(self.of) == 2:
            return next(filter(None, (c.problem(dtype, mixture=mixture) for c in self.of)), "")
        allowed = [schema.MEDIAN, schema.SINGLE] if mixture else [schema.LARGEST]
        if self.compared not in allowed or self.dtype != dtype or self.of:
            return f"self_check is of {self.compared} in {self.dtype}, not of this result"
        if dtype not in schema.SELF_CHECK_TOLERANCE:
            return f"dtype={dtype!r}; allowed: {', '.join(schema.SELF_CHECK_TOLERANCE)}"
        most = schema.tolerance(dtype, self.compared)
        if 0 <= self.relative_difference <= most:
            return ""
        return f"self_check has a difference of {self.relative_difference:g}, beyond {most:g}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Certificate:
    """What the swaps of one token of a reply gave (`engine.search.swaps`).

    Attributes:
      swaps: other replies that were scored.
      better: how many of them improve the reply and are admitted.
      best_ids, best_text, best_reward: of the best that is admitted, None if none is.
    """

    swaps: int
    better: int
    best_ids: tuple[int, ...] | None = None
    best_text: str | None = None
    best_reward: float | None = None


@dataclasses.dataclass(kw_only=True, eq=False)
class Result:
    """Numbers of one model for all rows under one prompt, or the trace of a search.

    Attributes:
      run: the run folder.
      path: of the result in the run.
      identity: what its numbers mean.
      inputs: `models`, `prompts` and `lists` -> name -> hash of the checkpoint, text of the prompt,
        hash of the list: what stands behind the names in the path.
      part_size: rows of a part, of all but the last.
      parts: by file name.
      ways: how parts were computed; `Part.way` is a place here.
      self_check: None before all parts are there, and for imported numbers.
      coefficients: objective -> its weight in the reward, where the prompt fixes them.
      baseline: under a prompt with a reply start, the reward of the reply start alone.
      seconds: that its parts took.
      environment: of the command that computed the last part.
      rejected: of a search, candidates whose text did not tokenise back to them.
      certificate: of a search; None if no swap was scored.
      model: slug; by default as the path says.
    """

    run: epath.Path
    path: str
    identity: Identity
    inputs: dict[str, dict[str, str]]
    part_size: int
    parts: dict[str, Part] = dataclasses.field(default_factory=dict)
    ways: tuple[dict[str, Any], ...] = ()  # Any: what JSON holds
    self_check: SelfCheck | None = None
    coefficients: dict[str, float] | None = None
    baseline: float | None = None
    seconds: float = 0.0
    environment: dict[str, Any] = dataclasses.field(default_factory=dict)  # Any: what JSON holds
    rejected: int | None = None
    certificate: Certificate | None = None
    model: str = ""

    def __post_init__(self) -> None:
        match, kind = _PATH.fullmatch(self.path), self.path.partition("/")[0]
        if (
            match is None
            or (match["items"] is None) == (kind in (*_LISTS, *_OWN_PROMPTS))
            or (match["prompt"] is None) != (kind in _OWN_PROMPTS)
            or (match["direction"] is None) == (kind == schema.SEQUENCES_DIR)
        ):
            raise RunError(f"{self.run}: {self.path!r} is no path of a result")
        self.kind, self.items, self.prompt = kind, match["items"], match["prompt"] or ""
        self.direction, self.method, self.seed = match.group("direction", "method", "seed")
        self.model = self.model or match["model"]

    @classmethod
    def open(cls, run: epath.Path, path: str, data: bytes | None = None) -> "Result":
        """The result at a path of a run, from its `result.json`; `data`: its bytes, if known.

        Raises RunError for a file that is missing, damaged or a stranger's.
        """
        file = run / path / schema.RESULT
        try:
            content = unsealed(storage.read(file) if data is None else data, schema.VERSION)
            if "model" in content or content["path"] != path:
                raise ValueError(f"it is of {content['path']!r:.100}")
            result = from_json(cls, content, run=run)
            result._check_parts()
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, AssayError):
                raise RunError(str(error)) from error
            raise RunError(f"{file}: damaged ({error}); {AGAIN}") from error
        return result

    def _check_parts(self) -> None:
        """Raises ValueError for parts that the result cannot have."""
        rows, lens = self.identity.rows or 0, self.identity.lens
        if self.part_size < 1 or not 0 <= rows / self.part_size < _MOST or not 0 <= lens < _MOST:
            raise ValueError(f"rows={rows}, part_size={self.part_size}, lens={lens}")
        spans = {schema.part_name(*span): span[1] - span[0] for span in self.spans}
        for name, part in self.parts.items():
            if part.rows != spans.get(name, part.rows if name == schema.TRACE else None):
                raise ValueError(f"part {name!r:.100} of {part.rows} rows")
            if not 0 <= part.way < len(self.ways):
                raise ValueError(f"way {part.way} of part {name}")
            if self.is_search != (name == schema.TRACE):
                raise ValueError(f"part {name}")

    @property
    def folder(self) -> epath.Path:
        """Folder of the parts."""
        return self.run / self.path

    @property
    def title(self) -> str:
        """Name of this result in messages."""
        of = f" of {self.items}" if self.items and self.prompt else ""
        return f"{self.model} × {self.prompt or self.items}{of} in {self.run}"

    @property
    def is_search(self) -> bool:
        """Whether it is the trace of a search: one part, of as many rows as it has steps."""
        return self.kind == schema.SEQUENCES_DIR

    @property
    def spans(self) -> list[Span]:
        """Row range of every part, ascending; none of a search."""
        return [] if self.is_search else ranges(self.identity.rows or 0, self.part_size)

    @property
    def missing(self) -> list[Span]:
        """Row ranges that no part holds; of a search (0, 1) where it has no trace."""
        if self.is_search:
            return [] if self.parts else [(0, 1)]
        return [span for span in self.spans if schema.part_name(*span) not in self.parts]

    @property
    def reply_start(self) -> str:
        """Of scored tokens and lists, the reply start of their prompt; "" without one."""
        scored = self.kind in (schema.SCORES_DIR, schema.ITEMS_DIR)
        return schema.parted(self.prompt_text)[1] if scored else ""

    @property
    def prompt_text(self) -> str:
        """The text of its prompt; "" without one."""
        return str(self.inputs.get("prompts", {}).get(self.prompt, ""))

    @property
    def imported(self) -> bool:
        """Whether its numbers were computed elsewhere."""
        return bool(self.identity.imported)

    @property
    def complete(self) -> bool:
        """Whether all rows are there, and a sample agrees with the plain pass."""
        checked = self.self_check is not None and (
            self.baseline is not None or not self.reply_start
        )
        return not self.missing and (self.imported or checked)

    @property
    def columns(self) -> schema.Columns:
        """Columns of its parts and their types."""
        beside = [*self.identity.objectives, *schema.lens_columns(self.identity.lens)]
        return schema.COLUMNS[self.kind] | dict.fromkeys(beside, pl.Float32)

    @property
    def objectives(self) -> tuple[str, ...]:
        """Columns of the parts beside the reward that are what it is made of."""
        return self.identity.objectives

    @property
    def layers(self) -> tuple[str, ...]:
        """Columns of the parts that hold the reward after each layer; empty without the lens."""
        return schema.lens_columns(self.identity.lens)

    @property
    def mixed(self) -> str:
        """In what the parts were computed differently, as far as it may move their last bits."""
        used = [self.ways[i] for i in sorted({part.way for part in self.parts.values()})]
        used = [{k: v for k, v in way.items() if k != "devices"} for way in used]
        names = dict.fromkeys(name for way in used for name in way)
        values = {
            name: dict.fromkeys(str(way.get(name, "default")) for way in used) for name in names
        }
        return ", ".join(f"{k} {' and '.join(v)}" for k, v in values.items() if len(v) > 1)

    @property
    def mixed_line(self) -> str:
        """`mixed` in one line; "" where all parts were computed in one way."""
        if not self.mixed:
            return ""
        return (
            f"{self.folder}: parts were computed with {self.mixed}; numbers may differ in the "
            "sixth digit"
        )

    def save(self) -> None:
        """Writes `result.json`."""
        self.parts = dict(sorted(self.parts.items()))
        content = {k: v for k, v in to_json(self, skip=("run", "model")).items()}
        storage.write_atomic(self.folder / schema.RESULT, sealed(content, schema.VERSION))

    def write(self, name: str, frame: pl.DataFrame, way: Json, seconds: float) -> None:
        """Writes a part, computed in this way, and then the record that vouches for it."""
        data = to_parquet(frame)
        storage.write_atomic(self.folder / name, data)
        if way not in self.ways:
            self.ways = (*self.ways, way)
        digest = hashlib.sha256(data).hexdigest()
        self.parts[name] = Part(rows=len(frame), sha256=digest, way=self.ways.index(way))
        self.seconds = round(self.seconds + seconds, 3)
        self.save()

    def forget(self, names: Iterable[str]) -> None:
        """Drops parts, which are then computed and checked again."""
        for name in names:
            del self.parts[name]
            self.self_check = None

    def check_bytes(self, name: str, data: bytes) -> None:
        """Raises RunError for the bytes of a part for which `result.json` does not vouch."""
        if hashlib.sha256(data).hexdigest() != self.parts[name].sha256:
            raise RunError(f"{self.folder / name}: damaged, or of another result; {AGAIN}")

    def frame(self, name: str, data: bytes | None = None) -> pl.DataFrame:
        """A part, checked; `data`: its bytes, if they were read already.

        Raises RunError for other bytes than `result.json` names, other columns or rows than the
        result has, or a number that is not finite.
        """
        file, part = self.folder / name, self.parts[name]
        data = storage.read(file) if data is None else data
        self.check_bytes(name, data)
        frame = from_parquet(file, data, self.columns)
        key, span = frame.columns[0], schema.part_span(name)
        ids = frame[key]
        by_row = key != "token_id" and not self.imported  # ids of tokens may have gaps
        if len(frame) != part.rows or ids.null_count() or ids.is_duplicated().any():
            raise RunError(f"{file}: other rows than its name says; {AGAIN}")
        if by_row and span and not ids.is_between(span[0], span[1] - 1).all():
            raise RunError(f"{file}: other rows than its name says; {AGAIN}")
        for column, kind in self.columns.items():
            if kind == pl.Float32:
                finite = frame[column].is_finite().fill_null(value=False)
                if not finite.all():
                    refuse(
                        frame,
                        ~finite,
                        f"{self.title}: {column}s that are not finite, {key.replace('_', ' ')}s",
                    )
        return frame

    def frames(self) -> list[pl.DataFrame]:
        """All parts, in the order of their names."""
        files = [self.folder / name for name in self.parts]
        read = zip(self.parts, storage.read_ahead(files), strict=True)
        return [self.frame(name, data) for name, data in read]


def ranges(rows: int, part_size: int) -> list[Span]:
    """The row range of every part: a function of the list alone, never of hosts or devices."""
    return [(start, min(start + part_size, rows)) for start in range(0, rows, max(part_size, 1))]


def to_parquet(frame: pl.DataFrame) -> bytes:
    """A table of a run as the bytes of a file."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", statistics=False)
    return buffer.getvalue()


def from_parquet(
    file: epath.Path,
    data: bytes,
    columns: schema.Columns,
    optional: schema.Columns | None = None,
) -> pl.DataFrame:
    """The inverse of `to_parquet`; raises RunError for another file, or for other columns."""
    try:
        frame = pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise RunError(f"{file}: damaged, no Parquet file; {AGAIN}") from error
    columns = columns | {k: v for k, v in (optional or {}).items() if k in frame.columns}
    for name, kind in columns.items():
        if frame.schema.get(name) != kind:
            has = frame.schema.get(name, "absent")
            raise RunError(f"{file}: column {name} is {has}; expected {kind}")
    if more := [name for name in frame.columns if name not in columns]:
        raise RunError(f"{file}: unknown column {more[0]!r:.60}; {AGAIN}")
    return frame.select(list(columns))


def refuse(frame: pl.DataFrame, condition: pl.Expr | pl.Series, message: str) -> None:
    """Raises RunError with the ids (first column) of the rows where `condition` holds."""
    ids = frame.filter(condition)[frame.columns[0]].unique().sort().to_list()
    if ids:
        shown = ", ".join(map(str, ids[:_NAMED]))
        more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
        raise RunError(f"{message} {shown}{more}")
