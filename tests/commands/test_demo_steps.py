"""What the demo needs; tests/demo runs it."""

import pytest

from demo import packages
from launch import demo

pytestmark = pytest.mark.slow


def test_packages_that_the_demo_lacks_are_one_line(tmp_path, monkeypatch, capfd):
    monkeypatch.setitem(packages.PACKAGES, "no_such_module", "no-such-package==0.1")
    monkeypatch.setattr(packages, "installer", lambda: ["false"])
    assert demo.main([f"--config.root={tmp_path}"]) == 2
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("demo: ") and "pip install --no-deps no-such-package==0.1" in last


def test_the_uv_that_started_the_demo_installs_where_none_is_on_the_path(monkeypatch):
    """`uvx` makes environments without pip."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("UV", "/opt/uv")
    assert packages.installer()[:3] == ["/opt/uv", "pip", "install"]
