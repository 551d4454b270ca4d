"""The values of a run, found by the names that the published ones have."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from analysis.published import finders
from analysis.published.data import Published
from analysis.published.verdicts import Entry
from engine.errors import AssayError

Key = tuple[str, ...]
GREATEST = "greatest"  # the prompt of the paper's comparisons of models
CHAT = ".chat"  # what the id of a prompt ends with where a language model read it in its template
TEN = 10  # models of the paper
WORDFREQ = "wordfreq"  # stands in for the paper's word list of Figure 3D
_PEOPLE, _MODELS = "humans_kendall", "items_kendall"  # agreement on a list, with people or not
_OF_LISTS = (_PEOPLE, _MODELS, "humans_ranks")


class Missing(Exception):
    """A value that a run does not have; the message says why, as a part of a sentence."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunValues:
    """Tables of one reading of the models.

    Attributes:
      name: of the reading, as a reader knows it: "the paper's conventions".
      tables: key of a table, as `analysis.study` has it -> table.
      reasons: key of an absent table -> why it is absent.
      slugs: nickname -> slug of every model that may be asked for.
      items: name of the list of items that is compared; "": the only one that was scored.
      failures: slug -> why a model has no results, as far as it is known.
      tried: slug and prompt id of what was computed otherwise than in the paper's conventions, of a
        reading that changes one of them.
    """

    name: str
    tables: Mapping[Key, pl.DataFrame]
    reasons: Mapping[Key, str]
    slugs: Mapping[str, str]
    items: str = ""
    failures: Mapping[str, str] = dataclasses.field(default_factory=dict)
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
        """The number that a row of `numbers.csv` is of.

        Raises:
          Missing: the run has none.
        """
        value = finders.NUMBERS[row["exhibit"], row["quantity"]](self, row)
        if value is None:
            raise Missing("too few words or items to compute it")
        return float(value)

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
        key, number = _LISTS[exhibit]
        slug = self._slug(model)
        keys = [tuple(part.format(prompt=p) for part in key) for p in (prompt, prompt + CHAT)]
        frames = [self.tables[key] for key in keys if key in self.tables]
        computed = [f.filter(model=slug, end=end) for f in frames]
        found = next((f for f in computed if f.height), None)
        if found is None:
            raise Missing(self._why(slug, keys[0]))
        name = "token_id" if exhibit == "table_2" else "token"
        rows = found.sort("rank").select(pl.col(name).alias("key"), number, "token").iter_rows()
        return [Entry(str(key), float(score), text) for key, score, text in rows]

    def score(self, prompt: str, model: str, token_id: int) -> float:
        """Reward of one token of Table 2.

        Raises:
          Missing: the run has none.
        """
        slug = self._slug(model)
        scores = self.table("printed_scores").filter(model=slug, prompt=prompt)
        computed = scores.filter(token_id=token_id)
        moments = self.tables.get(("moments",))
        scored = moments is not None and moments.filter(model=slug, prompt=prompt).height
        if not computed.height and (scores.height or scored):
            raise Missing(f"token id {token_id} is not in the vocabulary")
        if not computed.height:
            raise Missing(self._why(slug, ("printed_scores",)))
        return float(computed["reward"].item())

    def table(self, *key: str) -> pl.DataFrame:
        """A table by its key.

        Raises:
          Missing: the run has none.
        """
        if key not in self.tables:
            raise self.absent(*key)
        return self.tables[key]

    def cell(self, key: Key, column: str, model: str = "", **where: str) -> float | None:
        """The number in one column of the one row that a table has for a model.

        Raises:
          Missing: the run has no such row.
        """
        slug = self._slug(model) if model else ""
        chosen = {**where, **({"model": slug} if model else {})}
        if key not in self.tables:
            raise Missing(self._why(slug, key))
        computed = self.tables[key].filter(**chosen)
        if not computed.height:
            raise Missing(self._why(slug, key))
        value: float | None = computed[column][0]
        return value

    def square(self, key: Key, model: str, other: str) -> float | None:
        """A cell of a square table.

        Raises:
          Missing: one of the two is not in it.
        """
        if other == "human":
            return self.cell(key, other, model)
        slug = self._slug(other)
        if slug not in self.table(*key).columns:
            raise Missing(self._why(slug, key))
        return self.cell(key, slug, model)

    def lists(self) -> list[str]:
        """Names of the lists of items that were scored, sorted."""
        found = {key[1] for key in self.tables if key[0] in _OF_LISTS}
        for name in ("humans_correlation", "humans_gap"):
            table = self.tables.get((name,))
            found |= set() if table is None else set(table["list"])
        return sorted(found)

    def compared_list(self) -> str:
        """Name of the list of items that is compared.

        Raises:
          Missing: it was not scored, or none is named and several were.
        """
        names = self.lists()
        if self.items and names and self.items not in names:
            raise Missing(f"the list {self.items} was not scored")
        if not self.items and len(names) > 1:
            raise Missing(f"several lists were scored ({', '.join(names)}): --elo says which")
        return self.items or (names[0] if names else "")

    def agreement(self, prompt: str, *, people: bool = False) -> Key:
        """Key of the matrix of agreement on the list of items that is compared under a prompt.

        Args:
          prompt: prompt id.
          people: whether people have to be in it.

        Raises:
          Missing: there is none.
        """
        name = self.compared_list()
        keys = [(_PEOPLE, name, prompt), *([] if people else [(_MODELS, name, prompt)])]
        found = next((key for key in keys if key in self.tables), None)
        if found is None:
            raise self.absent(_PEOPLE)
        return found

    def absent(self, *key: str) -> Missing:
        """Why a table has nothing, to be raised."""
        return Missing(self._why("", key))

    def source(self, exhibit: str) -> str:
        """What the values of an exhibit are from, for a run that is compared with them later."""
        stands_in = exhibit == "figure_3d" and self.frequencies == WORDFREQ
        return f"{self.name}, frequencies of {WORDFREQ}" if stands_in else self.name

    def of_all(self, count: int) -> None:
        """Checks that a number is over all models of the paper.

        Args:
          count: models that it is over in the run.

        Raises:
          Missing: it is over others.
        """
        if count < TEN:
            raise Missing(f"it is over all ten models, and {count} were scored")

    def _slug(self, nickname: str) -> str:
        if nickname not in self.slugs:
            raise Missing(f"{nickname} is no model of this registry")
        return self.slugs[nickname]

    def _why(self, slug: str, key: Key) -> str:
        if slug in self.failures:
            return self.failures[slug]
        for known, reason in self.reasons.items():
            if known == key or (len(key) == 1 and known[0] == key[0]):
                return _clause(reason)
        return "the model was not scored" if slug else "nothing was scored for it"


def check_names(published: Published, where: str) -> None:
    """Checks that a run can have every published value.

    Args:
      published: the values.
      where: they are from, for the message.

    Raises:
      AssayError: a value is of an exhibit or quantity that is not known.
    """
    pairs = published.numbers.select("exhibit", "quantity").unique(maintain_order=True)
    for pair in pairs.iter_rows():
        if pair not in finders.NUMBERS:
            allowed = ", ".join(" ".join(known) for known in finders.NUMBERS)
            raise AssayError(f"{where}: no numbers {' '.join(pair)!r}; allowed: {allowed}")
    for exhibit in published.tokens["exhibit"].unique(maintain_order=True):
        if exhibit not in _LISTS:
            raise AssayError(f"{where}: no tokens of {exhibit!r}; allowed: {', '.join(_LISTS)}")


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
    tokens = [_replaced(part, computed) for part in lists]
    return Published(
        models=published.models,
        numbers=pl.DataFrame(numbers, schema=published.numbers.schema),
        tokens=pl.concat([published.tokens.clear(), *tokens]),
    )


def _replaced(part: pl.DataFrame, computed: RunValues) -> pl.DataFrame:
    first = part.row(0, named=True)
    try:
        entries = computed.entries(*(first[k] for k in ("exhibit", "prompt", "model", "end")))
    except Missing:
        return part.clear()
    entries = entries[: part.height]
    by_id = first["exhibit"] == "table_2"
    ids = [int(e.key) if by_id else None for e in entries]
    scores = [e.score if by_id else None for e in entries]
    texts = [e.text for e in entries]
    return part.head(len(entries)).with_columns(
        token_id=pl.Series(ids, dtype=pl.Int64),
        token=pl.Series(texts, dtype=pl.String),
        score=pl.Series(scores, dtype=pl.Float64),
        source=pl.lit(computed.name),
    )


def _clause(sentence: str) -> str:
    """A sentence as a part of one: no full stop."""
    return sentence.rstrip(".")


# Exhibit -> key of the table that holds its lists, and the column of its number.
_LISTS: Mapping[str, tuple[Key, str]] = {
    "table_2": (("top_bottom", "{prompt}"), "reward"),
    "table_a1": (("logprobs", "{prompt}"), "logprob"),
    "table_a2": (("logprobs", "{prompt}"), "logprob"),
    "table_a3": (("logprobs", "{prompt}"), "logprob"),
    "table_a4": (("framing_logprobs_sum",), "logprob"),
    "table_a5": (("framing_logprobs_difference",), "logprob"),
    "table_a6": (("top_bottom", "{prompt}"), "reward"),
    "table_a7": (("shared_top_bottom", "{prompt}"), "reward"),
    "table_a8": (("shared_sum",), "reward"),
    "table_a9": (("shared_difference",), "reward"),
}


def lists_of(computed: RunValues, exhibit: str, prompt: str) -> Sequence[str]:
    """Nicknames of the models of which a run has the lists of an exhibit, in the paper's order."""
    if exhibit not in _LISTS:
        return []
    found = []
    for nickname in computed.slugs:
        try:
            computed.entries(exhibit, prompt, nickname, "top")
        except Missing:
            continue
        found.append(nickname)
    return found
