"""`launch.search` from its flags: what it says, and what it refuses."""

import json

import polars as pl
import pytest

FLAGS = (
    "--config.method=random",
    "--config.length=2",
    "--config.steps=2",
    "--config.candidates=12",
    "--config.every=2",
    "--config.direction=max",
    "--config.ascii_only=False",
)


@pytest.fixture
def model(checkpoint):
    return checkpoint().path


@pytest.mark.slow
def test_a_found_sequence_is_said_with_its_reward_and_kept(command, model, tmp_path):
    run = tmp_path / "run"
    paths = (f"--checkpoint={model}", f"--run={run}")
    done = command("search", *paths, *FLAGS).fine()
    (file,) = (run / "sequences").rglob("*.parquet")
    last = pl.read_parquet(file).row(-1, named=True)
    rejected = json.loads(file.with_name("result.json").read_text())["rejected"]
    message = f"max {last['reward']:.4g} {last['text']!r} ({rejected} "
    assert rejected > 0 and message in done.out[-1]
    left = [run / ".run.json.6568d694.tmp", file.parent / ".max.safetensors.0123abcd.tmp"]
    for path in left:  # as a command that is killed leaves them
        path.write_bytes(b"{")
    assert command("search", *paths, *FLAGS).out[-1].endswith("0 new; complete already")
    assert not any(path.exists() for path in left)
    assert command("verify", f"--run={run}").code == 0
