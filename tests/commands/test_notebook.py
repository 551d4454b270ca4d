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


@pytest.mark.slow
def test_a_report_and_a_diff_of_two_runs_name_their_pages(light, checkpoint, tmp_path):
    made = [checkpoint(slug="one").path, checkpoint(slug="two", seed=1).path]
    runs = [tmp_path / "one", tmp_path / "two"]
    for place, run in zip(made, runs, strict=True):
        assay.sweep(place, run=run, prompt=PROMPT)
    drawn = assay.report(made[0], out=tmp_path / "out", prompt=PROMPT)
    assert "<html" in (tmp_path / "out" / "report" / "index.html").read_text()
    assert drawn["page"].endswith("index.html")
    judged = assay.diff(before=runs[0], after=runs[1], report=tmp_path / "diff")
    assert judged == {**judged, **json.loads((tmp_path / "diff" / "verdict.json").read_text())}


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ({"run": "run", "rum": 1}, "--rum is no flag (did you mean 'run'?)"),
        ({"run": "run", "config": {"self_chek": 4}}, "self_check"),
        ({"prompt": "x"}, "--run is missing"),
        ({"prompt": "x", "run": None}, "--run is missing"),
        ({"run": "run", "prompt": {"best": "x"}}, "prompt={'best': 'x'}"),
        ({"run": "run", "config": ["seed"]}, "config=['seed']"),
        ({"run": "run", "print_config": True}, "print_config=True"),
        ({"run": "run", "multihost": True}, "multihost=True"),
    ],
)
def test_what_the_command_refuses_is_an_error(checkpoint, tmp_path, monkeypatch, how, line):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(assay.AssayError, match=re.escape(line)):
        assay.sweep(checkpoint().path, **how)
    assert not [*tmp_path.iterdir()]
