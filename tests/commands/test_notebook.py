"""`assay.sweep`, `assay.report` and the others do what the commands of their names do."""

import json
import re

import pytest

import assay

PROMPT = "Which, say, is best?"


def test_a_sweep_gives_what_the_command_prints_and_writes_the_same_rewards(
    command, checkpoint, tmp_path
):
    place = checkpoint().path
    file = tmp_path / "mine.py"
    file.write_text("def get_config():\n    return {'self_check': 4}\n")
    returned = assay.sweep(place, run=tmp_path / "here", prompt=PROMPT, config=file)
    flags = [f"--checkpoint={place}", f"--run={tmp_path / 'there'}", f"--prompt={PROMPT}"]
    told = json.loads(command("sweep", *flags, "--config.self_check=4", "--json").out[0])
    assert {*returned} == {*told, "exit_status"} and returned["exit_status"] == 0
    assert returned["results"][0]["highest"] == told["results"][0]["highest"]
    notebook, terminal = (assay.open_run(tmp_path / name) for name in ("here", "there"))
    assert notebook.scores().collect().equals(terminal.scores().collect())
    assert notebook.scores().collect().height == 288


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ({"run": "run", "rum": 1}, "--rum is no flag (did you mean 'run'?)"),
        ({"prompt": "x", "run": None}, "--run is missing"),
        ({"run": "run", "prompt": {"best": "x"}}, "prompt={'best': 'x'}"),
        ({"run": "run", "config": ["seed"]}, "config=['seed']"),
        ({"run": "run", "multihost": True}, "multihost=True"),
    ],
)
def test_what_the_command_refuses_is_an_error(checkpoint, tmp_path, monkeypatch, how, line):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(assay.AssayError, match=re.escape(line)):
        assay.sweep(checkpoint().path, **how)
    assert not [*tmp_path.iterdir()]
