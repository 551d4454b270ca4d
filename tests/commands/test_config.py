"""`--config` and its overrides, without a command behind them; `--help` lists every setting."""

import importlib
import json
import re

import pytest

from configs import prompts
from engine.errors import AssayError
from launch import search
from launch.__main__ import COMMANDS, main
from launch.common import scoring


@pytest.fixture
def search_settings(parsed):
    """Arguments -> the settings of a search under them."""
    return lambda *argv: parsed("search", *argv).config.to_dict()


@pytest.mark.parametrize(
    ("argv", "key", "value"),
    [
        ([], "steps", 500),
        (["--config.steps=7"], "steps", 7),
        (["--config.steps", "7"], "steps", 7),
        (["--config.specials"], "specials", True),
        (["--noconfig.ascii_only"], "ascii_only", False),
        (["--config.mesh.model=2"], "mesh", {"model": 2}),
        (["--config.steps=7", "--config=search:paper"], "steps", 7),
    ],
)
def test_an_override_sets_its_key(search_settings, argv, key, value):
    assert search_settings(*argv)[key] == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def get_config():\n    return 8\n", "no function get_config() that returns a dict"),
        ("steps: 8 candidates\n", "--config: invalid syntax (mine.py, line 1)"),
        ("get_config = lambda: {'mesh': {'modle': 2}}", "no key 'modle' (did you mean 'model'?)"),
        ("get_config = lambda: {'steps': 'many'}", "mine.py: "),
    ],
)
def test_a_file_that_gives_no_settings_is_refused(tmp_path, text, message):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(AssayError) as error:
        search.COMMAND.settings.read(str(tmp_path / "mine.py"))
    assert message in str(error.value)


def test_a_copied_file_gives_what_it_names_and_the_command_the_rest(search_settings, tmp_path):
    (tmp_path / "mine.py").write_text(
        "def get_config(size='1'):\n    return {'steps': int(size)}\n"
    )
    file = f"--config={tmp_path / 'mine.py'}"
    usual = search_settings()
    assert search_settings(f"{file}:9") == {**usual, "steps": 9}
    assert search_settings(file, "--config.topk=5") == {**usual, "steps": 1, "topk": 5}


def test_prompts_are_named_one_by_one_and_in_sets():
    chosen = scoring.chosen_prompts("elo,worst", ())
    assert [*chosen] == [*prompts.ELO, "worst"]
    assert [*scoring.chosen_prompts("paper", ())] == ["greatest", "best", "worst"]


WITH_SETTINGS = [name for name in COMMANDS if name not in ("models", "import_scores", "cache")]


@pytest.mark.parametrize("name", WITH_SETTINGS)
def test_help_says_what_each_setting_means(name, capsys):
    assert main([name, "--help"]) == 0
    listed = dict(re.findall(r"^  --config\.([\w.<>]+): (\S.*)$", capsys.readouterr().out, re.M))
    settings = importlib.import_module(f"launch.{name}").COMMAND.settings
    for key, value in settings.defaults().items():
        inner = [f"{key}.{field}" for field in value] if hasattr(value, "items") else [key]
        assert f"{key}.<key>" in listed or {*inner} <= {*listed}, key


@pytest.mark.parametrize("name", COMMANDS)
def test_the_first_screen_of_help_explains_the_flags_of_its_examples(name, capsys):
    assert main([name, "--help"]) == 0
    screen = "\n".join(capsys.readouterr().out.splitlines()[:24])
    examples = re.findall(rf"^  assay {name}\b(.*)$", screen, re.M)
    explained = re.findall(r"^  --(?:\[no\])?([\w.-]+): ", screen, re.M)
    assert examples and {*re.findall(r"--([\w.-]+)", " ".join(examples))} <= {*explained}


def test_with_json_an_error_is_an_object_too(command):
    done = command("verify", "--json", "--run=")
    assert done.code == 2 and len(done.out) == len(done.err) == 1
    printed = json.loads(done.out[0])
    assert done.err == [f"{printed['command']}: {printed['error']}"]
    assert command("verify", "--run=").out == []
