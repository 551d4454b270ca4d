import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def analyze(*flags):
    command = [sys.executable, "-m", "launch.analyze", *map(str, flags)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_command_writes_a_report_and_says_where(small_run, tmp_path):
    done = analyze(f"--run={small_run}", f"--report={tmp_path / 'report'}", "--config.top=12")
    assert done.returncode == 0, done.stderr
    page = tmp_path / "report" / "index.html"
    assert done.stdout.splitlines() == [f"report: {page}"]
    assert page.is_file()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--run={tmp}/nowhere"], "analyze: {tmp}/nowhere: not a run folder (no such folder)"),
        ([], "analyze: --run is missing; see --help"),
        (["--run={run}", "--config.top=0"], "analyze: analyze.top=0; allowed: integers >= 1"),
        (
            ["--run={run}", "--config.options.bing=nowhere.csv"],
            "analyze: analyze.options.bing='nowhere.csv': no such file",
        ),
        (
            ["--run={run}", "extra"],
            "analyze: argument 'extra'; allowed: flags only, as --name=value",
        ),
    ],
)
def test_bad_input_ends_with_one_line_and_writes_nothing(small_run, tmp_path, flags, message):
    values = {"tmp": tmp_path, "run": small_run}
    report = tmp_path / "report"
    done = analyze(*(flag.format(**values) for flag in flags), f"--report={report}")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == message.format(**values)
    assert "Traceback" not in done.stderr
    assert not report.exists()
