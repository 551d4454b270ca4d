import pytest

from tests.support import runs


@pytest.fixture
def small_run(tmp_path):
    return runs.small_run(tmp_path / "run")


def test_the_command_writes_a_report_and_says_where(command, small_run, tmp_path):
    report = tmp_path / "report"
    options = [f"--config.options.{key}=99" for key in ("permutations", "bootstraps")]
    done = command("analyze", f"--run={small_run}", f"--report={report}", *options)
    assert done.code == 0, done.err
    assert done.out == [f"report: {report / 'index.html'}"]
    assert (report / "index.html").is_file()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--run={tmp}/nowhere"], "analyze: {tmp}/nowhere: not a run folder (no such folder)"),
        ([], "analyze: --run is missing; allowed: run folders, comma-separated"),
        (["--run={run}", "--config.top=0"], "analyze: analyze.top=0; allowed: integers >= 1"),
        (
            ["--run={run}", "--config.options.bing=nowhere.csv"],
            "analyze: analyze.options.bing='nowhere.csv': no such file",
        ),
        (
            ["--run={run}", "--config.options.questions=nowhere.csv"],
            "analyze: analyze.options.questions='nowhere.csv': no such file",
        ),
        (
            ["--run={run}", "extra"],
            "analyze: argument 'extra'; allowed: flags only, as --name=value",
        ),
    ],
)
def test_bad_input_ends_with_one_line_and_writes_nothing(
    command, small_run, tmp_path, flags, message
):
    values = {"tmp": tmp_path, "run": small_run}
    report = tmp_path / "report"
    done = command("analyze", *(flag.format(**values) for flag in flags), f"--report={report}")
    assert done.code == 2
    assert done.err == [message.format(**values)]  # before any line of progress
    assert not report.exists()
