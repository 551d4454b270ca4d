"""What the pages say of reports: tables have the columns listed."""

import collections
import re
from pathlib import Path

import polars as pl
import pytest

import analysis
from analysis.report import drawing, write_report
from configs import analyze
from launch.__main__ import main
from launch.common.reporting import settings_of

pytestmark = pytest.mark.slow  # a report of every chapter
DOCS = Path(__file__).parents[2] / "docs"
WORDS = [f" {a}o{b}" for a in "abcdefgh" for b in "lmnrst"]
TOKENS = [token for word in WORDS for token in (word, word.title())]


def _import(layout: str, frame: pl.DataFrame, source: Path, run: Path, *flags: str) -> None:
    frame.write_csv(source)
    where = [f"--source={source}", f"--layout={layout}", f"--run={run}"]
    assert main(["import_scores", *where, *flags]) == 0


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Two models that rate each capitalised word just above the same word in lower case."""
    folder = tmp_path_factory.mktemp("guide")
    run, named = folder / "run", {"token_id": range(len(TOKENS)), "token_name": TOKENS}
    rewards = [index + 1.5 * (token != token.lower()) for index, token in enumerate(TOKENS)]
    worst = [-reward + index % 7 for index, reward in enumerate(rewards)]
    columns = {**named, "token_decoded": TOKENS, "greatest": rewards, "worst": worst}
    for model in ("one", "two"):
        _import("tokens", pl.DataFrame(columns), folder / f"{model}.csv", run)
    logprobs = {
        prompt: [-30.0 - x / 9 for x in columns[prompt]] for prompt in ("greatest", "worst")
    }
    frame = pl.DataFrame({**columns, **logprobs})
    _import("tokens", frame, folder / "language.csv", run, "--values=logprobs")
    places = range(1, 25)
    elo = {
        "elo_rank": places,
        "elo_score": places[::-1],
        "name": WORDS[:24],
        "elo_matches": [50] * 24,
    }
    items = pl.DataFrame({**elo, "one": rewards[:24], "two": worst[:24]})
    _import("elo", items, folder / "items.csv", run, "--prompt=elo_greatest")
    config = analyze.get_config()
    config.options.shared_ends = True
    settings = settings_of(config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "draw", lambda *_: collections.defaultdict(str))
        write_report(analysis.load(run), folder / "report", {}, settings)
    return folder / "report"


def _contract() -> dict[re.Pattern, list[str]]:
    """File name -> columns, as docs/report-tables.md lists them; none of a square table.

    Files with a name of their own come before those that are named after a prompt.
    """
    found = {}
    for line in (DOCS / "report-tables.md").read_text().splitlines():
        if named := re.match(r"\| (\S+\.csv) \| (.*) \|$", line):
            name = re.sub(r"\\<\w+\\>", "[a-z0-9._-]+", named[1].replace(".csv", r"\.csv"))
            plain = re.sub(r" ?\([^()]*\)", "", named[2])
            found[re.compile(name)] = [] if "square" in plain else plain.split(", ")
    return dict(sorted(found.items(), key=lambda entry: "[" in entry[0].pattern))


def test_every_table_of_a_report_has_the_columns_that_the_pages_list(report):
    files = sorted((report / "tables").iterdir())
    assert len(files) > 20
    assert {"shared_sum.csv", "framing_logprobs_sum.csv"} <= {path.name for path in files}
    for path in files:
        known = [columns for name, columns in _contract().items() if name.fullmatch(path.name)]
        listed = known[:1]
        columns = pl.read_csv(path).columns
        if path.stem == "shared_vocabulary":
            assert columns == ["token", "one", "two"]
        elif listed == [[]]:
            people = ["human"] if path.stem.startswith("humans_kendall") else []
            assert columns == ["model", *people, "one", "two"]
        else:
            assert listed == [columns], path.name
