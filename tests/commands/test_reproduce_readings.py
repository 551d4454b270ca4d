"""`assay reproduce --readings`: which of the paper's conventions explains a difference."""

import json
import re
import shutil
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from analysis.published import data, run_values, tables
from analysis.published.comparison import Readings
from configs import known_models, reproduce
from launch.common import convention_runs, converting
from launch.common.convention_runs import ConventionRuns
from launch.reproduction import studies
from tests.support import runs
from tests.support.folders import files_of
from tests.support.killed import Killed, killed_after
from tests.support.reproduction import GEMMA, SKYWORK, write_items, write_models

pytestmark = pytest.mark.slow

SMALL = (
    "--config.check_identity=false",
    "--config.language_models=",
    "--config.searched=",
    "--config.prompts=greatest,best",
    "--config.self_check=2",
    "--config.permutations=99",
    "--config.bootstraps=99",
    "--config.dimensions=bos,mode",
)
CHANGES = ("bos single", "mode ids")
BELOW = "runs/paper/readings"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Folders of two models, and items with human ranks."""
    folder = write_models(tmp_path_factory.mktemp("models"))
    write_items(folder)
    return folder


def flags(root, files, *more):
    given = [f"--root={root}", f"--source-dir={files}", f"--models={GEMMA},{SKYWORK}"]
    return [*given, f"--elo={files / 'items.csv'}", *SMALL, *more]


@pytest.fixture(scope="module")
def swept(files, tmp_path_factory):
    """A root with the rewards in the paper's conventions and in ours."""
    from launch import reproduce

    root = tmp_path_factory.mktemp("swept") / "root"
    assert reproduce.main(flags(root, files, "--only=sweep,items", "--readings=none")) == 0
    return root


@pytest.fixture(scope="module", autouse=True)
def no_noise_floor():
    """Left out: its tests are those of `assay conventions`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConventionRuns, "noise_floor", lambda *given: [])
        yield


@pytest.fixture(scope="module")
def tried(files, swept, tmp_path_factory):
    """The same with every reading of both models; killed once, and gone on without a conversion."""
    from launch import reproduce

    root = tmp_path_factory.mktemp("tried") / "root"
    shutil.copytree(swept, root)
    arguments = flags(root, files, "--only=readings", "--readings=all")
    with pytest.MonkeyPatch.context() as patch:
        killed_after(patch, convention_runs, "sweep_rewards", 2)
        with pytest.raises(Killed):
            reproduce.main(arguments)
    assert files_of(root / BELOW, "*.parquet")
    assert not (root / "readings").exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(converting, "convert", None)
        assert reproduce.main(arguments) == 0
    return root


@pytest.fixture
def root(swept, tmp_path):
    return shutil.copytree(swept, tmp_path / "root")


def call_on(root):
    """What the analyses take of a call."""
    config = reproduce.get_config()
    config.permutations = config.bootstraps = 99
    runs = root / "runs"
    return SimpleNamespace(run=lambda reading: str(runs / reading), config=config, elo=None)


@pytest.fixture(scope="module")
def readings(tried):
    """The tables of the paper's reading and of those that change one convention."""
    call, published = call_on(tried), data.read()
    study = studies.study_of(call, "paper", published)
    nothing = tables.own_of("our conventions", None, studies.infos())
    changes = studies.single_changes(call, published)
    return Readings(
        paper=tables.own_of("paper", study, studies.infos()), ours=nothing, singles=changes
    )


def test_the_readings_change_one_convention_each(readings):
    assert [one.name for one in readings.singles] == [*CHANGES]
    prompts = {"greatest", "best", "elo_greatest"}
    assert readings.singles[0].tried == {(m, p) for m in (GEMMA, SKYWORK) for p in prompts}


def written(published, folder):
    published.write(folder)
    return f"--published={folder}"


def test_only_models_and_prompts_whose_values_differ_are_tried(
    command, files, root, tried, readings, tmp_path
):
    """A value of R-Gem-2B under "greatest" is changed, those of the other model are met.

    What is computed has the bytes of the call that was killed.
    """
    published = run_values.replaced(data.read(), readings.paper)
    first = (pl.col("exhibit") == "table_a6") & (pl.col("model") == "R-Gem-2B")
    changed = pl.when(first & (pl.col("rank") == 1)).then(pl.lit("?")).otherwise("token")
    tokens = published.tokens.with_columns(token=changed)
    one = data.Published(models=published.models, numbers=published.numbers, tokens=tokens)
    given = written(one, tmp_path / "one")
    found = command("reproduce", *flags(root, files, "--only=readings", given)).fine()
    assert "S-Gem-27B: no published value of it differs" in found.err
    below, all_of_them = root / BELOW, files_of(tried / BELOW, "*.parquet")
    scored = {path.parts[-3:-1] for path in below.rglob("scores/*/*/*.parquet")}
    assert scored == {(f"model={GEMMA}", "prompt=greatest")}
    assert files_of(below, "*.parquet").items() <= all_of_them.items()
    assert json.loads((root / f"readings/{SKYWORK}.json").read_text())["prompts"] == []
    again = command("reproduce", *flags(root, files, "--only=readings", given))
    assert sum(line.endswith("complete already") for line in again.err) == 2
    assert not any("reading 1/" in line for line in again.err)


@pytest.mark.parametrize("change", CHANGES)
def test_the_page_names_the_reading_that_gives_the_published_values(
    command, files, tried, readings, tmp_path, monkeypatch, change
):
    """It gives all that differ, and no other one does."""
    monkeypatch.setattr(tables, "draw", lambda *given: {})
    (source,) = [one for one in readings.singles if one.name == change]
    given = written(run_values.replaced(data.read(), source), tmp_path / "published")
    command("reproduce", *flags(tried, files, "--only=page", given)).fine()
    text = (tried / "paper.html").read_text(encoding="utf-8")
    assert text.count(f"the same with {change}") > 10
    row = r"<td>(R-Gem-2B|S-Gem-27B)?</td><td>([a-z ]+)</td><td[^>]*>(\d+) of (\d+)"
    rows = re.findall(row, text)
    assert [(model, name) for model, name, *_ in rows if model] == [
        (known_models.KNOWN[slug].nickname, change) for slug in (SKYWORK, GEMMA)
    ]
    assert all((met == of) == (name == change) for _, name, met, of in rows)


def test_readings_in_another_dtype_than_that_of_the_run_are_refused(command, files, tried):
    given = flags(tried, files, "--only=readings", "--readings=all", "--config.dtype=bfloat16")
    said = "was begun with dtype='float32', not 'bfloat16'"
    assert said in command("reproduce", *given).refusal()


def test_rewards_are_rounded_in_the_papers_conventions_alone(tmp_path):
    rounded, kept = GEMMA, "qrm-gemma-2-27b"
    rewards = [1.0001, -2.0003, 1.5, -1.503]
    for reading in ("paper", "ours"):
        scores = {(slug, "greatest"): rewards for slug in (rounded, kept)}
        vocabulary = {"v": ["love", "hate", "good", "bad"]}
        models = {rounded: "v", kept: "v"}
        runs.write_run(tmp_path / "runs" / reading, vocabulary, models, scores)
    paper, ours = (studies.run_of(call_on(tmp_path), name) for name in ("paper", "ours"))
    exact = np.float32(rewards).tolist()
    assert paper.rewards(rounded, "greatest")[1].tolist() == [1.0, -2.0, 1.5, -1.5]
    assert paper.rewards(kept, "greatest")[1].tolist() == exact
    assert ours.rewards(rounded, "greatest")[1].tolist() == exact
