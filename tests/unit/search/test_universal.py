"""Universal searches: against brute force over all judges, and their files."""

import dataclasses
import itertools
import json

import numpy as np
import polars as pl
import pytest
from etils import epath

import analysis
import engine
from configs import search as search_config
from engine import api
from engine.errors import AssayError
from engine.planning import admission
from engine.runs import schema
from engine.runs.manifest import Manifest
from engine.runs.verify import verify
from engine.search import jobs, universal, universal_step
from engine.search import trace as traces
from engine.search.drivers import step_flops
from engine.search.run_folder import score_elsewhere
from engine.sweep import rescore
from launch.common import searching
from tests.support.killed import Killed, killed_after
from tests.support.searches import make_mesh, problem, scorer, settings
from tests.support.universal import ALLOW, FEW, PROMPTS, judged, search


@pytest.fixture
def models(checkpoint):
    return [checkpoint(), checkpoint("other", head_seed=1)]


@pytest.mark.parametrize("rule", universal.RULES)
@pytest.mark.parametrize("direction", ["max", "min"])
def test_the_best_of_all_pairs_is_found(models, tmp_path, rule, direction):
    found = search(tmp_path / "run", models, rule=rule, direction=direction, steps=60, **FEW)
    tokens = [models[0].template.reply_ids(letter)[0] for letter in ALLOW]
    pairs = list(itertools.product(tokens, repeat=2))
    sign = 1 if direction == "max" else -1
    standardised = sign * judged(models, found[0], pairs)
    every = standardised.mean(0) if rule == "mean" else standardised.min(0)
    assert found[0].universal["objective"] == pytest.approx(sign * every.max(), abs=1e-4)
    best = models[0].template.reply_ids(found[0].text)
    assert tuple(best) == pairs[int(np.argmax(every))]


@pytest.mark.slow
def test_judges_are_standardised_by_their_single_tokens(models, tmp_path):
    (found, *_) = search(tmp_path / "run", models[:1], steps=1)
    for _, prompt, mean, sd in found.universal["judges"]:
        split = models[0].template.split(PROMPTS[prompt])
        single = [
            [*split.prefix, i, *split.suffix] for i in np.flatnonzero(problem(models[0]).allowed)
        ]
        rewards = scorer(models[0]).plain_rewards(single)[0]
        # All tokens that the filters allow, as there are fewer than the sample holds.
        assert mean == pytest.approx(rewards.mean(), abs=1e-4)
        assert sd == pytest.approx(rewards.std(), abs=1e-4)


@pytest.mark.parametrize(("rule", "weights"), [("mean", [0.5, 0.5]), ("minimum", [0.0, 1.0])])
def test_the_gradient_is_that_of_the_objective(rule, weights):
    host = universal_step._between(make_mesh(), settings().of_compiled_step(), rule)
    rng = np.random.default_rng(0)
    rewards = [np.float32([5.0]), np.float32([1.0])]  # standardised: 2 and -1
    slopes = [rng.normal(size=(1, 3, 7)).astype(np.float32) for _ in rewards]
    means, sds = np.float32([1.0, 4.0]), np.float32([2.0, 3.0])
    value, slope = host.join(rewards, slopes, np.float32([1.0]), means, sds)
    expected = sum(w * s / sd for w, s, sd in zip(weights, slopes, sds, strict=True))
    np.testing.assert_allclose(slope, expected, rtol=1e-6)
    assert value.item() == pytest.approx(0.5 if rule == "mean" else -1.0)


@pytest.mark.slow
def test_a_gradient_climbs(models, tmp_path):
    found = search(
        tmp_path / "run", models, method="gcg", direction="both", steps=6, round_trip=True
    )
    high, low = found[0].universal["objective"], found[-1].universal["objective"]
    assert high > low
    rows = [pl.read_parquet(f)["token_ids"].to_list() for f in (tmp_path / "run").rglob("*max/*")]
    climb = judged(models, found[0], rows[0]).mean(0)
    assert (np.diff(climb) >= -1e-5).all()
    assert climb[-1] == pytest.approx(high, abs=1e-4)


@pytest.mark.slow
def test_each_judge_has_a_file_with_its_own_rewards(models, tmp_path):
    run = tmp_path / "run"
    found = search(run, models, direction="both", round_trip=True)
    files = sorted((run / "sequences").rglob("*.parquet"))
    assert len(files) == len(found) == 8
    for one in found:
        (file,) = (
            f
            for f in files
            if f"model={one.model}/prompt={one.prompt_id}/direction={one.direction}" in str(f)
        )
        frame = pl.read_parquet(file)
        assert dict(frame.schema) == schema.SEQUENCE_COLUMNS
        last = frame.row(-1, named=True)
        assert (last["reward"], last["text"]) == (one.reward, one.text)
        model = next(m for m in models if m.card.slug == one.model)
        split = model.template.split(PROMPTS[one.prompt_id])
        whole = [*split.prefix, *last["token_ids"], *split.suffix]
        assert scorer(model).plain_rewards([whole])[0, 0] == pytest.approx(one.reward, rel=1e-4)
        assert model.template.sequences(split.prompt, [one.text])[0] == whole
    assert len({f.text for f in found if f.direction == "max"}) == 1
    again = search(run, models, direction="both", round_trip=True)
    assert again == [dataclasses.replace(one, new=False) for one in found]
    assert not verify(epath.Path(run)).problems
    content = json.loads((run / "manifest.json").read_text())
    paths = rescore.whole(content, models)
    outcomes = rescore.rescore(epath.Path(run), content, models, make_mesh(), paths, rows=2, seed=0)
    assert len(paths) == 8
    assert all(isinstance(outcome, dict) for _, outcome in outcomes)


@pytest.mark.slow
def test_every_model_scores_it_under_every_prompt(models, tmp_path):
    run = tmp_path / "run"
    found = search(run, models, steps=1)
    texts = [f.text for f in found]
    score_elsewhere(models, PROMPTS, str(run), texts, settings(), make_mesh())
    loaded = analysis.load(run)
    matrix = analysis.transfer_matrix(loaded, analysis.sequences_table(loaded))
    assert matrix.select("target", "prompt").rows() == [
        (model, prompt) for model in ("other", "tiny") for prompt in ("what", "who")
    ]


@pytest.mark.slow
def test_the_api_finds_what_the_command_finds(models, stranger, tmp_path):
    own = {"method": "mutate", "steps": 4, "length": 3, "candidates": 12, "topk": 16}
    own |= {"round_trip": False, "ascii_only": False, "restarts": 2, "buffer": 3, "every": 2}
    own |= {"replace_first": 2, "spread": 1.0}
    loaded = [api.load(model.path, mesh=make_mesh(), step_size=16) for model in models]
    frame = engine.search_together(loaded, list(PROMPTS.values()), rule="minimum", **own)
    found = search(tmp_path / "run", models, rule="minimum")
    assert frame["objective"][-1] == pytest.approx(found[0].universal["objective"], abs=1e-5)
    assert frame["text"][-1] == found[0].text
    other = api.load(stranger.path, mesh=make_mesh(), step_size=16)
    frame = engine.search_together([*loaded, other], list(PROMPTS.values()), **own)
    found = search(tmp_path / "other", [*models, stranger])
    assert frame["objective"][-1] == pytest.approx(found[0].universal["objective"], abs=1e-5)
    with pytest.raises(AssayError, match=r"^universal='mean' with one model and one prompt"):
        engine.search_together(loaded[:1], ["Who?"])
    with pytest.raises(AssayError, match=r"^universal='mean' with one model and one prompt"):
        engine.search_together(loaded[0], "Who?")  # one model, one prompt: not four letters


def test_a_killed_search_goes_on_to_the_same_bytes(models, stranger, tmp_path, monkeypatch):
    models = [*models, stranger]
    whole, run = tmp_path / "whole", tmp_path / "run"
    search(whole, models, steps=6)
    save = traces.save

    def killed(*arguments):
        save(*arguments)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(traces, "save", killed)
        search(run, models, steps=6)
    assert list(run.rglob("universal-*.safetensors"))
    with monkeypatch.context() as patch, pytest.raises(Killed):  # between two files
        killed_after(patch, Manifest, "finish", 0)
        one, other, reader = models  # the order in which they are named changes no byte
        search(run, [other, reader, one], dict(reversed(PROMPTS.items())), steps=6)
    search(run, models, steps=6)
    files = [f.relative_to(whole) for f in whole.rglob("*seed0.parquet")]
    assert len(files) == 4
    assert all((run / f).read_bytes() == (whole / f).read_bytes() for f in files)
    assert not list(run.rglob("*.safetensors"))


def test_a_search_killed_between_two_directions_loses_neither(models, tmp_path, monkeypatch):
    whole, run = tmp_path / "whole", tmp_path / "run"
    search(whole, models, direction="both", steps=3)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        killed_after(patch, Manifest, "finish", 4)  # all four files of "max" are there
        search(run, models, direction="both", steps=3)
    search(run, models, direction="both", steps=3)
    files = [f.relative_to(whole) for f in whole.rglob("*seed0.parquet")]
    assert len(files) == 8
    assert all((run / f).read_bytes() == (whole / f).read_bytes() for f in files)
    assert not list(run.rglob("*.safetensors"))


@pytest.mark.slow
def test_more_devices_change_nothing(models, tmp_path):
    one = search(tmp_path / "one", models)
    two = search(tmp_path / "two", models, data=2)
    assert one == two


def test_a_joint_and_a_universal_search_exclude_each_other(models, tmp_path):
    config = search_config.get_config()
    config.joint, config.universal = True, "mean"
    with pytest.raises(
        AssayError, match=r"^joint=True with universal='mean'; allowed: one of both"
    ):
        searching.search(models, PROMPTS, str(tmp_path / "run"), settings(), make_mesh(), config)


@pytest.mark.parametrize(
    ("judges", "changes", "message"),
    [
        ("{other}, {other}", {}, "model 'other' was given twice; slugs must differ"),
        ("{same}", {}, "model 'tiny' was given twice; slugs must differ"),
        ("{other}", {"transfer": False}, "judges='.*' with transfer=False, .*: transfer=True$"),
        ("{other}", {"joint": True}, "judges='.*' with joint=True, .*; allowed: joint=False$"),
    ],
)
def test_judges_are_checked_before_the_search(checkpoint, tmp_path, judges, changes, message):
    other, same = checkpoint("other", head_seed=1), checkpoint(head_seed=2)
    config = search_config.get_config()
    config.judges = judges.format(other=other.path, same=same.path)
    config.update(changes)
    with pytest.raises(AssayError, match=rf"^{message}"):
        run = str(tmp_path / "run")
        searching.search([checkpoint()], PROMPTS, run, settings(), make_mesh(), config)
    assert not (tmp_path / "run").exists()


def test_models_that_fit_alone_but_not_together_are_refused(models, tmp_path, monkeypatch):
    objective, mesh = problem(models[0], method="mutate"), make_mesh()
    weights = jobs.check_memory(models[0], objective, mesh)
    few, enough = 0, 1 << 32
    while enough - few > 1:
        free = (few + enough) // 2
        monkeypatch.setattr(admission, "free_memory", lambda free=free: free)
        try:
            jobs.check_memory(models[0], objective, mesh)
            enough = free
        except AssayError:
            few = free
    monkeypatch.setattr(admission, "free_memory", lambda: enough + int(weights / 2))
    jobs.check_memory(models[0], objective, mesh)
    with pytest.raises(AssayError, match=r"^beside the other models of the universal search: tiny"):
        search(tmp_path / "run", models, {"who": "Who?"})
    assert not (tmp_path / "run").exists()


def test_the_order_of_models_and_prompts_makes_no_other_search(models, tmp_path):
    found = search(tmp_path / "run", models, steps=1)
    again = search(tmp_path / "run", models[::-1], dict(reversed(PROMPTS.items())), steps=1)
    assert {f.universal["group"] for f in found} == {f.universal["group"] for f in again}
    assert not any(f.new for f in again)


def test_every_program_is_compiled_by_all_processes_together(models, monkeypatch):
    wrapped = []

    def together(program):
        wrapped.append(program)
        return program

    monkeypatch.setattr(universal_step, "run_together", together)
    shared, mesh = settings().of_compiled_step(), make_mesh()
    passes = universal_step._passes.__wrapped__(scorer(models[0]).graph, mesh, shared)
    between = universal_step._between.__wrapped__(mesh, shared, "mean")
    assert wrapped == [*passes, *(getattr(between, f.name) for f in dataclasses.fields(between))]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rule": "most"}, "universal='most'; allowed: 'mean', 'minimum'"),
        ({"method": "beam"}, "method='beam'; allowed in a universal search: 'gcg-original', 'gcg'"),
        ({"method": "gcg-merged"}, "method='gcg-merged'; allowed in a universal search: 'gcg-or"),
        ({"certify": 9}, "certify=9; allowed in a universal search: 0"),
        ({"target": 3.0}, r"target=3\.0; allowed in a universal search: 0\.0"),
        ({"deny": ("Liebe",)}, "deny: no token is 'Liebe'; allowed: texts of single tokens"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(models, tmp_path, changes, message):
    with pytest.raises(AssayError, match=rf"^{message}") as error:
        search(tmp_path / "run", models, **changes)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_one_judge_is_refused(models, tmp_path):
    with pytest.raises(AssayError, match=r"^universal='mean' with one model and one prompt; allow"):
        search(tmp_path / "run", models[:1], {"who": "Who?"})


def test_a_search_ends_with_its_budget_without_round_trips(models, tmp_path):
    """A step that could not be afforded ended in a traceback."""
    own = {"method": "mutate", "round_trip": False, "steps": 100, "every": 50}
    judges = [problem(model, text, **own) for model in models for text in PROMPTS.values()]
    budget = 3.5 * sum(map(step_flops, judges)) * judges[0].settings.attempts
    search(tmp_path / "run", models, flops=budget, **own)
    files = (tmp_path / "run").rglob("*seed0.parquet")
    assert {pl.read_parquet(file)["step"].max() for file in files} == {3}
