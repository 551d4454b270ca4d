"""`--config` and its overrides, without a command behind them; `--help` lists every setting."""

import json
import re

import pytest

from engine.errors import AssayError
from launch.__main__ import COMMANDS, main
from launch.common import command, config


@pytest.fixture
def search_settings():
    """Arguments -> the settings of configs/search.py under them."""

    def read(*argv) -> dict:
        found = []

        def body(given):
            found.append(given.config.to_dict())
            return "read"

        assert command.Command("search", body, None).main(argv) == 0
        return found[0]

    return read


@pytest.mark.parametrize(
    ("argv", "key", "value"),
    [
        ([], "steps", 500),
        (["--config.steps=7"], "steps", 7),
        (["--config.steps", "7"], "steps", 7),
        (["--config.joint"], "joint", True),
        (["--noconfig.ascii_only"], "ascii_only", False),
        (["--config.mesh.model=2"], "mesh", {"model": 2}),
        (["--config.steps=7", f"--config={config.default_file('search')}:paper"], "steps", 7),
    ],
)
def test_an_override_sets_its_key(search_settings, argv, key, value):
    assert search_settings(*argv)[key] == value


def test_two_calls_share_no_settings(search_settings):
    assert search_settings("--config.steps=7")["steps"] == 7
    assert search_settings()["steps"] == 500


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "def get_config():\n    return {}\n",
            "no function get_config() that returns a ConfigDict",
        ),
        ("steps: 8 candidates\n", "--config: invalid syntax (mine.py, line 1)"),
    ],
)
def test_a_file_that_makes_no_config_is_refused(tmp_path, text, message):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(AssayError) as error:
        config.load(str(tmp_path / "mine.py"))
    assert message in str(error.value)


WITH_SETTINGS = [name for name in COMMANDS if name not in ("models", "import_scores", "cache")]


@pytest.mark.parametrize("name", WITH_SETTINGS)
def test_help_says_what_each_setting_means(name, capsys):
    assert main([name, "--help"]) == 0
    listed = dict(re.findall(r"^  --config\.([\w.<>]+): (\S.*)$", capsys.readouterr().out, re.M))
    settings = config.load(config.default_file(name))
    for key, value in settings.items():
        inner = [f"{key}.{each}" for each in value] if hasattr(value, "items") else [key]
        assert f"{key}.<key>" in listed or {*inner} <= {*listed}, key


def test_with_json_an_error_is_an_object_too(command):
    done = command("verify", "--json", "--run=")
    assert done.code == 2 and len(done.out) == len(done.err) == 1
    said = json.loads(done.out[0])
    assert done.err == [f"{said['command']}: {said['error']}"]
    assert command("verify", "--run=").out == []
