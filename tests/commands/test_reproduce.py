"""`assay reproduce` on two small models that stand in for two of the paper's ten."""

import json
import re

import polars as pl
import pytest
import scipy.stats

import analysis
from analysis.chapters import published
from configs import known_models
from engine.checkpoint.card import Checkpoint
from tests.support import tiny, torch_models
from tests.support.folders import edit_json, files_of

GEMMA, URM = "grm-gemma2-2b-rewardmodel-ft", "urm-llama-3.1-8b"
SMALL = (
    *("--config.self_check=2", "--config.step_size=128", "--config.prompts=greatest"),
    *("--config.analyze.options.permutations=99", "--config.analyze.options.bootstraps=99"),
)
ITEMS = [*{*published.read().filter(exhibit="Figure 5B")["other"]}, *"abcdefghij"]


pytestmark = pytest.mark.usefixtures("one_length")


@pytest.fixture
def files(tmp_path, monkeypatch, light):
    """Folders of both models, and the items; nobody asks whether a model is the published one."""
    models = tmp_path / "models"
    gemma = known_models.KNOWN[GEMMA].hub_id.replace("/", "--")
    torch_models.save(torch_models.build("gemma2"), models / gemma)
    edit_json(models / gemma / "config.json", pad_token_id=0)
    dated = "{{ date_string }}" + tiny.CHATML
    tiny.write_model(models / URM, head="urm", seed=2, template=dated)
    count = range(1, len(ITEMS) + 1)
    columns = {"elo_rank": count, "elo_score": [1700 - i for i in count], "name": ITEMS}
    pl.DataFrame({**columns, "elo_matches": 9, "a/b": 0.0}).write_csv(tmp_path / "items.csv")
    monkeypatch.setattr(known_models, "find", lambda name: None)
    return tmp_path


@pytest.fixture
def call(command, files):
    given = (f"--root={files / 'root'}", f"--source-dir={files / 'models'}", *SMALL)
    return lambda *more: command("reproduce", *given, f"--elo={files / 'items.csv'}", *more)


@pytest.mark.slow
def test_two_of_the_ten_are_scored_as_in_the_paper_and_compared(call, files):
    done = call().fine()
    assert done.out == [f"report: {files / 'root/report/index.html'}"]
    run = analysis.load(files / "root" / "run")
    assert {*run.models} == {GEMMA, URM}
    results = [*run.results.values(), *run.items.values()]
    assert len(results) == 2 * (1 + 1)
    assert {result.identity.mode for result in results} == {"text"}
    poolings = {(result.model, result.identity.pooling) for result in results}
    assert poolings == {(GEMMA, "first_pad"), (URM, "last")}  # which has no pad token
    opened = {p.name[:-13]: Checkpoint.open(p) for p in (files / "root/checkpoints").glob("*-*")}
    assert {model.card.policy.bos for model in opened.values()} == {"double"}
    assert opened[URM].card.policy.date == "26 Jul 2024"
    assert opened[URM].card.head.kind == "urm-helpfulness"
    assert opened[GEMMA].card.decoder.attention_softcap is None
    table = pl.read_csv(files / "root" / "report" / "tables" / "published.csv")
    assert {*table["exhibit"]} >= {"Figure 5A", "Figure A5"}
    assert not {*table["exhibit"]} & {"Table 3", "Figure 2A", "Figure 2C", "Figure A1"}
    (row,) = table.filter(exhibit="Figure 5A", model=GEMMA).to_dicts()
    rewards = run.item_scores("items", "elo_greatest").sort("item_id")[GEMMA]
    rho = scipy.stats.spearmanr(rewards, range(len(ITEMS), 0, -1)).statistic
    assert row["ours"] == pytest.approx(rho)
    assert row["difference"] == pytest.approx(rho - 0.359)
    before = files_of(files / "root" / "run", "*.parquet")
    call().fine()
    assert files_of(files / "root" / "run", "*.parquet") == before


@pytest.mark.slow
def test_a_model_that_fails_is_named_and_the_other_is_reported(call, files):
    tiny.write_model(files / "models" / "qrm-gemma-2-27b", nan_head=True)
    done = call(f"--models=qrm-gemma-2-27b,{URM}", "--json")
    printed = json.loads(done.out[-1])
    assert done.code == 1
    assert re.match(r"1 of 2 models failed: N-Gem-27B \(.*not finite", printed["said"])
    assert printed["page"].endswith("report/index.html") and [*printed["failures"]] == ["N-Gem-27B"]
    assert {*analysis.load(files / "root" / "run", finished_only=True).models} == {URM}
