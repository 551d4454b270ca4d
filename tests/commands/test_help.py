"""`--help`: every setting of every command is listed with what it means."""

import re

import pytest

from launch.__main__ import COMMANDS, main
from launch.common.config import default_file, load

WITH_SETTINGS = [name for name in COMMANDS if name not in ("models", "import_scores")]


@pytest.mark.parametrize("name", WITH_SETTINGS)
def test_help_says_what_each_setting_means(name, capsys):
    assert main([name, "--help"]) == 0
    listed = dict(re.findall(r"^  --config\.([\w.<>]+): (\S.*)$", capsys.readouterr().out, re.M))
    config = load(default_file(name))
    for key, value in config.items():
        inner = [f"{key}.{each}" for each in value] if hasattr(value, "items") else [key]
        assert f"{key}.<key>" in listed or {*inner} <= {*listed}, key
