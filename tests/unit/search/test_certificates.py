"""Certificates in run folders: what they write, how they go on, what they refuse."""

import dataclasses
import json

import polars as pl
import pytest
from etils import epath

import analysis
from engine import api
from engine.errors import AssayError
from engine.planning import admission
from engine.runs import provenance, schema
from engine.runs.manifest import Manifest
from engine.runs.verify import rebuild, verify
from engine.search import certificates
from engine.search.certificate import Ascent
from engine.search.run_folder import search_sequences
from tests.support.killed import Killed, killed_after
from tests.support.searches import make_mesh, settings

PROMPT = {"who": "Who?"}
PROMPTS = {"who": "Who?", "what": "What is the greatest thing?"}


def search(run, models, prompts=PROMPT, *, joint=False, **changes):
    """A search that compiles little: one token, repeated."""
    own = {"method": "repeat", "candidates": 320, "certify": 40, "certify_step": 64} | changes
    return search_sequences(models, prompts, str(run), settings(**own), make_mesh(), joint=joint)


def file_of(run, direction="max", method="repeat-ascent", prompt="who"):
    return run / schema.sequences_path("tiny", prompt, direction, method, 0)


def record(run, file):
    results = json.loads((run / "manifest.json").read_text())["results"]
    return results[str(file.relative_to(run))]


def problems(run):
    return verify(epath.Path(run)).problems


def test_a_certificate_is_written_beside_its_search(checkpoint, tmp_path):
    run = tmp_path / "run"
    found = search(run, [checkpoint()], direction="both", round_trip=True)
    assert [(f.direction, f.certificate is None) for f in found] == [
        ("max", True),
        ("min", True),
        ("max", False),
        ("min", False),
    ]
    for one in found[2:]:
        frame, said = pl.read_parquet(file_of(run, one.direction)), one.certificate
        assert dict(frame.schema) == schema.SEQUENCE_COLUMNS
        assert frame["step"].to_list() == list(range(1, said["sweeps"] + 1))
        assert frame["round_trips"].all()
        last = frame.row(-1, named=True)
        assert (last["reward"], last["text"]) == (one.reward, one.text)
        searched = pl.read_parquet(file_of(run, one.direction, "repeat"))
        assert said["searched_ids"] == searched["token_ids"][-1].to_list()
        assert said["searched_reward"] == searched["reward"][-1]
        assert frame["flops"][0] > searched["flops"][-1]
        entry = record(run, file_of(run, one.direction))
        assert (entry["complete"], entry["certificate"]) == (True, said)
        assert entry["self_check"]["max_abs_difference"] < 1e-4
    assert all(f.certificate["certified"] for f in found[2:])
    assert not problems(run)
    assert not list(run.rglob("*.json")) or [p.name for p in run.rglob("*.json")] == [
        "manifest.json"
    ]
    again = search(run, [checkpoint()], direction="both", round_trip=True)
    assert again == [dataclasses.replace(one, new=False) for one in found]
    table = analysis.sequence_certificates(analysis.load(run))
    assert table["text"].to_list() == [f.text for f in found[2:]]
    assert table["method"].unique().to_list() == ["repeat"]
    before = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").unlink()
    assert not rebuild(epath.Path(run))
    after = json.loads((run / "manifest.json").read_text())
    assert {p: e.get("certificate") for p, e in before["results"].items()} == {
        p: e.get("certificate") for p, e in after["results"].items()
    }


def killed_after_sweeps(patch, sweeps):
    whole = Ascent.take

    def take(self, sweep):
        if len(self.sweeps) == sweeps:
            raise Killed
        whole(self, sweep)

    patch.setattr(certificates, "_SAVE_S", -1.0)
    patch.setattr(Ascent, "take", take)


def test_a_killed_certificate_goes_on_to_the_same_bytes(checkpoint, tmp_path, monkeypatch):
    whole, run = tmp_path / "whole", tmp_path / "run"
    search(whole, [checkpoint()], direction="min")
    for sweeps in (2, 4):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            killed_after_sweeps(patch, sweeps)
            search(run, [checkpoint()], direction="min")
        assert len(list(run.rglob("repeat-ascent-seed0-min.json"))) == 1
    with monkeypatch.context() as patch:  # between file and manifest
        killed_after(patch, Manifest, "record_part", 0)
        with pytest.raises(Killed):
            search(run, [checkpoint()], direction="min")
    assert file_of(run, "min").exists()
    assert len(list(run.rglob("*-min.json"))) == 1
    search(run, [checkpoint()], direction="min")
    assert not list(run.rglob("*-min.json"))
    assert file_of(run, "min").read_bytes() == file_of(whole, "min").read_bytes()
    search(run, [checkpoint()], direction="min", certify=41)  # nothing is left to do
    assert record(run, file_of(run, "min"))["complete"]


def test_a_larger_budget_goes_on_where_a_smaller_one_ended(checkpoint, tmp_path):
    whole, run = tmp_path / "whole", tmp_path / "run"
    search(whole, [checkpoint()], direction="min")
    assert len(search(run, [checkpoint()], direction="min", certify=0)) == 1
    (_, few) = search(run, [checkpoint()], direction="min", certify=3)
    assert not few.certificate["certified"]
    assert few.certificate["sweeps"] == 3
    assert not problems(run)
    (searched, more) = search(run, [checkpoint()], direction="min")
    assert (searched.new, more.new, more.certificate["certified"]) == (False, True, True)
    assert file_of(run, "min").read_bytes() == file_of(whole, "min").read_bytes()
    assert not problems(run)
    (_, known) = search(run, [checkpoint()], direction="min", certify=3)
    assert not known.new
    with pytest.raises(AssayError, match=r"was begun with step_size=64, not 32; use another run"):
        search(run, [checkpoint()], direction="min", certify_step=32)


def raised(patch):
    """The next version of the code that decides the last bits on a CPU."""
    patch.setitem(provenance.NUMERICS, "cpu", provenance.NUMERICS["cpu"] + 1)


def test_a_certificate_names_the_numerics_it_was_computed_with(checkpoint, tmp_path, monkeypatch):
    run, own = tmp_path / "run", {"direction": "min"}
    old = provenance.NUMERICS["cpu"]
    search(run, [checkpoint()], certify=0, **own)
    with monkeypatch.context() as patch:
        raised(patch)
        search(run, [checkpoint()], certify=3, **own)
    numerics = {
        method: record(run, file_of(run, "min", method))["fingerprint"]["numerics"]
        for method in ("repeat", "repeat-ascent")
    }
    assert numerics == {"repeat": old, "repeat-ascent": old + 1}
    (_, known) = search(run, [checkpoint()], certify=3, **own)  # nothing is added to it
    assert not known.new
    with pytest.raises(AssayError, match=rf"begun with numerics={old + 1}, not {old}; use another"):
        search(run, [checkpoint()], certify=40, **own)
    with monkeypatch.context() as patch:
        raised(patch)
        assert search(run, [checkpoint()], certify=40, **own)[1].new


def test_a_killed_certificate_does_not_go_on_with_other_numerics(checkpoint, tmp_path, monkeypatch):
    run, old = tmp_path / "run", provenance.NUMERICS["cpu"]
    search(run, [checkpoint()], certify=0)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        killed_after_sweeps(patch, 2)
        search(run, [checkpoint()])
    with monkeypatch.context() as patch:
        raised(patch)
        with pytest.raises(AssayError, match=r"-max\.json: an unfinished certificate of another"):
            search(run, [checkpoint()])
    search(run, [checkpoint()])
    assert record(run, file_of(run))["fingerprint"]["numerics"] == old


def test_a_certificate_that_does_not_fit_is_refused(checkpoint, tmp_path, monkeypatch):
    run = tmp_path / "run"
    search(run, [checkpoint()], certify=0)
    before = sorted(run.rglob("*"))
    monkeypatch.setattr(admission, "free_memory", lambda: 1 << 20)
    with pytest.raises(AssayError, match=r"^tiny: needs .* are free; .* would fit; --config.check"):
        search(run, [checkpoint()])
    assert sorted(run.rglob("*")) == before


def test_a_certificate_of_another_search_is_refused(checkpoint, tmp_path, monkeypatch):
    run = tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(Killed):
        killed_after_sweeps(patch, 2)
        search(run, [checkpoint()])
    (state,) = run.rglob("*-max.json")
    saved = json.loads(state.read_text())
    saved["certificate"]["searched_ids"][0] += 1
    state.write_text(json.dumps(saved))
    with pytest.raises(AssayError, match=r"-max\.json: an unfinished certificate of another sear"):
        search(run, [checkpoint()])
    state.write_text("{")
    with pytest.raises(AssayError, match=r"-max\.json: damaged; remove it and run again"):
        search(run, [checkpoint()])


@pytest.mark.slow
def test_the_mean_of_several_prompts_is_certified(checkpoint, tmp_path):
    _, found = search(tmp_path / "run", [checkpoint()], PROMPTS, joint=True, round_trip=True)
    assert found.prompt_id == "mean.who.what"
    assert found.certificate["certified"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"certify": -1}, "certify=-1; allowed: integers >= 0"),
        ({"certify": True}, "certify=True; allowed: integers >= 0"),
        ({"certify": 2}, "certify=2; allowed: 0, or at least 3 sweeps, one for each free position"),
        ({"certify_step": -1}, "certify_step=-1; allowed: integers >= 0"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(checkpoint, tmp_path, changes, message):
    with pytest.raises(AssayError, match=rf"^{message}"):
        search(tmp_path / "run", [checkpoint()], **changes)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_api_certifies_a_reply_of_any_origin(checkpoint):
    model = api.load(checkpoint().path, mesh=make_mesh(), step_size=64)
    few = {"ascii_only": False, "round_trip": True}
    said = model.certify("Who?", "war", sweeps=30, **few)
    last = said.steps.row(-1, named=True)
    assert said.certified
    assert said.ascent_steps > 0
    assert model.score("Who?", last["text"])[0] == pytest.approx(last["reward"], rel=1e-4)
    again = model.certify("Who?", last["token_ids"], **few)
    assert (again.certified, again.ascent_steps) == (True, 0)
    assert again.best_gain == pytest.approx(said.best_gain, abs=2e-5)
    own = {"method": "repeat", "candidates": 320, "length": len(last["token_ids"]), "topk": 16}
    found = model.search("Who?", certify=30, **own, **few)
    assert found["step"].is_unique().all()
    assert (found["reward"].diff().drop_nulls() >= 0).all()
    with pytest.raises(
        AssayError, match=r"^reply: the filters leave out its token \d+ at position"
    ):
        model.certify("Who?", last["token_ids"], deny=(last["text"][0],), **few)


@pytest.mark.parametrize(
    ("reply", "own", "message"),
    [
        ([-1, 5], {}, r"reply: token id -1; allowed: ids of tokens, 0 to \d+"),
        (
            [10**12, 5],
            {"fixed": (0,)},
            r"reply: token id 1000000000000; allowed: ids of tokens",
        ),
        (["a"], {}, r"reply: token id 'a'; allowed: ids of tokens, 0 to "),
        ([], {}, "reply: it has no token; allowed: at least one"),
        (5, {}, "reply=5; allowed: a text, or token ids"),
        ("war", {"sweeps": 0}, "sweeps=0; allowed: integers >= 1"),
        ("war", {"certify": 3}, "certify=3: sweeps says it here"),
        ("war", {"length": 7}, "length=7: the reply says it here"),
    ],
)
def test_the_api_refuses_what_cannot_be_certified(checkpoint, reply, own, message):
    model = api.load(checkpoint().path, mesh=make_mesh(), step_size=64)
    with pytest.raises(AssayError, match=rf"^{message}"):
        model.certify("Who?", reply, **own)


def test_ids_that_their_text_does_not_give_are_certified_with_fixed_positions(checkpoint):
    template = checkpoint().template
    ids = [template.reply_ids(letter)[0] for letter in "war"]
    assert list(template.reply_ids("war")) != ids
    model = api.load(checkpoint().path, mesh=make_mesh(), step_size=64)
    few = {"ascii_only": False, "round_trip": False, "allow": ("a", "r", "w")}
    said = model.certify("Who?", ids, fixed=(0, 1), sweeps=1, **few)
    assert said.sweeps == 1
    assert said.steps["token_ids"][-1].to_list()[:2] == ids[:2]
    with pytest.raises(AssayError, match=r"^certify=1; allowed: 0, or at least 2 sweeps"):
        model.certify("Who?", ids, fixed=(0,), sweeps=1, **few)
