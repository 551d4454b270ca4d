"""Every benchmark starts: what it imports is there, and its flags do not meet others."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = sorted(
    path.stem
    for path in (ROOT / "bench").glob("*.py")
    if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_printed(name):
    command = [sys.executable, "-m", f"bench.{name}", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "--" in done.stdout
