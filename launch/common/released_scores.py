"""Scores that others released: files in two layouts, checked and written into a run."""

import dataclasses
import hashlib
import re
from pathlib import Path

import numpy as np
import polars as pl
from etils import epath

from configs import known_models, prompts
from engine.display import counted, progress
from engine.errors import AssayError, prefixed
from engine.lists.files import list_name, read_table
from engine.runs import schema
from engine.runs.folder import RunFolder
from engine.runs.identity import Identity, Json, items_hash, library_versions
from engine.settings import check_choice
from launch.common.scoring import prompt_id

LAYOUTS = {
    "items": "item (or name), then one column per model",
    "tokens": "token_id, token_decoded, then one column per prompt",
}
VALUES = ("rewards", "logprobs", "logits")
FORMS = ("pretrained", "chat")
_PEOPLE = ("elo_rank", "elo_score", "elo_matches")  # of a list that people rated
_EXCESS = 1e-3  # by which rounding may lift a sum of probabilities above 1
_PART_SIZE = 65_536
# (is a list, numbers are rewards) -> columns of a result in the run.
_COLUMNS = {
    (False, True): schema.SCORE_COLUMNS,
    (False, False): schema.LOGPROB_COLUMNS,
    (True, True): schema.ITEM_COLUMNS,
}
# What the tokenizers of the supported families call their special tokens.
_SPECIAL = (
    r"^<\|.*\|>$|^</?s>$"
    r"|^<(bos|eos|pad|unk|mask|2mass|unused\d+|start_of_turn|end_of_turn|start_of_image)>$"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choices:
    """What the flags of an import say of its files; "" where they say nothing."""

    layout: str  # one of `LAYOUTS`
    prompt: str = ""  # a prompt's text or id, for files that do not say it
    items: str = ""  # name of the list
    model: str = ""  # id of the model, for a single file that does not say it
    values: str = "rewards"  # one of `VALUES`
    form: str = "pretrained"  # how a language model read the prompts, one of `FORMS`

    def __post_init__(self) -> None:
        check_choice("layout", self.layout, tuple(LAYOUTS))
        check_choice("values", self.values, VALUES if self.layout == "tokens" else VALUES[:1])
        check_choice("form", self.form, FORMS[:1] if self.values == "rewards" else FORMS)
        if self.items and self.layout == "tokens":
            raise AssayError(f"--items={self.items!r} with layout 'tokens', which has no list")

    @property
    def number(self) -> str:
        """Column of the numbers in the run."""
        return "reward" if self.values == "rewards" else "logprob"


@dataclasses.dataclass(frozen=True)
class Released:
    """One released file."""

    path: Path
    frame: pl.DataFrame  # its columns; those of a CSV file are text
    sha256: str  # of its bytes

    @property
    def item(self) -> str:
        """Column of the replies of a list."""
        return "item" if "item" in self.frame.columns else "name"

    def numbers(self, column: str) -> pl.Series:
        """A column as float64; raises AssayError for a value that is not finite as a float32."""
        cells = self.frame[column]
        if not cells.dtype.is_numeric():
            cells = cells.cast(pl.String).str.strip_chars()
        values = cells.cast(pl.Float64, strict=False)
        single = values.cast(pl.Float32)
        self._refuse(column, single.is_null() | ~single.is_finite(), "finite number")
        return values

    def whole(self, column: str) -> pl.Series:
        """A column as uint32; raises AssayError for a value that is no whole number of 32 bits."""
        values = self.numbers(column)
        outside = (values < 0) | (values >= 2**32)
        self._refuse(column, outside | (values != values.floor()), "whole number")
        return values.cast(pl.UInt32)

    def text(self, column: str) -> pl.Series:
        """A column as text; an empty cell is an empty text."""
        cells = self.frame[column]
        if not isinstance(cells.dtype, pl.String | pl.Categorical | pl.Enum):
            raise self.error(f"column {column!r} is {cells.dtype}; allowed: text")
        return cells.cast(pl.String).fill_null("")

    def items(self) -> pl.Series:
        """The replies of a list; raises AssayError for an empty one."""
        items = self.text(self.item)
        self._refuse(self.item, items.str.strip_chars() == "", "reply")
        return items

    def once(self, values: pl.Series) -> None:
        """Refuses a value that two rows have."""
        if values.is_duplicated().any():
            value = values.filter(values.is_duplicated())[0]
            first, second, *_ = ((values == value).arg_true() + 1).to_list()
            raise self.error(f"rows {first} and {second} are both {values.name} {value!r}")

    def error(self, what: str) -> AssayError:
        """An error about this file, to be raised."""
        return AssayError(f"source={self.path}: {what}")

    def _refuse(self, column: str, bad: pl.Series, wanted: str) -> None:
        """Refuses cells that are not what is wanted."""
        rows = bad.arg_true()
        if len(rows):
            raise self.error(
                f"column {column!r}, row {rows[0] + 1}: {self.frame[column][rows[0]]!r} is no "
                f"{wanted} ({len(rows)} such rows)"
            )


def read(path: Path) -> Released:
    """Reads a .csv or .parquet file, without the row numbers that pandas writes in front.

    Raises:
      AssayError: no such file, another file type, not a table, or no rows.
    """
    frame, data = read_table(path, "source")  # as text: `NaN`, `null` and `007` are tokens
    if frame.width and frame.columns[0] in ("", "__index_level_0__"):
        frame = frame.drop(frame.columns[0])
    released = Released(path, frame, hashlib.sha256(data).hexdigest())
    if frame.height == 0:
        raise released.error("no rows")
    return released


def people(released: Released) -> pl.DataFrame:
    """What people think of the items of a file: `schema.HUMAN_COLUMNS`."""
    names = released.items()
    released.once(names)
    return pl.DataFrame(
        {
            "item_id": range(len(names)),
            "item": names,
            "elo_rank": released.whole("elo_rank"),
            "elo_score": released.numbers("elo_score"),
            "elo_matches": released.whole("elo_matches"),
        },
        schema=schema.HUMAN_COLUMNS,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Import:
    """All that an import adds to a run, by the names it has there."""

    choices: Choices  # what the flags say of the files
    items: str  # name of the list; "" for vocabularies
    models: dict[str, Json] = dataclasses.field(default_factory=dict)  # entries in run.json
    prompts: dict[str, str] = dataclasses.field(default_factory=dict)  # texts
    # Items, in the order of the list.
    lists: dict[str, pl.Series] = dataclasses.field(default_factory=dict)
    # Vocabularies, and what people think of items.
    tables: dict[str, pl.DataFrame] = dataclasses.field(default_factory=dict)
    # Numbers of one model under one prompt, in the columns of the run, and their file.
    results: dict[str, tuple[pl.DataFrame, Released]] = dataclasses.field(default_factory=dict)

    def add(self, path: Path) -> None:
        """Adds the content of a file.

        Raises:
          AssayError: it is not in the layout, a cell is not what its column holds, nothing says
            under which prompt a number was computed, or a file before it says something else.
        """
        file, layout = read(path), self.choices.layout
        present, keys = file.frame.columns, ["token_id", "token_name", "token_decoded"]
        if self.items:
            keys = [file.item, *_PEOPLE]
        names = [name for name in present if name not in keys]
        needed = {file.item} if self.items else {"token_id", "token_decoded"}
        if not names or not needed <= set(present):
            has = f"layout {layout!r} has {LAYOUTS[layout]}"
            raise file.error(f"its columns are {', '.join(present)}; {has}")
        rows, vocab = (self._add_list(file), None) if self.items else self._add_vocabulary(file)
        for name in names:
            self._add_result(file, name, rows, vocab)

    def _add_list(self, file: Released) -> pl.DataFrame:
        """Adds the items of a file, and what people think of them; returns item_id, item."""
        items = file.items()
        if not items.equals(self.lists.setdefault(self.items, items)):
            raise file.error(
                f"its items or their order differ from the rest of the list {self.items!r}"
            )
        if set(_PEOPLE) <= set(file.frame.columns):
            humans = people(file)
            known = self.tables.setdefault(schema.humans_path(self.items), humans)
            if not humans.equals(known):
                raise file.error("its human scores differ from those of an earlier file")
        return pl.DataFrame({"item": items}).with_row_index("item_id")

    def _add_vocabulary(self, file: Released) -> tuple[pl.DataFrame, str]:
        """Adds the vocabulary of a file; returns token_id, and the name of the vocabulary.

        The file does not say which tokens round-trip, so `round_trip` is null; `is_special` is set
        where the decoded string looks like a special token.
        """
        ids = file.whole("token_id")
        file.once(ids)
        tokens = file.text("token_decoded")
        vocabulary = pl.DataFrame({"token_id": ids, "token": tokens}).with_columns(
            is_special=pl.col("token").str.contains(_SPECIAL),
            round_trip=pl.lit(None, dtype=pl.String),
        )
        vocabulary = vocabulary.cast(pl.Schema(schema.VOCAB_COLUMNS)).sort("token_id")
        known = vocabulary.select("token_id", "token").rows()
        text = "\0".join(f"{i}\t{token}" for i, token in known)
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        self.tables[schema.vocab_path(name)] = vocabulary
        return pl.DataFrame({"token_id": ids}), name

    def _add_result(
        self, file: Released, column: str, rows: pl.DataFrame, vocab: str | None
    ) -> None:
        """Adds the numbers of one model under one prompt."""
        rewards = self.choices.number == "reward"
        model, (prompt, text) = self._named(file, column)
        slug = slugged(model)
        if not rewards:
            prompt = schema.prompt_in_form(prompt, self.choices.form)
        if self.items:
            path = schema.items_path(self.items, slug, prompt)
        else:
            path = (schema.scores_path if rewards else schema.logprobs_path)(slug, prompt)
        if path in self.results:
            before = self.results[path][1].path.name
            raise file.error(f"{model} under {prompt!r} is in {before} already")
        entry = {
            "source": model,
            "revision": None,
            "checkpoint_hash": f"imported:{model}",
            "decoder_hash": None,
            "vocab": vocab,
        }
        if self.models.setdefault(slug, entry) != entry:
            raise file.error(f"an earlier file has another model or vocabulary named {slug!r}")
        self.prompts[prompt] = text
        frame = rows.with_columns(self._numbers(file, column).alias(self.choices.number))
        columns = _COLUMNS[bool(self.items), rewards]
        frame = frame.cast(pl.Schema(columns)).select(list(columns)).sort(next(iter(columns)))
        self.results[path] = frame, file

    def _named(self, file: Released, column: str) -> tuple[str, tuple[str, str]]:
        """Model and prompt of a column: it names one of them, or a step; file and flags the rest.

        Returns the model's id, and the prompt's id and text.
        """
        choices, is_step = self.choices, re.fullmatch(r"step-\d+", column)
        by_file = bool(is_step or self.items)  # its name says the prompt
        model = model_id(choices.model or file.path.stem)
        if is_step:
            model = f"{model}-{column}"
        elif self.items and choices.model:
            raise file.error(f"--model={choices.model!r}, but its columns name their models")
        elif self.items:
            model = model_id(column)
        elif choices.prompt:
            raise file.error(f"--prompt={choices.prompt!r}, but its columns name their prompts")
        name = (choices.prompt or file.path.stem) if by_file else column
        prompt = prompt_named(name)
        if prompt is None:
            flag = "--prompt is missing: " if by_file and not choices.prompt else ""
            ids = ", ".join([*prompts.PAPER, *prompts.ELO])
            raise file.error(
                f"{flag}{name!r} names no prompt; allowed: its text, which ends in '.', '?', '!' "
                f"or ':', or an id: {ids}, … (configs/prompts.py)"
            )
        return model, prompt

    def _numbers(self, file: Released, column: str) -> pl.Series:
        """A column of rewards or log-probabilities; raises AssayError for neither."""
        values = file.numbers(column)
        if self.choices.values == "rewards":
            mass = np.exp(values.to_numpy().clip(max=1)).sum()
            if self.choices.layout == "tokens" and abs(mass - 1) < _EXCESS:
                raise file.error(
                    f"column {column!r} holds log-probabilities; allowed: --values=logprobs"
                )
            return values
        if self.choices.values == "logits":
            shifted = values - values.max()
            values = shifted - float(np.log(np.exp(shifted.to_numpy()).sum()))
        mass = float(np.exp(values.to_numpy().clip(max=1)).sum())
        if mass > 1 + _EXCESS:
            raise file.error(
                f"column {column!r} holds probabilities that sum to {mass:.6g} or more; allowed: "
                "natural log-probabilities, or --values=logits"
            )
        return values

    def write(self, run: str) -> None:
        """Writes everything that was added, after the run has accepted all of it."""
        folder = RunFolder.open(run)
        with prefixed(folder.run):
            schema.check_names([*self.lists, *self.prompts, *self.models])
        for name, listed in self.lists.items():
            entry = {"rows": len(listed), "items_hash": items_hash(list(listed))}
            folder.admit("lists", name, entry)
        for prompt, text in self.prompts.items():
            folder.admit("prompts", prompt, text)
        for slug, entry in self.models.items():
            _admit_model(folder, slug, entry)
        humans = self.tables.get(schema.humans_path(self.items))
        if humans is not None:
            has_human_ranks(folder.run, self.items, humans, "another list (--items)")
        is_logprob = self.choices.number == "logprob"
        for path, (frame, file) in self.results.items():
            slug = path.partition("/model=")[2].partition("/")[0]
            imported = {"layout": self.choices.layout, "source_sha256": file.sha256}
            identity = Identity(
                checkpoint_hash=self.models[slug]["checkpoint_hash"],
                rows=len(frame),
                mode="imported",
                form=self.choices.form if is_logprob else "",
                imported=imported | ({"values": self.choices.values} if is_logprob else {}),
            )
            folder.begin(path, identity, _PART_SIZE)
        folder.save(self.tables)
        for path, (frame, file) in self.results.items():
            result, way = folder.results[path], {**library_versions(), "source": file.path.name}
            for start, stop in result.missing:
                result.write(schema.part_name(start, stop), frame[start:stop], way, 0.0)


def import_scores(source: str, run: str, choices: Choices) -> str:
    """Writes the numbers of released files into a run; returns what was written.

    `source` is a file, or a folder of files.

    Raises:
      AssayError: a file that is not in the layout, a number that is missing or not finite, a prompt
        that neither file nor flag says, two files that hold the same result, or other numbers of
        the same name in the run. Nothing is written then.
    """
    paths = _files(Path(source))
    if choices.model and len(paths) > 1:
        raise AssayError(
            f"--model={choices.model!r} with {len(paths)} files; remove it: of several, each "
            "file is named after its model"
        )
    is_list = choices.layout == "items"
    items = (choices.items or list_name(Path(source).resolve())) if is_list else ""
    gathered = _Import(choices=choices, items=items)
    with progress(len(paths), "files", what="reading", delay_s=5) as bar:
        for path in paths:
            gathered.add(path)
            bar.update()
    gathered.write(run)
    folder = next(iter(gathered.results)).split("/model=")[0]
    rows = sum(len(frame) for frame, _ in gathered.results.values())
    counts = {"file": len(paths), "model": len(gathered.models), "prompt": len(gathered.prompts)}
    sizes = ", ".join(counted(n, what) for what, n in counts.items())
    numbers = "rewards" if choices.number == "reward" else "log-probabilities"
    humans = ", with humans" if schema.humans_path(items) in gathered.tables else ""
    return f"{run}/{folder}: {sizes}, {rows:,} {numbers}{humans}"


def _files(source: Path) -> list[Path]:
    """The file that `source` is, or the .csv and .parquet files of that folder, by name."""
    if not source.is_dir():
        return [source]
    tables = sorted(path for path in source.glob("[!.]*") if path.suffix in (".csv", ".parquet"))
    if not tables:
        raise AssayError(f"source={source}: no .csv or .parquet file in this folder")
    return tables


def prompt_named(name: str) -> tuple[str, str] | None:
    """Id and text of the prompt that a file, column or flag names; None if it names none.

    A prompt of configs/prompts.py is named by its id, by its name in the authors' release, or by
    its text, with or without the question mark, which the authors' file names lack. Any other text
    is a prompt if it has a space and ends like one.
    """
    stripped = name.strip()
    key = prompts.RELEASED.get(stripped, stripped)
    for known, text in prompts.PROMPTS.items():
        if key == known or stripped in (text, text.removesuffix("?")):
            return known, text
    is_text = re.search(r"\s", stripped) and stripped.endswith((".", "?", "!", ":"))
    return (prompt_id(name), name) if is_text else None


def model_id(name: str) -> str:
    """Id of a model as a file or column names it: `owner--name` is `owner/name`.

    A listed model (configs/known_models.py) is also found by its name alone.
    """
    name = name.strip().rstrip("/")
    if "/" not in name:
        name = name.replace("--", "/", 1)
    spec = known_models.find(name)
    return spec.hub_id if spec else name


def slugged(name: str) -> str:
    """Slug of a model id or file name: its last part in lower case, without unsafe characters."""
    last = name.rstrip("/").rsplit("/")[-1].lower()
    return re.sub(r"[^a-z0-9._-]+", "-", last).strip("-._")


def _admit_model(folder: RunFolder, slug: str, entry: Json) -> None:
    """Adds a model, or the vocabulary of one that an item list brought without it."""
    present = folder.models.get(slug)
    same = present is not None and present["checkpoint_hash"] == entry["checkpoint_hash"]
    if present is None or not same or present.get("vocab") is None:
        folder.admit("models", slug, entry)
    elif entry["vocab"] not in (None, present["vocab"]):
        raise AssayError(f"run {folder.run}: model {slug!r} already has another vocabulary")


def has_human_ranks(run: epath.Path, name: str, humans: pl.DataFrame | None, allowed: str) -> bool:
    """Whether a run holds people's ranks of a list; raises AssayError for others than `humans`."""
    present = RunFolder.open(str(run)).table(schema.humans_path(name))
    if present is None:
        return False
    if humans is None or not present.equals(humans):
        raise AssayError(
            f"run {run}: other human scores of the list {name!r} already exist; allowed: {allowed}"
        )
    return True
