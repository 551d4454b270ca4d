"""`assay convert` of an adapter: what is printed, and what a run and its files know of it."""

import pytest

from tests.support import folders, torch_models
from tests.support.adapters import Adapter, write
from tests.support.sweeps import Run

SWEEP = ("--config.step_size=64", "--config.prompts=greatest", "--noconfig.noise")


@pytest.fixture
def pair(tmp_path):
    write(Adapter(model="mqa-linear"), tmp_path)
    return tmp_path


def test_the_base_that_the_user_names_and_hashes_are_in_the_run(command, pair):
    (pair / "base").rename(pair / "moved")
    flags = (f"--source={pair / 'adapter'}", f"--checkpoint={pair / 'ck'}")
    flags += (f"--base={pair / 'moved'}",)
    done = command("convert", *flags).fine()
    assert str(pair / "moved") in done.err[0]
    assert done.out == [f"{pair / 'ck'}: adapter, 1 layer, linear head, 264 tokens, float32"]
    run = pair / "run"
    sweep = (f"--run={run}", "--config.prompts=greatest", "--config.step_size=64")
    command("sweep", pair / "ck", *sweep).fine()
    base = {"source": str(pair / "moved"), "revision": None}
    assert Run(run).record()["models"]["adapter"]["base"] == base
    [result] = Run(run).results().values()
    assert {len(digest) for digest in (result.identity.adapter, result.identity.base)} == {64}
    command("verify", f"--run={run}", "--rescore=5", f"--checkpoint={pair / 'ck'}").fine()


@pytest.mark.slow
def test_a_full_model_and_an_adapter_are_compared_and_a_base_may_stand_beside_it(
    command, pair, light
):
    (pair / "base").rename(pair / "sft")
    full = torch_models.save(torch_models.build("mqa-linear"), pair / "full")
    sides = (f"--before={full}", f"--after={pair / 'adapter'}", f"--report={pair / 'page'}")
    flags = ("diff", *sides, *SWEEP, f"--config.cache={pair / 'cache'}")
    assert "--config.base" in command(*flags, "--base=x").refusal()
    sweep = ("sweep", full, f"--run={pair / 'run'}", "--config.base=x")
    assert "--config.base='x'" in command(*sweep).refusal()
    for base, given in ((f"{pair}/base", [f"--config.base={pair / 'sft'}"]), ("sft", [])):
        folders.edit_json(pair / "adapter/adapter_config.json", base_model_name_or_path=base)
        run = pair / f"run-{len(given)}"
        assert command(*flags, f"--run={run}", *given).code < 2
        [entry] = Run(run / "after").record()["models"].values()
        assert entry["base"]["source"] == str(pair / "sft")


def test_a_plan_of_an_adapter_asks_for_its_base(command, pair):
    done = command("plan", f"--source={pair / 'adapter'}")
    assert "adapter without a config.json" in done.refusal()
