"""Searches of tiny models: settings, problems, scorers."""

import dataclasses
import functools

import polars as pl

from engine.checkpoint.card import Checkpoint
from engine.runs import schema
from engine.scoring.reward_passes import RewardScorer
from engine.search.gcg import Ranked, State, StepDriver, build_step, build_step_inputs
from engine.search.objective import SearchObjective
from engine.search.run import search_sequences
from engine.settings import SearchSettings
from engine.sweep.setup import vocabulary_of
from tests.support.parity import make_mesh, restore

PROMPT = {"who": "Who?"}
SETTINGS = SearchSettings(
    direction="max",
    length=3,
    steps=6,
    candidates=12,
    topk=16,
    restarts=2,
    buffer=3,
    ascii_only=False,
    round_trip=False,
    every=2,
    dtype="float32",
)


def settings(**changes) -> SearchSettings:
    return dataclasses.replace(SETTINGS, **changes)


def search(run, models, prompts=PROMPT, *, certify=False, data=1, **changes):
    """Searches into a run folder."""
    arguments = str(run), settings(**changes), make_mesh(data)
    return search_sequences(models, prompts, *arguments, certify=certify)


def file_of(run, direction="max", method="gcg"):
    """The file of a search's trace."""
    return run / schema.sequences_path("tiny", "who", direction, method, 0) / schema.TRACE


@functools.cache
def _table(path) -> pl.DataFrame:
    return vocabulary_of(Checkpoint.open(path))


def problem(model: Checkpoint, **changes) -> SearchObjective:
    split = model.template.split("Who?")
    return SearchObjective.build(model, split, _table(model.path), settings(**changes))


def expanded(objective: SearchObjective, scorer: RewardScorer) -> Ranked:
    """The ranked candidates of a search's first step."""
    arrays = StepDriver(objective, scorer).arrays()
    del arrays["rejected"]
    state = State(**arrays)
    expand, _ = build_step(scorer.graph, scorer.mesh, objective.settings)
    return expand(scorer.params, build_step_inputs(objective, scorer), state)


def scorer(model: Checkpoint, data: int = 1) -> RewardScorer:
    """The model on one device, or on more."""
    return _scorer(model.path, data)


@functools.cache
def _scorer(path, data) -> RewardScorer:
    return restore(Checkpoint.open(path), mesh=make_mesh(data)).scorer


def plain_rewards(scorer, problem, ids):
    """Rewards by the plain pass, of sequences [N, T]."""
    around = problem.prompt
    rows = [[*around.prefix, *row, *around.suffix] for row in ids.tolist()]
    return scorer.plain_rewards(rows)[0]
