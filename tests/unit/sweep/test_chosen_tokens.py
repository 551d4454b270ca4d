"""A fixed random subset of a vocabulary: its rewards are those of the whole sweep."""

import numpy as np
import pytest

from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.mesh import build_mesh
from engine.runs import storage
from engine.runs.folder import RunFolder
from engine.runs.identity import ids_hash
from engine.runs.verify import verify
from engine.sweep import reward_jobs
from engine.sweep.rescore import rescore, whole_results
from tests.support.sweeps import ONE, result


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ids", "text"])
def test_some_tokens_have_the_rewards_of_the_whole_sweep(run, other_run, trims, mode):
    run.sweep([trims], ONE, mode=mode)
    assert other_run.sweep([trims], ONE, mode=mode, tokens=70, part_size=30) == 70
    every, some = (r.frame(result("trims")) for r in (run, other_run))
    ids = some["token_id"].to_numpy()
    assert len(ids) == 70 and (np.diff(ids) > 0).all() and ids.max() > 200
    np.testing.assert_allclose(some["reward"], every["reward"].to_numpy()[ids], rtol=1e-5)


def test_the_draw_is_part_of_the_identity(run, tiny):
    run.sweep([tiny], ONE, tokens=70)
    identity = run.results()[result()].identity
    ids = run.frame(result())["token_id"].to_numpy()
    assert (identity.tokens, identity.rows) == (ids_hash(ids), 70)


def test_a_draw_of_other_ids_is_refused_before_a_part_is_added(run, tiny, monkeypatch):
    run.sweep([tiny], ONE, tokens=70, part_size=30)
    sorted((run.folder / result()).iterdir())[0].unlink()
    other = list(range(70))  # what another NumPy might draw with the same seed
    monkeypatch.setattr(reward_jobs, "chosen_tokens", lambda size, count, seed: other)
    with pytest.raises(AssayError, match="was begun with tokens"):
        run.sweep([tiny], ONE, tokens=70, part_size=30)


def test_ids_that_were_not_drawn_are_a_problem(run, tiny, monkeypatch):
    monkeypatch.setattr(reward_jobs, "ids_hash", lambda ids: ids_hash([1, 2]))
    run.sweep([tiny], ONE, tokens=70)
    [problem] = verify(storage.path_of(run.folder)).problems
    assert "other token ids than were drawn; remove the folder and run" in problem


@pytest.mark.slow
def test_some_tokens_are_scored_again_by_the_plain_pass(run, trims):
    run.sweep([trims], ONE, mode="text", tokens=70)
    folder = RunFolder.read(storage.path_of(run.folder))
    models = [Checkpoint.open(trims.path)]
    whole = whole_results(folder, models)
    [(_, outcome)] = rescore(folder, models, build_mesh(), whole, rows=20, seed=1)
    assert outcome.candidates == 20
