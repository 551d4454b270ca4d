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


@pytest.mark.slow
def test_a_found_sequence_is_said_with_its_reward_and_kept(command, checkpoint, tmp_path):
    run = tmp_path / "run"
    paths = (f"--checkpoint={checkpoint().path}", f"--run={run}")
    done = command("search", *paths, *FLAGS).fine()
    (file,) = (run / "sequences").rglob("*.parquet")
    last = pl.read_parquet(file).row(-1, named=True)
    rejected = json.loads(file.with_name("result.json").read_text())["rejected"]
    message = f"max {last['reward']:.4g} {last['text']!r} ({rejected} "
    assert rejected > 0 and message in done.out[-1]
    left = file.parent / ".max.safetensors.0123abcd.tmp"
    left.write_bytes(b"{")  # as a command that is killed leaves it
    assert command("search", *paths, *FLAGS).out[-1].endswith("0 new; complete already")
    assert not left.exists()
    assert command("verify", f"--run={run}").code == 0
