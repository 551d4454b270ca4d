"""Lists of models: shards divide them exactly."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import analysis
from launch.common import sharding
from tests.support.sweeps import Run

pytestmark = pytest.mark.slow  # `make test` stays near five minutes

SMALL = ("--config.step_size=64", "--config.part_size=100")
PROMPTS = "--config.prompts=greatest,worst"


@pytest.fixture(scope="module")
def models(checkpoint):
    """Two models on one decoder, and two others."""
    return [
        checkpoint(),
        checkpoint("twin", head_seed=1),
        checkpoint("other", seed=1),
        checkpoint("third", seed=2),
    ]


def flag(models):
    return "--checkpoint=" + ",".join(str(model.path) for model in models)


def test_shards_together_are_the_unsharded_run(command, models, tmp_path):
    """More than there are groups of models, so that prompts are divided too."""
    count, run, lines, whole = 4, tmp_path / "run", [], Run(tmp_path / "whole")
    command("sweep", flag(models), f"--run={whole.folder}", *SMALL, PROMPTS).fine()
    for index in range(count, 0, -1):
        flags = (flag(models), f"--run={run}", *SMALL, PROMPTS, f"--shard={index}/{count}")
        done = command("sweep", *flags).fine()
        lines += done.out[-1:]
    assert lines[0].startswith(f"{run}/shard-{count}-of-{count}/scores: ")
    shards = [Run(run / f"shard-{k}-of-{count}") for k in range(1, count + 1)]
    hashes = [shard.hashes() for shard in shards]
    assert all(hashes)
    assert sum(map(len, hashes)) == len(whole.hashes())
    assert {p: sha for part in hashes for p, sha in part.items()} == whole.hashes()

    plain, sharded = analysis.load(whole.folder), analysis.load(run)
    assert set(plain.results) == set(sharded.results)
    assert plain.prompts == sharded.prompts
    assert all((plain.rewards(*key)[1] == sharded.rewards(*key)[1]).all() for key in plain.results)


def test_verify_checks_every_shard_and_a_report_names_a_missing_one(command, models, tmp_path):
    run, prompt = tmp_path / "run", "--config.prompts=greatest"
    flags = (flag(models[2:]), f"--run={run}", *SMALL, prompt)
    command("sweep", *flags, "--shard=2/2").fine()
    done = command("analyze", f"--run={run}", f"--report={tmp_path}/report")
    assert f"{run}: shard 1 of 2 is missing" in done.refusal()
    assert not (tmp_path / "report").exists()
    command("sweep", *flags, "--shard=1/2").fine()
    assert command("verify", f"--run={run}").fine().out == [
        f"{run}/shard-{k}-of-2: 1 results, 3 files, 288 rows: all is well" for k in (1, 2)
    ]
    [part] = run.glob("shard-2-of-2/scores/*/*/part-0000000-*")
    part.unlink()
    done = command("verify", f"--run={run}")
    assert done.code == 1
    assert done.out[0].startswith(f"{part}: missing")
    assert [line.rpartition(": ")[2] for line in done.out[-2:]] == ["all is well", "1"]


def test_a_folder_keeps_its_number_of_shards_which_cannot_be_too_many(command, models, tmp_path):
    flags = (flag(models[:1]), f"--run={tmp_path}/run", *SMALL, PROMPTS)
    line = command("sweep", *flags, "--shard=1/7").refusal()
    assert line.startswith("sweep: shard='1/7'; allowed: at most 2 ")
    assert command("sweep", *flags, "--shard=1/2").code == 0
    refused = command("sweep", *flags, "--shard=1/1").refusal()
    assert f"run {tmp_path}/run: " in refused and "--shard=k/2" in refused
    assert f"run {tmp_path}/run: " in command("sweep", *flags).refusal()
    flags = (flags[0], f"--run={tmp_path}/whole", *flags[2:])
    assert command("sweep", *flags).code == 0
    refused = command("sweep", *flags, "--shard=1/2").refusal()
    assert f"run {tmp_path}/whole: " in refused and "--shard" in refused


COSTS = st.lists(st.floats(1, 100), min_size=1, max_size=12)


@given(costs=COSTS, prompts=st.integers(1, 8), data=st.data())
def test_shards_divide_the_work_exactly_and_evenly(costs, prompts, data):
    """Each pair of a group and a prompt is in one shard, and no shard is empty.

    Of whole groups the largest shard is at most twice what no division can be below.
    """
    count = data.draw(st.integers(1, len(costs) * prompts))
    shards = sharding.shares(costs, prompts, count)
    pairs = [[(g, p) for g, piece, n in mine for p in range(prompts)[piece::n]] for mine in shards]
    assert len(pairs) == count and all(pairs)
    everything = sorted(itertools.chain.from_iterable(pairs))
    assert everything == list(itertools.product(range(len(costs)), range(prompts)))
    if count <= len(costs):
        least = max(sum(costs) / count, max(costs))
        assert max(sum(costs[g] for g, _, _ in mine) for mine in shards) <= 2 * least


def test_groups_are_dealt_by_what_they_cost():
    alone, rest = sharding.shares([1.0, 9.0, 1.0, 1.0], 1, 2)
    assert alone == [(1, 0, 1)] and [group for group, _, _ in rest] == [0, 2, 3]
