"""Runs as frames: every score of every model and prompt, joined with the text of each token.

run = analysis.load("out/run")
run.scores(prompts=["greatest"]).filter(pl.col("token") == " love").collect()
run.item_scores("elo", "elo_greatest")
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from etils import epath

from analysis import reading
from analysis.cache import Cache
from analysis.statistics import Array
from analysis.statistics.ranks import Ranking
from engine.runs import schema, shards, storage
from engine.runs.folder import RunFolder, merge
from engine.runs.result import Result, RunError


def places(token_ids: Array, wanted: Array) -> tuple[Array, Array]:
    """Places of the ids `wanted` [N] among the ascending `token_ids`, and which are there: [N]."""
    whole = token_ids[-1] == len(token_ids) - 1  # then an id is its own place
    at = wanted if whole else np.searchsorted(token_ids, wanted)
    at = np.minimum(at, len(token_ids) - 1)
    return at, token_ids[at] == wanted


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """The scores of one run folder, or of several merged. Made by `load`; read lazily.

    Attributes:
      folders: the run folders.
      models: slug -> the model's entry in run.json, in the order in which they were first
        given; every model that scored a vocabulary or a list of items, or was searched.
      prompts: prompt id -> prompt text, in the order of run.json.
      results: (slug, prompt id) -> its `Result` over the vocabulary, for every scored pair.
      items: (list, slug, prompt id) -> its `Result` over that list of items.
      logprobs: (slug, prompt id) -> its `Result` of a language model.
      item_logprobs: (list, slug, prompt id) -> a language model's `Result` over that list.
      conversations: (list, slug) -> its `Result` over that list of conversations.
      searches: path of a search for sequences -> its `Result`.
      probes: (list, slug) -> its `Result` over the edited replies of that list of conversations.
      running: (list, slug) -> its `Result` over the replies of its worst pairs of that list, each
        cut behind some of its words.
      appended: (slug, prompt id) -> its `Result` over the vocabulary behind a reply start: what
        `results` does not hold, nor `prompts` its prompt.
      repeated: (list, slug, prompt id) -> its `Result` over repeated tokens behind a reply start.
    """

    folders: tuple[epath.Path, ...]
    models: Mapping[str, Mapping[str, Any]]  # Any: JSON of run.json
    prompts: Mapping[str, str]
    results: Mapping[tuple[str, str], Result]
    items: Mapping[tuple[str, str, str], Result]
    logprobs: Mapping[tuple[str, str], Result]
    item_logprobs: Mapping[tuple[str, str, str], Result]
    conversations: Mapping[tuple[str, str], Result]
    searches: Mapping[str, Result]
    appended: Mapping[tuple[str, str], Result]
    repeated: Mapping[tuple[str, str, str], Result]
    _records: Mapping[str, Mapping[str, Any]]  # Any: JSON of run.json
    _runs: Mapping[epath.Path, RunFolder]
    _vocabularies: Mapping[str, tuple[RunFolder, str]]  # slug -> run, and path in it
    probes: Mapping[tuple[str, str], Result] = dataclasses.field(default_factory=dict)
    running: Mapping[tuple[str, str], Result] = dataclasses.field(default_factory=dict)
    _cache: Cache = dataclasses.field(default_factory=Cache, repr=False, compare=False)

    def __repr__(self) -> str:
        """Five lines: the folders, and what they hold."""
        scored = (*self.items, *self.item_logprobs, *self.conversations)
        lists = sorted({name for name, *_ in scored})
        return "\n".join(
            [
                f"Run of {', '.join(map(str, self.folders))}",
                f"  models: {', '.join(self.models)}",
                f"  prompts: {', '.join(self.prompts)}",
                f"  lists: {', '.join(lists) or 'none'}",
                f"  results: {len(self.results)} of vocabularies, "
                f"{len(self.appended)} behind replies, "
                f"{len(self.items) + len(self.conversations) + len(self.probes)} of lists, "
                f"{len(self.logprobs) + len(self.item_logprobs)} of log-probabilities, "
                f"{len(self.searches)} searches",
            ]
        )

    def scores(
        self, *, models: Iterable[str] | None = None, prompts: Iterable[str] | None = None
    ) -> pl.LazyFrame:
        """Scores of the named models and prompts (all by default), one row per token.

        Returns:
          A lazy frame with the columns model, prompt, token_id, token, reward, is_special and
          round_trip, in the order of the models and prompts, then by token_id. Several token_ids
          may share a token: join on token_id, or take `shared_vocabulary`.

        Raises:
          RunError: a name that is not in the run, or no such pair was scored.
        """
        chosen = (self._chosen("model", models), self._chosen("prompt", prompts))
        frames = [
            self.joined(result)
            for (model, prompt), result in self.results.items()
            if model in chosen[0] and prompt in chosen[1]
        ]
        if not frames:
            raise RunError(f"no scores of {sorted(chosen[0])} under {sorted(chosen[1])}")
        return pl.concat(frames)

    def effects(self, model: str, prompt: str) -> tuple[Array, Array]:
        """Token ids (uint32, ascending), and what each adds behind a reply start (float64).

        The effect is the reward of the reply start with the token, less that without it.
        """
        result = self.appended[model, prompt]
        if result.baseline is None:
            raise RunError(f"{result.title}: not finished; run its command again")
        ids, rewards = self._cache.rewards(result, self.same_vocabulary(model))
        return ids, rewards.astype(float) - result.baseline

    def items_of(self, result: Result) -> pl.DataFrame:
        """item_id, item and reward of one result over a list; sorted by item_id."""
        return reading.scan(result).collect().sort("item_id")

    def rewards(self, model: str, prompt: str) -> tuple[Array, Array]:
        """Token ids (uint32, ascending) and rewards (float32) of one model under one prompt.

        Both are read only: what was read is kept in memory.
        """
        result = self.results[model, prompt]
        return self._cache.rewards(result, self.same_vocabulary(model))

    def ranked(self, model: str, prompt: str, token_ids: Array | None = None) -> Ranking:
        """Order, ranks and percentiles of `rewards`; sorted once, and kept in memory.

        Of `token_ids` alone where they are given, each once.

        Raises RunError for an id that was not scored.
        """
        whole = self._cache.ranked(self.results[model, prompt], self.same_vocabulary(model))
        scored = self.rewards(model, prompt)[0]
        if token_ids is None or np.array_equal(scored, token_ids):
            return whole
        at, known = places(scored, token_ids)
        if not known.all():
            raise RunError(f"{model} under {prompt}: token {token_ids[~known][0]} was not scored")
        return whole.at(at)

    def objectives(self, model: str, prompt: str) -> pl.DataFrame:
        """token_id, token, reward and one f32 column per objective; sorted by token_id."""
        result = self.results[model, prompt]
        scores = reading.scan(result, result.objectives)
        tokens = self.vocabulary(model).select("token_id", "token")
        frame = scores.join(tokens, on="token_id", how="left", validate="1:1").sort("token_id")
        return frame.select("token_id", "token", pl.exclude("token_id", "token")).collect()

    def layers(self, model: str, prompt: str) -> pl.DataFrame:
        """token_id, and the reward after each layer (`layer_01` …, f32); sorted by token_id.

        Raises RunError: it was swept without the lens, or the last layer's differs from the reward.
        """
        result = self.results[model, prompt]
        if not result.layers:
            raise RunError(f"{result.title}: swept without the lens (--config.lens=true)")
        return reading.by_layer(result)

    def next_tokens(self, model: str, prompt: str) -> pl.DataFrame:
        """token_id, token, logprob of a language model's next token; sorted by token_id."""
        frame = reading.scan(self.logprobs[model, prompt]).join(
            self.vocabulary(model), on="token_id", how="left", validate="1:1"
        )
        return frame.select("token_id", "token", "logprob").sort("token_id").collect()

    def item_scores(
        self, items: str, prompt: str, models: Sequence[str] | None = None
    ) -> pl.DataFrame:
        """Scores of one item list under one prompt, side by side.

        Args:
          items: name of the list.
          prompt: prompt id.
          models: slugs, in the order of the columns; all models that scored the list by default.

        Returns:
          item_id, item, and one float32 column per model; sorted by item_id. Items that are not
          scored by every model are left out.
        """
        scored = [m for m in self.models if (items, m, prompt) in self.items]
        if not scored:
            raise RunError(f"no scores of the items {items!r} under {prompt!r}")
        chosen = scored if models is None else [m for m in models if m in scored]
        if not chosen:
            raise RunError(f"{items}: none of {models} scored it under {prompt!r}")
        frames = (reading.scan(self.items[items, m, prompt]).rename({"reward": m}) for m in chosen)
        joined = next(frames).collect()
        for frame in frames:
            other = frame.drop("item").collect()
            joined = joined.join(other, on="item_id", how="inner", validate="1:1")
        return joined.sort("item_id")

    def replies(self, items: str, model: str, prompt: str) -> pl.DataFrame:
        """item_id, item, tokens, logprob of a language model's replies; sorted by item_id."""
        return reading.scan(self.item_logprobs[items, model, prompt]).collect()

    def conversation_lists(self) -> list[str]:
        """The lists of conversations that some model scored, sorted."""
        return sorted({name for name, _ in self.conversations})

    def conversation_scores(self, name: str) -> pl.DataFrame:
        """A list of conversations (`schema.LIST_COLUMNS`), and one float32 column per model.

        Conversations that are not scored by every model are left out.
        """
        return self._side_by_side(name, self.conversations)

    def probe_scores(self, name: str) -> pl.DataFrame:
        """The edited replies of a list of conversations, as `conversation_scores` has the list.

        The first label of each is the name of its edit (`analysis.words.edits`).
        """
        return self._side_by_side(name, self.probes)

    def running_scores(self, name: str, model: str) -> pl.DataFrame:
        """A list's replies that a model judges worst, cut, and its rewards in the column `model`.

        In the order of the list, of a reply from its first cut to its end.
        """
        result = self.running[name, model]
        return self._side_by_side(schema.running_list(name, model), {(result.items, model): result})

    def _side_by_side(self, name: str, by_list: Mapping[tuple[str, str], Result]) -> pl.DataFrame:
        results = {model: r for (list_name, model), r in by_list.items() if list_name == name}
        if not results:
            raise RunError(f"no scores of the conversations {name!r}")
        joined = reading.shared_conversations(self._runs, results.values())
        for model, result in results.items():
            scores = reading.scan(result).collect().rename({"reward": model})
            joined = joined.join(
                scores, on="conversation_id", validate="1:1", maintain_order="left"
            )
        return joined

    def humans(self, items: str) -> pl.DataFrame | None:
        """Human ranks of an item list (`schema.HUMAN_COLUMNS`); None where there are none."""
        path = schema.humans_path(items)
        folder = next((run for run in self._runs.values() if path in run.tables), None)
        return None if folder is None else reading.humans(folder, path)

    def conversation_list(self, name: str, model: str, *, probes: bool = False) -> pl.DataFrame:
        """The table of the list of conversations that a model scored (`schema.LIST_COLUMNS`).

        With `probes` that of the list's edited replies.
        """
        result = (self.probes if probes else self.conversations)[name, model]
        return reading.conversations(self._runs[result.run], result)

    def lists(self) -> list[tuple[str, str]]:
        """Every (item list, prompt id) that some model scored, sorted by list, then prompt."""
        order = list(self.prompts)
        scored = {(items, prompt) for items, _, prompt in self.items}
        return sorted(scored, key=lambda pair: (pair[0], order.index(pair[1])))

    def item_lists(self) -> list[str]:
        """The lists that some model scored."""
        return list(dict.fromkeys(items for items, _ in self.lists()))

    def read_searches(self) -> Iterator[tuple[dict[str, str], pl.DataFrame, Result]]:
        """Every search for sequences, by path: its keys, its steps and its result.

        The keys are model, prompt, direction, method and seed.

        Raises RunError for a damaged trace, or a reward that is not finite.
        """
        for result in self.searches.values():
            names = ("model", "prompt", "direction", "method", "seed")
            for name in result.parts:
                steps = result.frame(name).sort("step")
                if steps.height:
                    yield {key: getattr(result, key) for key in names}, steps, result

    def vocabulary(self, model: str) -> pl.LazyFrame:
        """Vocabulary of `model`: token_id, token, is_special, round_trip, sorted by token_id."""
        return self._cache.vocabulary(*self._vocabularies[model]).lazy()

    @property
    def vocabulary_prompts(self) -> dict[str, str]:
        """Prompt id -> text of the prompts under which some model scored its vocabulary."""
        scored_prompts = {prompt for _, prompt in self.results}
        return {prompt: text for prompt, text in self.prompts.items() if prompt in scored_prompts}

    @property
    def vocabulary_models(self) -> list[str]:
        """Slugs of the models that scored their vocabulary, in the order of `models`."""
        scored = {model for model, _ in self.results}
        return [model for model in self.models if model in scored]

    def models_under(self, prompt: str) -> list[str]:
        """Slugs of the models that scored their vocabulary under `prompt`, in that order."""
        return [model for model in self.models if (model, prompt) in self.results]

    def place(self, column: str = "model") -> pl.Expr:
        """The places of a column's slugs among `models`, by which tables are sorted; else -1."""
        slugs = list(self.models)
        return pl.col(column).replace_strict(slugs, list(range(len(slugs))), default=-1)

    def same_vocabulary(self, model: str) -> str:
        """Key of the vocabulary table of `model`: equal for models with the same vocabulary."""
        return str(self._records[model]["vocab"])

    def _chosen(self, what: str, names: Iterable[str] | None) -> list[str]:
        known = list(self.models if what == "model" else self.prompts)
        chosen = known if names is None else list(names)
        unknown = [name for name in chosen if name not in known]
        if unknown:
            raise RunError(f"{what} {unknown[0]!r} is not in the run; there: {known}")
        return chosen

    def joined(self, result: Result) -> pl.LazyFrame:
        """The columns of `scores` of one result over the vocabulary."""
        number = list(reading.columns(result))[-1]
        scores = (
            reading.scan(result)
            .rename({number: "reward"})
            .join(self.vocabulary(result.model), on="token_id", how="left", validate="1:1")
        )
        columns = ["token_id", "token", "reward", "is_special", "round_trip"]
        names = {"model": pl.lit(result.model), "prompt": pl.lit(result.prompt)}
        return scores.select(**names, **{c: pl.col(c) for c in columns}).sort("token_id")


def load(
    run: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    allow_incomplete: bool = False,
    finished_only: bool = False,
) -> Run:
    """Opens a run folder, or several as one, and checks every score before anything is computed.

    Args:
      run: one run folder, local or in an object store, or a sequence of them; the folder of all
        shards stands for its shards.
      allow_incomplete: accept a sweep that has not finished, and take the parts it has written.
      finished_only: leave out results that have not finished.

    Raises:
      RunError: not a run folder; nothing scored; an unfinished result (unless allowed); bytes
        other than result.json names; a reward that is not finite (polars would rank NaN above
        every number); a token scored twice or missing from the vocabulary; or two runs that
        disagree on a model, a prompt or a result that both hold.
    """
    paths: list[Any] = [run]  # Any: what a caller gives
    if isinstance(run, Sequence) and not isinstance(run, str):
        paths = [*run]
    if other := [path for path in paths if not isinstance(path, str | os.PathLike)]:
        raise RunError(f"run={other[0]!r}; allowed: the path of a run folder, or a list of them")
    chosen = [storage.path_of(path) for path in paths]
    folders = tuple(shards.expanded(chosen, allow_incomplete=allow_incomplete))
    if not folders:
        raise RunError("no run folder was named")
    ordered = len(folders) == 1 or not any(map(shards.is_shard, folders))
    runs = {folder: RunFolder.read(folder) for folder in folders}
    contents = merge([*runs.values()], ordered=ordered)
    wanted = [r for r in contents.results.values() if r.complete or not finished_only]
    results, ids, items = list[Result](), dict[str, pl.DataFrame](), dict[str, pl.DataFrame]()
    for result in wanted:
        if (opened := reading.read(result, allow_incomplete)) is None:
            continue
        kept, rows = opened
        results.append(kept)
        if "token_id" in rows.columns:
            if kept.model not in contents.vocabularies:
                raise RunError(f"{kept.title}: {schema.RUN} names no vocabulary of {kept.model}")
            holder, path = contents.vocabularies[kept.model]
            if path not in ids:
                ids[path] = reading.token_ids(holder, path)
            reading.check_scores(kept, rows, ids[path], allow_incomplete)
        elif "item_id" in rows.columns:
            reading.check_items(kept, rows, items)
    # The one rule for what is no plain sweep, and no list of the user's.
    behind = [result for result in results if result.reply_start]
    plain = [result for result in results if not result.reply_start]
    by_kind = {kind: [r for r in plain if r.kind == kind] for kind in schema.COLUMNS}
    conversations = by_kind[schema.CONVERSATIONS_DIR]
    if not results and not contents.searches:
        raise RunError(f"{', '.join(map(str, folders))}: nothing was scored in this run")
    for name in {result.items for result in conversations}:
        reading.shared_conversations(runs, (r for r in conversations if r.items == name))
    by_list = {(str(r.items), r.model): r for r in conversations}
    probes = {key: r for key, r in by_list.items() if key[0].endswith(schema.PROBES)}
    running = {key: r for key, r in by_list.items() if key[0].endswith(schema.RUNNING)}
    lists = {
        kind: {(str(r.items), r.model, r.prompt): r for r in by_kind[kind]} for kind in by_kind
    }
    tokens = {kind: {(r.model, r.prompt): r for r in by_kind[kind]} for kind in by_kind}
    scored = (schema.SCORES_DIR, schema.ITEMS_DIR, schema.CONVERSATIONS_DIR)
    shown = {r.model for kind in scored for r in by_kind[kind]} | {r.model for r in behind}
    shown |= {result.model for result in contents.searches.values()}
    return Run(
        folders=folders,
        models={slug: record for slug, record in contents.models.items() if slug in shown},
        prompts={p: text for p, text in contents.prompts.items() if not schema.parted(text)[1]},
        results=tokens[schema.SCORES_DIR],
        items=lists[schema.ITEMS_DIR],
        logprobs=tokens[schema.LOGPROBS_DIR],
        item_logprobs=lists[schema.ITEM_LOGPROBS_DIR],
        conversations={
            key: r for key, r in by_list.items() if key not in probes and key not in running
        },
        probes={(name.removesuffix(schema.PROBES), m): r for (name, m), r in probes.items()},
        running={
            (name.removesuffix(schema.running_list("", m)), m): r
            for (name, m), r in running.items()
        },
        searches=contents.searches,
        appended={(r.model, r.prompt): r for r in behind if r.kind == schema.SCORES_DIR},
        repeated={
            (str(r.items), r.model, r.prompt): r for r in behind if r.kind == schema.ITEMS_DIR
        },
        _records=contents.models,
        _runs=runs,
        _vocabularies=contents.vocabularies,
    )
