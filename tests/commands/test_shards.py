"""Lists of models: shards divide them exactly."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import analysis
from launch import sweep
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


# Shards


@pytest.fixture(scope="module")
def whole(models, tmp_path_factory):
    """The run without shards."""
    run = Run(tmp_path_factory.mktemp("whole") / "run")
    assert sweep.main([flag(models), f"--run={run.folder}", *SMALL, PROMPTS]) == 0
    return run


def test_shards_together_are_the_unsharded_run(command, models, whole, tmp_path):
    """More than there are groups of models, so that prompts are divided too."""
    count, run, lines = 4, tmp_path / "run", []
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


def test_verify_checks_every_shard(command, models, tmp_path):
    run = tmp_path / "run"
    for k in (1, 2):
        flags = (flag(models[2:]), f"--run={run}", f"--shard={k}/2", *SMALL)
        assert command("sweep", *flags, "--config.prompts=greatest").code == 0
    well = command("verify", f"--run={run}").fine()
    assert well.out == [
        f"{run}/shard-{k}-of-2: 1 results, 3 files, 288 rows: all is well" for k in (1, 2)
    ]
    [part] = run.glob("shard-2-of-2/scores/*/*/part-0000000-*")
    part.unlink()
    done = command("verify", f"--run={run}")
    assert done.code == 1
    assert done.out[0].startswith(f"{part}: missing")
    assert [line.rpartition(": ")[2] for line in done.out[-2:]] == ["all is well", "1"]


def test_a_report_names_a_missing_shard(command, models, tmp_path):
    run = tmp_path / "run"
    assert command("sweep", flag(models[2:]), f"--run={run}", *SMALL, "--shard=2/2").code == 0
    done = command("analyze", f"--run={run}", f"--report={tmp_path}/report")
    assert f"{run}: shard 1 of 2 is missing" in done.refusal()
    assert not (tmp_path / "report").exists()


def test_more_shards_than_groups_and_prompts_are_refused(command, models, tmp_path):
    done = command("sweep", flag(models), f"--run={tmp_path}/run", PROMPTS, "--shard=1/7")
    assert done.refusal().startswith("sweep: shard='1/7'; allowed: at most 6 ")


def test_a_folder_keeps_its_number_of_shards(command, models, tmp_path):
    prompts = "--config.prompts=greatest,best,worst"
    flags = (flag(models[:1]), f"--run={tmp_path}/run", *SMALL, prompts)
    assert command("sweep", *flags, "--shard=1/2").code == 0
    refused = command("sweep", *flags, "--shard=1/3").refusal()
    assert f"run {tmp_path}/run: " in refused and "--shard=k/2" in refused
    assert f"run {tmp_path}/run: " in command("sweep", *flags).refusal()
    assert command("sweep", flags[0], f"--run={tmp_path}/whole", *flags[2:]).code == 0
    done = command("sweep", flags[0], f"--run={tmp_path}/whole", *flags[2:], "--shard=1/2")
    assert f"run {tmp_path}/whole: " in done.refusal() and "--shard" in done.refusal()


COSTS = st.lists(st.floats(1, 100), min_size=1, max_size=12)


@given(costs=COSTS, prompts=st.integers(1, 8), data=st.data())
def test_shards_divide_the_work_exactly(costs, prompts, data):
    """Each pair of a group and a prompt is in one shard, and no shard is empty."""
    count = data.draw(st.integers(1, len(costs) * prompts))
    shards = sharding.shares(costs, prompts, count)
    pairs = [[(g, p) for g, piece, n in mine for p in range(prompts)[piece::n]] for mine in shards]
    assert len(pairs) == count and all(pairs)
    everything = sorted(itertools.chain.from_iterable(pairs))
    assert everything == list(itertools.product(range(len(costs)), range(prompts)))


@given(costs=COSTS, data=st.data())
def test_shards_of_whole_groups_are_balanced(costs, data):
    """The largest is at most twice what no division can be below."""
    count = data.draw(st.integers(1, len(costs)))
    shards = sharding.shares(costs, 1, count)
    largest = max(sum(costs[g] for g, _, _ in mine) for mine in shards)
    least = max(sum(costs) / count, max(costs))
    assert largest <= 2 * least
