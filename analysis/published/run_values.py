"""The values of a run, found by the names that the published ones have."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from analysis.published.data import Published
from analysis.published.exhibits import BY_ID, LOGPROBS
from analysis.published.verdicts import Entry
from engine.errors import AssayError

Key = tuple[str, ...]
GREATEST = "greatest"  # the prompt of the paper's comparisons of models
CHAT = ".chat"  # what the id of a prompt ends with where a language model read it in its template
TEN = 10  # models of the paper
WORDFREQ = "wordfreq"  # stands in for the paper's word list of Figure 3D
ROUNDED = "rsa_rounded"  # table: `rounding.rounded_agreement`
_HUMAN = "human"  # column of people's ranks
_RANKS = 4  # columns of `humans_ranks` before those of the models
_PEOPLE, _MODELS = "humans_kendall", "items_kendall"  # agreement on a list, with people or not
_OF_LISTS = (_PEOPLE, _MODELS, "humans_ranks")


class Missing(Exception):
    """A value that a run does not have; the message says why, as a part of a sentence."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunValues:
    """Tables of one reading of the models."""

    name: str  # of the reading, as a reader knows it: "the paper's conventions"
    tables: Mapping[Key, pl.DataFrame]  # key of a table, as `analysis.study` has it -> table
    reasons: Mapping[Key, str]  # key of an absent table -> why it is absent
    slugs: Mapping[str, str]  # nickname -> slug of every model that may be asked for
    items: str = ""  # name of the list of items that is compared; "": the only one that was scored
    # Slug -> why a model has no results, as far as it is known.
    failures: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Slug and prompt id of what was computed otherwise than in the paper's conventions, of a
    # reading that changes one of them.
    tried: frozenset[tuple[str, str]] = frozenset()

    def has_tried(self, prompt: str, *nicknames: str) -> bool:
        """Whether the change was tried of one of some models under a prompt; of any without names.

        Names that are of no model do not count.
        """
        slugs = {self.slugs[name] for name in nicknames if name in self.slugs}
        return any(of == prompt and (slug in slugs or not slugs) for slug, of in self.tried)

    @property
    def scored(self) -> list[str]:
        """Slugs of the reward models that scored their vocabulary under "greatest"."""
        moments = self.tables.get(("moments",))
        if moments is None:
            return []
        return moments.filter(prompt=GREATEST)["model"].unique(maintain_order=True).to_list()

    @property
    def frequencies(self) -> str:
        """The word list that frequencies are from; "" where there are none."""
        matched = self.tables.get(("matches", "frequency"))
        return str(matched["source"][0]) if matched is not None and matched.height else ""

    def number(self, row: Mapping[str, Any]) -> float:  # Any: cells of `data.NUMBERS`
        """The number that a row of `numbers.csv` is of, or the reward of a token of Table 2.

        Raises:
          Missing: the run has none.
          AssayError: there is no such exhibit or quantity.
        """
        value = self._number(row)
        if value is None:
            raise Missing("too few words or items to compute it")
        return float(value)

    def _number(self, row: Mapping[str, Any]) -> float | None:  # Any: cells of `data.NUMBERS`
        prompt, model, other = row["prompt"], row["model"], row["other"]
        match row["exhibit"], row["quantity"]:
            case "table_2", "reward":
                return self._reward(prompt, model, other)
            case "table_3", moment:
                return self._cell(("moments",), moment, model, prompt=prompt)
            case "figure_2a", "kendall":
                return self._square(("kendall_tau", prompt), model, other)
            case "figure_a1", measure:
                return self._square((measure, prompt), model, other)
            case "figure_2c", quantity:
                _check_all_models(len(self.scored))
                if quantity == "r_squared":  # of all traits together: the same in each row
                    return self._cell((ROUNDED, prompt), "r_squared")
                column = {"pearson": "pearson_r"}.get(quantity, quantity)
                return self._cell((ROUNDED, prompt), column, predictor=other)
            case "figure_3c", "sentiment_slope":
                where = {"prompt": prompt, "valence": other}
                return self._cell(("sentiment_slopes",), "slope", model, **where)
            case "figure_3d", "frequency_slope":
                return self._cell(("frequency_slopes",), "slope", model, prompt=prompt)
            case "figure_5a", "spearman":
                where = self._ranked_list(prompt)
                return self._cell(("humans_correlation",), "spearman", model, **where)
            case "figure_5b", "rank_gap":
                where = self._ranked_list(prompt)
                _check_all_models(self._table("humans_correlation").filter(**where).height)
                return self._cell(("humans_gap",), "gap", item=other, **where)
            case "figure_5b", "first":
                return self._first(prompt, other)
            case "figure_a5", "kendall":
                return self._square(self._agreement(prompt, other == _HUMAN), model, other)
            case "figure_a5", "mean_kendall":
                return self._mean_agreement(prompt)
        raise AssayError(f"published values: no number {row['exhibit']} {row['quantity']}")

    def entries(self, exhibit: str, prompt: str, model: str, end: str) -> list[Entry]:
        """The list of a model at one end, the extreme first.

        Args:
          exhibit: table of the paper, as in `tokens.csv`.
          prompt: prompt id.
          model: nickname.
          end: `top` or `bottom`.

        Raises:
          Missing: the run has none.
        """
        name, slug = BY_ID[exhibit].lists, self._slug(model)
        keys = [(name, prompt), (name, prompt + CHAT), (name,)]
        frames = [
            self.tables[key].filter(model=slug, end=end) for key in keys if key in self.tables
        ]
        ends = next((frame for frame in frames if frame.height), None)
        if ends is None:
            raise self._missing(slug, *keys)
        key = "token_id" if exhibit == "table_2" else "token"
        number = "logprob" if BY_ID[exhibit].stage == LOGPROBS else "reward"
        rows = ends.sort("rank").select(pl.col(key).alias("key"), number, "token").iter_rows()
        return [Entry(str(key), float(score), text) for key, score, text in rows]

    def lists(self) -> list[str]:
        """Names of the lists of items that were scored, sorted."""
        named = {key[1] for key in self.tables if key[0] in _OF_LISTS}
        for name in ("humans_correlation", "humans_gap"):
            table = self.tables.get((name,))
            named |= set() if table is None else set(table["list"])
        return sorted(named)

    def source(self, exhibit: str) -> str:
        """What the values of an exhibit are from, for a run that is compared with them later."""
        stands_in = exhibit == "figure_3d" and self.frequencies == WORDFREQ
        return f"{self.name}, frequencies of {WORDFREQ}" if stands_in else self.name

    def _reward(self, prompt: str, model: str, token_id: str) -> float:
        where = {"model": self._slug(model), "prompt": prompt}
        tokens = self._table("printed_scores", of=where["model"]).filter(**where)
        tokens = tokens.filter(token_id=int(token_id))
        if tokens.height:
            return float(tokens["reward"].item())
        self._cell(("moments",), "model", model, prompt=prompt)  # it says that it was not scored
        raise Missing(f"token id {token_id} is not in the vocabulary")

    def _first(self, prompt: str, item: str) -> float | None:
        """How many models rank an item first."""
        where = self._ranked_list(prompt)
        ranked = self._table("humans_ranks", where["list"], prompt)
        models = ranked.columns[_RANKS:]
        _check_all_models(len(models))
        ranks = ranked.filter(item=item).select(models)
        return float((ranks.to_numpy() == 1).sum()) if ranks.height else None

    def _mean_agreement(self, prompt: str) -> float:
        """Mean agreement of the pairs of models on the list of items."""
        matrix = self._table(*self._agreement(prompt)).filter(pl.col("model") != _HUMAN)
        square = matrix.select(pl.exclude("model", _HUMAN)).to_numpy()
        _check_all_models(len(square))
        return float(square[np.triu_indices(len(square), 1)].mean())

    def _table(self, *key: str, of: str = "") -> pl.DataFrame:
        """A table by its key; `of`: slug of the model that is looked for."""
        if key not in self.tables:
            raise self._missing(of, key)
        return self.tables[key]

    def _cell(self, key: Key, column: str, model: str = "", **where: str) -> float | None:
        """The number in one column of the one row that a table has for a model."""
        slug = self._slug(model) if model else ""
        chosen = {**where, **({"model": slug} if model else {})}
        rows = self._table(*key, of=slug).filter(**chosen)
        if not rows.height:
            raise self._missing(slug, key)
        value: float | None = rows[column][0]
        return value

    def _square(self, key: Key, model: str, other: str) -> float | None:
        """A cell of a square table."""
        column = other if other == _HUMAN else self._slug(other)
        if column not in self._table(*key).columns:
            raise self._missing(column, key)
        return self._cell(key, column, model)

    def _compared_list(self) -> str:
        """Name of the list of items that is compared."""
        names = self.lists()
        if self.items and names and self.items not in names:
            raise Missing(f"the list {self.items} was not scored")
        if not self.items and len(names) > 1:
            raise Missing(f"several lists were scored ({', '.join(names)}): --elo says which")
        return self.items or (names[0] if names else "")

    def _ranked_list(self, prompt: str) -> dict[str, str]:
        """Prompt, and the list that is compared, of which there must be human ranks."""
        where = {"prompt": prompt, "list": self._compared_list()}
        if not self._table("humans_correlation").filter(**where).height:
            raise self._missing("", ("humans_correlation",))
        return where

    def _agreement(self, prompt: str, people: bool = False) -> Key:
        """Key of the matrix of agreement on the list that is compared; with `people`, of them."""
        name = self._compared_list()
        keys = [(_PEOPLE, name, prompt), *([] if people else [(_MODELS, name, prompt)])]
        known = next((key for key in keys if key in self.tables), None)
        if known is None:
            raise self._missing("", (_PEOPLE,))
        return known

    def _slug(self, nickname: str) -> str:
        if nickname not in self.slugs:
            raise Missing(f"{nickname} is no model of this registry")
        return self.slugs[nickname]

    def _missing(self, slug: str, *keys: Key) -> Missing:
        """Why a model, or a run, has nothing in the tables of some keys, to be raised."""
        if slug in self.failures:
            return Missing(self.failures[slug])
        for key in keys:
            for known, reason in self.reasons.items():
                if known == key or (len(key) == 1 and known[0] == key[0]):
                    return Missing(reason.rstrip("."))
        return Missing("the model was not scored" if slug else "nothing was scored for it")


def _check_all_models(count: int) -> None:
    """Checks that a number, which is over `count` models, is over all models of the paper."""
    if count < TEN:
        raise Missing(f"it is over all ten models, and {count} were scored")


def replaced(published: Published, computed: RunValues) -> Published:
    """The published rows with a run's values, to compare a later run with.

    Rows that the run has no value for are left out.
    """
    numbers = []
    for row in published.numbers.iter_rows(named=True):
        try:
            value = repr(computed.number(row))
        except Missing:
            continue
        source = computed.source(row["exhibit"])
        numbers.append({**row, "value": value, "within": 0.0, "source": source})
    lists = published.tokens.partition_by("exhibit", "prompt", "model", "end", maintain_order=True)
    return Published(
        models=published.models,
        numbers=pl.DataFrame(numbers, schema=published.numbers.schema),
        tokens=pl.concat([_replaced(part, computed) for part in lists] or [published.tokens]),
    )


def _replaced(part: pl.DataFrame, computed: RunValues) -> pl.DataFrame:
    exhibit, prompt, model, end = part.select("exhibit", "prompt", "model", "end").row(0)
    try:
        entries = computed.entries(exhibit, prompt, model, end)[: part.height]
    except Missing:
        return part.clear()
    by_id = exhibit == "table_2"
    columns = {
        "token_id": [int(entry.key) if by_id else None for entry in entries],
        "token": [entry.text for entry in entries],
        "score": [entry.score if by_id else None for entry in entries],
    }
    values = pl.DataFrame(columns, schema={name: part.schema[name] for name in columns})
    return part.head(len(entries)).with_columns(*values, source=pl.lit(computed.name))
