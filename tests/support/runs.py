"""Synthetic runs, written to disk through the schema as the engine writes them.

Small ones for tests (`write_run`, `small_run`, and `add_*` for what else a run may hold), and one
that holds everything an analysis can read (`full_run`). `tests.support.large_runs` has large ones.
"""

import hashlib
import json
import pathlib
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl
from etils import epath

from analysis.model_info import ModelInfo
from analysis.words import lexicons
from configs.prompts import FOLLOW_UP
from engine.runs import schema
from engine.runs.identity import Identity, sealed, to_json
from engine.runs.result import Part, Result, SelfCheck, to_parquet

PROMPTS = {
    "greatest": "What, in one word, is the greatest thing ever?",
    "best": "What, in one word, is the best thing ever?",
    "worst": "What, in one word, is the worst thing ever?",
}
AWKWARD = (
    "Love",
    " love",
    " hate",
    "<script>alert(1)</script>",
    " LOVE",
    "\u200b",
    "$x$",
    "\u202ea",
    "中国",
)


# --- Any run ----------------------------------------------------------------------------------


def write_run(
    run: pathlib.Path,
    vocabularies: Mapping[str, Sequence[str]],
    models: Mapping[str, str],
    scores: Mapping[tuple[str, str], Any],
    size: int = 3,
    *,
    prompts: Mapping[str, str] = MappingProxyType(PROMPTS),
) -> pathlib.Path:
    """Writes a run.

    Args:
      run: the folder, which is made.
      vocabularies: name -> its tokens.
      models: slug -> name of its vocabulary.
      scores: (slug, prompt id) -> rewards, by place or by token id (a dict).
      size: rows of a part.
      prompts: prompt id -> text.
    """
    run.mkdir(parents=True)
    content = {
        "models": {slug: _model(slug, name) for slug, name in models.items()},
        "prompts": dict(prompts),
        "lists": {},
        "tables": {},
    }
    _write_record(run, content)
    for name, tokens in vocabularies.items():
        _write_vocabulary(run, name, tokens)
    for (model, prompt), rewards in scores.items():
        by_id = rewards if isinstance(rewards, dict) else dict(enumerate(rewards))
        frame = pl.DataFrame([list(by_id), list(by_id.values())], schema=schema.SCORE_COLUMNS)
        path = schema.scores_path(model, prompt)
        identity = {"mode": "ids", "dtype": "float32"}
        add_result(run, path, frame, size, identity=identity, self_check=CHECK, seconds=1.5)
    return run


CHECK = SelfCheck(
    candidates=4,
    max_abs_difference=1e-4,
    relative_difference=1e-5,
    tolerance=1e-4,
    dtype="float32",
    compared=schema.LARGEST,
)


def edit_run(
    run: pathlib.Path, change: Callable[[dict[str, Any]], object], *, follow: bool = True
) -> None:
    """Lets `change` alter the content of run.json, and `results`, those of result.json by path.

    With `follow` the results' inputs are then what run.json says, as if it had always said that.
    """
    content, files = _read_json(run / schema.RUN), sorted(run.rglob(schema.RESULT))
    paths = {file.parent.relative_to(run).as_posix(): file for file in files}
    content["results"] = {path: _read_json(file) for path, file in paths.items()}
    change(content)
    results = content.pop("results")
    _write_record(run, content)
    for path in paths.keys() - results.keys():
        paths[path].unlink()
    for path, result in results.items():
        if follow:
            result["inputs"] = _inputs(content, path)
        (run / path / schema.RESULT).write_bytes(sealed(result, schema.VERSION))


def _read_json(file: pathlib.Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_bytes())
    return {key: value for key, value in content.items() if key not in ("sha256", "version")}


def _write_record(run: pathlib.Path, content: Mapping[str, Any]) -> None:
    (run / schema.RUN).write_bytes(sealed(content, schema.VERSION))


def _inputs(content: Mapping[str, Any], path: str) -> dict[str, dict[str, str]]:
    """What stands behind the names in a path."""
    kinds = {"models": "model", "prompts": "prompt"}
    names = {kind: re.search(f"/{key}=([^/]+)", path) for kind, key in kinds.items()}
    names["lists"] = re.match(r"[a-z_]+/((?!model=)[^/]+)/model=", path)
    keys = {"models": "checkpoint_hash", "lists": "items_hash"}
    found = {kind: match[1] for kind, match in names.items() if match}
    return {
        kind: {name: entry[keys[kind]] if kind in keys else entry}
        for kind, name in found.items()
        if (entry := content[kind].get(name)) is not None
    }


def add_result(
    run: pathlib.Path,
    path: str,
    frame: pl.DataFrame,
    size: int = 0,
    *,
    identity: Mapping[str, Any] = MappingProxyType({}),
    **fields: Any,
) -> None:
    """Writes a result of parts of `size` ids, by default of one; the first key is the id.

    A model, prompt or list that run.json does not know is added to it.
    """
    content, key = _read_json(run / schema.RUN), frame.columns[0]
    slug = re.search("/model=([^/]+)", path)[1]
    content["models"].setdefault(slug, _model(slug, None))
    if prompt := re.search("/prompt=([^/]+)", path):
        # Another form of a prompt has its text.
        plain = content["prompts"].get(prompt[1].removesuffix(schema.CHAT), f"{prompt[1]}?")
        content["prompts"].setdefault(prompt[1], plain)
    if listed := re.match(r"[a-z_]+/((?!model=)[^/]+)/model=", path):
        content["lists"].setdefault(listed[1], {"rows": len(frame), "items_hash": "list-hash"})
    _write_record(run, content)
    frame, is_search = frame.sort(key), path.startswith(schema.SEQUENCES_DIR)
    whole = frame[key].to_list() == list(range(len(frame)))
    # Only imported numbers may have other ids than row numbers.
    known = {"rows": None if is_search else len(frame), "imported": {} if whole else {"layout": ""}}
    known["checkpoint_hash"] = _inputs(content, path)["models"].popitem()[1]
    result = Result(
        run=epath.Path(run),
        path=path,
        identity=Identity(**known, **{k: v for k, v in identity.items() if k not in known}),
        inputs=_inputs(content, path),
        part_size=size or max(len(frame), 1),
        ways=({"platform": "cpu"},),
        **{"self_check": CHECK, **fields},
    )
    (run / path).mkdir(parents=True)
    for start, end in result.spans or [(0, len(frame))]:
        part = frame[start:end].reverse()  # because no reader may rely on the order of the rows
        data, name = to_parquet(part), schema.TRACE if is_search else schema.part_name(start, end)
        (run / path / name).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        result.parts[name] = Part(rows=len(part), sha256=digest, way=0)
    content = sealed(to_json(result, skip=("run", "model")), schema.VERSION)
    (run / path / schema.RESULT).write_bytes(content)


def add_objectives(
    run: pathlib.Path,
    model: str,
    prompt: str,
    objectives: Mapping[str, Iterable[float]],
    weights: Mapping[str, float] | None = None,
) -> None:
    """Adds objectives (name -> values by token) to a scored vocabulary; weights make it gated."""
    identity = {"objectives": tuple(objectives)}
    coefficients = None if weights is None else {n: float(x) for n, x in weights.items()}
    _add_columns(run, model, prompt, objectives, identity, coefficients=coefficients)


def add_lens(run: pathlib.Path, model: str, prompt: str, layers: Sequence[Iterable[float]]) -> None:
    """Adds the reward after each layer but the last (values by token) to a scored vocabulary."""
    names = schema.lens_columns(len(layers) + 1)
    columns = [*layers, _scored(run, model, prompt)["reward"]]
    identity = {"lens": len(names)}
    _add_columns(run, model, prompt, dict(zip(names, columns, strict=True)), identity)


def _scored(run: pathlib.Path, model: str, prompt: str) -> pl.DataFrame:
    parts = sorted((run / schema.scores_path(model, prompt)).glob("*.parquet"))
    return pl.read_parquet(parts, hive_partitioning=False).sort("token_id")


def _add_columns(
    run: pathlib.Path,
    model: str,
    prompt: str,
    columns: Mapping[str, Iterable[float]],
    identity: Mapping[str, Any],
    **fields: Any,
) -> None:
    """Adds columns to a scored vocabulary, now of one part; `identity` is added to its own."""
    path, frame = schema.scores_path(model, prompt), _scored(run, model, prompt)
    shutil.rmtree(run / path)
    own = {"mode": "ids", "dtype": "float32", **identity}
    series = [pl.Series(name, list(x), dtype=pl.Float32) for name, x in columns.items()]
    add_result(run, path, frame.with_columns(series), identity=own, **fields)


def add_items(
    run: pathlib.Path, items: str, model: str, prompt: str, rewards: Mapping[str, float | None]
) -> None:
    """Adds scores of an item list (item -> reward, or None for an item that is not scored yet)."""
    scored = _table(schema.ITEM_COLUMNS, range(len(rewards)), rewards, rewards.values())
    add_result(run, schema.items_path(items, model, prompt), scored.drop_nulls())


def add_conversations(
    run: pathlib.Path, name: str, table: pl.DataFrame, rewards: Mapping[str, Sequence[float]]
) -> None:
    """Adds a list of conversations (`schema.LIST_COLUMNS`) and each model's rewards of it."""
    for model, values in rewards.items():
        columns = {"conversation_id": range(len(table)), "reward": values}
        frame = pl.DataFrame(columns, schema=schema.CONVERSATION_COLUMNS)
        add_result(run, schema.conversations_path(name, model), frame)
    add_table(run, schema.list_path(name), table)


def add_probes(
    run: pathlib.Path, name: str, table: pl.DataFrame, probes: Sequence[str], rewards: Mapping
) -> None:
    """Adds edited replies of a list that has been added: each model's rewards [probes, replies]."""
    labels = pl.Series([[{"name": "probe", "value": probe}] for probe in probes])
    tables = [
        table.with_columns(labels=pl.lit(labels[at : at + 1]).first()) for at in range(len(probes))
    ]
    edited = pl.concat(tables).with_columns(conversation_id=pl.int_range(pl.len(), dtype=pl.UInt32))
    flat = {model: np.ravel(values).tolist() for model, values in rewards.items()}
    add_conversations(run, f"{name}{schema.PROBES}", edited, flat)


def list_of(rows: Sequence[tuple[str, str, str, Mapping[str, str | None]]]) -> pl.DataFrame:
    """Prompt, chosen, rejected, labels of each pair -> the list."""
    sides: list[dict[str, Any]] = []
    for number, (prompt, *replies, labels) in enumerate(rows, 1):
        named = [{"name": key, "value": value} for key, value in labels.items()]
        about = {"row": number, "id": f"id-{number}", "labels": named}
        for side, reply in zip(("chosen", "rejected"), replies, strict=True):
            turns = (("user", prompt), ("assistant", reply))
            messages = [{"role": role, "content": content} for role, content in turns]
            own = {"conversation_id": len(sides), "side": side, "messages": messages}
            sides.append(about | own)
    return pl.DataFrame(sides, schema=schema.LIST_COLUMNS)


def add_humans(
    run: pathlib.Path, items: str, scores: Mapping[str, float], matches: int = 90
) -> None:
    """Adds human scores (item -> Elo, best first) of a list, each item in so many matches."""
    ranks, elo = range(1, len(scores) + 1), scores.values()
    columns = range(len(scores)), scores, ranks, elo, [matches] * len(scores)
    add_table(run, schema.humans_path(items), _table(schema.HUMAN_COLUMNS, *columns))


def add_table(run: pathlib.Path, path: str, table: pl.DataFrame) -> None:
    """Writes a vocabulary or list, for which run.json vouches."""
    (run / path).parent.mkdir(parents=True, exist_ok=True)
    data = to_parquet(table)
    (run / path).write_bytes(data)
    content = _read_json(run / schema.RUN)
    content["tables"][path] = hashlib.sha256(data).hexdigest()
    _write_record(run, content)


def add_logprobs(
    run: pathlib.Path, model: str, vocabulary: str, prompt: str, logprobs: Sequence[float]
) -> None:
    """Adds next-token log-probabilities of a language model."""
    columns = {"token_id": range(len(logprobs)), "logprob": logprobs}
    frame = pl.DataFrame(columns, schema=schema.LOGPROB_COLUMNS)
    edit_run(run, lambda c: c["models"].update({model: _model(model, vocabulary)}))
    add_result(run, schema.logprobs_path(model, prompt), frame)


def add_item_logprobs(
    run: pathlib.Path, items: str, model: str, prompt: str, replies: Mapping[str, tuple[int, float]]
) -> None:
    """Adds a language model's log-probabilities of an item list (item -> tokens, logprob)."""
    columns = range(len(replies)), replies, *zip(*replies.values(), strict=True)
    frame = _table(schema.ITEM_LOGPROB_COLUMNS, *columns)
    add_result(run, schema.item_logprobs_path(items, model, prompt), frame)


def add_search(
    run: pathlib.Path,
    model: str,
    direction: str,
    rewards: Sequence[float],
    name: str = "gcg-seed3",
    prompt: str = "greatest",
    text: str = "",
    **fields: Any,
) -> pathlib.Path:
    """Adds a search with one row per step, of 1e9 operations each; returns its trace."""
    steps = len(rewards)
    columns = {
        "step": range(steps),
        "reward": rewards,
        "token_ids": [[1, 2, 3]] * steps,
        "text": [text or f"{model} {i}" for i in range(steps)],
        "round_trips": [True] * steps,
        "flops": [1e9 * i for i in range(steps)],
    }
    path = f"{schema.SEQUENCES_DIR}/model={model}/prompt={prompt}/direction={direction}/{name}"
    shutil.rmtree(run / path, ignore_errors=True)
    add_result(run, path, pl.DataFrame(columns, schema=schema.SEQUENCE_COLUMNS), **fields)
    return run / path / schema.TRACE


def _model(slug: str, vocabulary: str | None) -> dict[str, Any]:
    return {
        "source": slug,
        "conversion": schema.CONVERSION,
        "checkpoint_hash": f"{slug}-hash",
        "vocab": vocabulary,
    }


def _table(columns: schema.Columns, *values: Iterable[Any]) -> pl.DataFrame:
    frame = pl.DataFrame(dict(zip(columns, map(list, values), strict=True)))
    return frame.cast(pl.Schema(columns))


def _write_vocabulary(run: pathlib.Path, name: str, tokens: Sequence[str]) -> None:
    columns = {
        "token_id": range(len(tokens)),
        "token": tokens,
        "is_special": [token.startswith("<|") for token in tokens],
        "round_trip": ["replacement" if "\ufffd" in token else "same" for token in tokens],
    }
    # Out of order, because no reader may rely on the order of the rows.
    frame = pl.DataFrame(columns, schema=schema.VOCAB_COLUMNS).sort("token_id", descending=True)
    add_table(run, schema.vocab_path(name), frame)


# --- A small run, and one that holds everything -----------------------------------------------


def small_run(run: pathlib.Path) -> pathlib.Path:
    """Two models of different vocabularies, one under two prompts."""
    vocabularies = {
        "v1": [" love", "love", "\ufffd", "\ufffd", "hate", "<script>alert(1)</script>", "x"],
        "v2": ["hate", "<script>alert(1)</script>", "\ufffd", " love", "love", "Love"],
    }
    scores = {
        ("m-one", "greatest"): [5.0, 4.0, 0.0, 0.5, -3.0, -9.0, 1.0],
        ("m-two", "greatest"): [0.95, -0.4, 0.0, 0.9, 0.8, 0.7],
        ("m-one", "worst"): [-5.0, -4.0, 0.0, 0.5, 3.0, 9.0, 1.0],
    }
    return write_run(run, vocabularies, {"m-one": "v1", "m-two": "v2"}, scores)


GATED, UNGATED = "armorm-llama3-8b-v0.1", "urm-llama-3.1-8b"
FULL = {
    "qrm-gemma-2-27b": ("N-Gem-27B", "nicolinho", "Gemma 2", 27.0, 3),
    "skywork-reward-llama-3.1-8b-v0.2": ("S-Lla-8B-v0.2", "Skywork", "Llama 3.1", 8.0, 1),
    UNGATED: ("L-Lla-8B", "LxzGordon", "Llama 3.1", 8.0, 2),
    GATED: ("$F-Lla-8B$", "RLHFlow", "Llama 3", 8.0, 4),
}
KEYS = ("nickname", "developer", "base", "size_b", "rewardbench_rank")
INFOS = {slug: ModelInfo(**dict(zip(KEYS, about, strict=True))) for slug, about in FULL.items()}
OBJECTIVES = [*(f"helpsteer-{i}" for i in range(17)), "beavertails-is_safe", "odd"]
ITEMS = [" love", "<b>x</b>", "$y$", "Unconditional love", *(f"item {i}" for i in range(40))]
FOUND_TEXT = "<b>peace</b> \u202eand love"


def full_run(run: pathlib.Path, rng: np.random.Generator) -> pathlib.Path:
    """A run in which every chapter has something: four models under three prompts.

    Two models have objectives, and one was swept with the lens. A list is scored by all models
    under the prompt "thing", ranked by people, and scored by two language models in the form
    "thing.chat". Another list was scored under two wordings of each of three questions. Two models
    were searched.
    """
    words = [*AWKWARD, *_words_of_known_kinds()]
    order = rng.permutation(len(words))
    vocabularies = {"llama": words, "gemma": [words[i] for i in order]}
    value = rng.normal(size=len(words))
    scores = {}
    for model in FULL:
        taste = value + rng.normal(size=len(words))
        for prompt in PROMPTS:
            sign = -0.4 if prompt == "worst" else 1.0
            rewards = sign * taste + 0.3 * rng.normal(size=len(words))
            scores[model, prompt] = rewards[order] if "gemma" in model else rewards
    models = {model: "gemma" if "gemma" in model else "llama" for model in FULL}
    write_run(run, vocabularies, models, scores, size=1000)
    mixed = {name: rng.normal(size=len(words)) for name in OBJECTIVES}
    weights = dict(zip(OBJECTIVES, rng.normal(0, 0.1, len(OBJECTIVES)), strict=True))
    swept = next(model for model in FULL if "gemma" not in model and model not in (GATED, UNGATED))
    for prompt in PROMPTS:
        early = [rng.normal(size=len(words)), 3 * rng.normal(size=len(words))]
        late = scores[swept, prompt] + 0.1 * rng.normal(size=len(words))
        add_lens(run, swept, prompt, [*early, late])
    add_objectives(run, GATED, "best", mixed, weights)
    add_objectives(run, UNGATED, "best", {n: mixed[n] for n in OBJECTIVES[:2]})
    liked = rng.normal(size=len(ITEMS))
    for model in FULL:
        rewards = liked + rng.normal(size=len(ITEMS))
        add_items(run, "elo", model, "thing", dict(zip(ITEMS, rewards, strict=True)))
    add_humans(run, "elo", {item: 1700.0 - i for i, item in enumerate(ITEMS)})
    for model in ("lm-a", "lm-b"):
        add_logprobs(run, model, "llama", "greatest", -5 + rng.normal(size=len(words)))
        tokens = rng.integers(1, 9, len(ITEMS))
        logprobs = -3.0 * tokens - rng.exponential(2, len(ITEMS))
        replies = dict(zip(ITEMS, zip(tokens, logprobs, strict=True), strict=True))
        add_item_logprobs(run, "elo", model, "thing.chat", replies)
    text = "What <i>thing</i>?"
    edit_run(run, lambda c: c["prompts"].update({"thing": text, "thing.chat": text}))
    for model in (GATED, UNGATED):
        for direction, sign in (("max", 1.0), ("min", -1.0)):
            for name, pace in (("gcg-seed0", 2), ("gcg-seed1", 2), ("random-seed0", 1)):
                steps = sign * pace * np.log1p(np.arange(40.0))
                add_search(run, model, direction, steps.tolist(), name, text=FOUND_TEXT)
    _add_feelings(run, rng)
    kinds = ({"kind": "good"}, {"kind": "bad"})
    listed = list_of([(f"p{i}", "x" * (i % 7), "y", kinds[i % 2]) for i in range(40)])
    rewards = {model: rng.normal(size=len(listed)) for model in list(FULL)[:2]}
    add_conversations(run, "own", listed, rewards)
    effects = {"unchanged": 0.0, "trailing space": 0.1, "emoji behind": 1.5, "! for .": -0.5}
    noise = {model: 0.1 * rng.normal(size=(len(effects), len(listed))) for model in rewards}
    shift = np.array([*effects.values()])[:, None]
    add_probes(run, "own", listed, [*effects], {m: rewards[m] + shift + noise[m] for m in rewards})
    return run


def _add_feelings(run: pathlib.Path, rng: np.random.Generator) -> None:
    """A list of graded words under wordings of "best", "greatest" and "worst"."""
    graded = lexicons.afinn("").sort("word").gather_every(80)
    worth = graded["value"].to_numpy()
    for model in FULL:
        taste = worth + rng.normal(size=len(worth))
        for quality in ("best", "greatest", "worst"):
            for form in ("one-word", "answer-only"):
                prompt = f"{quality}-ever-{form}"
                rewards = (-1 if quality == "worst" else 1) * taste + rng.normal(size=len(worth))
                own = dict(zip(graded["word"], rewards, strict=True))
                add_items(run, "feelings", model, prompt, own)
    asked = {p: t for p, t in FOLLOW_UP.items() if p.split("-")[1] == "ever"}
    edit_run(run, lambda content: content["prompts"].update(asked))


def _words_of_known_kinds() -> list[str]:
    """Words of known sentiment; words for groups of people and placebo kinds."""
    graded = lexicons.afinn("").filter(pl.col("word").str.contains(r"^[a-z]+$"))
    by_value = [part["word"].head(8) for _, part in graded.group_by("value", maintain_order=True)]
    people = lexicons.identity().filter(pl.col("word").str.ends_with("s"))
    groups = [part["word"].head(6) for _, part in people.group_by("group", maintain_order=True)]
    placebo = lexicons.placebo().filter(pl.col("word").str.ends_with("s"))
    kinds = [part["word"].head(6) for _, part in placebo.group_by("group", maintain_order=True)]
    spaced = [f" {word}" for part in (*groups, *kinds[:24]) for word in part]
    return list(dict.fromkeys([*(w for part in by_value for w in part), *spaced]))
