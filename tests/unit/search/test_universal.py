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
from engine import api, progress
from engine.errors import AssayError
from engine.planning import admission, flops
from engine.runs import schema
from engine.runs.manifest import Manifest
from engine.runs.verify import verify
from engine.search import jobs, judges, run_folder, universal
from engine.search import trace as traces
from engine.search.loop import step_flops
from engine.search.run_folder import score_elsewhere
from engine.sweep import rescore
from launch.common import searching
from tests.support import folders, slow, tiny
from tests.support.killed import Killed, killed_after
from tests.support.searches import make_mesh, problem, scorer, settings
from tests.support.universal import ALLOW, FEW, PROMPTS, judged, search


@pytest.fixture
def models(checkpoint):
    return [checkpoint(), checkpoint("other", head_seed=1)]


def read(model, found, texts):
    """Standardised rewards of texts by plain passes over whole conversations: [prompts, texts]."""
    every = []
    for prompt_id, prompt in PROMPTS.items():
        rewards = scorer(model).plain_rewards(model.template.sequences(prompt, texts))[0]
        (moments,) = (
            own
            for slug, p, *own in found.universal["judges"]
            if (slug, p) == ("stranger", prompt_id)
        )
        every.append((rewards - moments[0]) / moments[1])
    return np.array(every)


CASES = [
    ("max", "mean", "mutate", False),
    ("min", "minimum", "mutate", False),
    ("max", "mean", "mutate", True),
    ("min", "minimum", "mutate", True),
    ("max", "minimum", "gcg", False),
]


@pytest.mark.parametrize(
    ("direction", "rule", "method", "stranger_too"), slow.all_but([CASES[1], CASES[2]], CASES)
)
def test_the_best_of_all_pairs_is_found(
    models, stranger, tmp_path, direction, rule, method, stranger_too
):
    """By ids, and where a model of another tokenizer reads the texts."""
    models = [models[0], stranger] if stranger_too else models
    kind = {"rule": rule, "direction": direction, "method": method, "steps": 60}
    found = search(tmp_path / "run", models, **kind, **FEW)
    template, sign = models[0].template, 1 if direction == "max" else -1
    pairs = list(itertools.product([template.reply_ids(a)[0] for a in ALLOW], repeat=2))
    texts = ["".join(pair) for pair in itertools.product(ALLOW, repeat=2)]
    known = models[:1] if stranger_too else models
    every = [judged(known, found[0], pairs)]
    every += [read(stranger, found[0], texts)] if stranger_too else []
    scores = sign * np.concatenate(every)
    objective = scores.mean(0) if rule == "mean" else scores.min(0)
    assert found[0].universal["objective"] == pytest.approx(sign * objective.max(), abs=1e-4)
    assert found[0].text == texts[int(np.argmax(objective))]
    if stranger_too:
        assert [(one.model, one.prompt_id) for one in found] == [("tiny", "who"), ("tiny", "what")]


@pytest.mark.slow
def test_judges_are_standardised_by_single_tokens(models, stranger, tmp_path):
    (found, *_) = search(tmp_path / "run", [models[0], stranger], steps=1)
    allowed = np.flatnonzero(problem(models[0]).allowed)  # fewer than the sample holds
    texts = [problem(models[0]).round_trip.text(np.array([i])) for i in allowed]
    ids = [[token] for token in allowed.tolist()]
    scores = np.concatenate([judged(models[:1], found, ids), read(stranger, found, texts)])
    np.testing.assert_allclose(scores.mean(1), 0, atol=1e-4)
    np.testing.assert_allclose(scores.std(1), 1, atol=1e-4)


@pytest.mark.parametrize(("rule", "weights"), [("mean", [0.5, 0.5]), ("minimum", [0.0, 1.0])])
def test_the_gradient_is_that_of_the_objective(rule, weights):
    between = universal._between(make_mesh(), settings().of_compiled_step(), rule)
    rng = np.random.default_rng(0)
    rewards = [np.float32([5.0]), np.float32([1.0])]  # standardised: 2 and -1
    slopes = [rng.normal(size=(1, 3, 7)).astype(np.float32) for _ in rewards]
    means, sds = np.float32([1.0, 4.0]), np.float32([2.0, 3.0])
    value, slope = between.weigh(rewards, slopes, np.float32([1.0]), means, sds)
    expected = sum(w * s / sd for w, s, sd in zip(weights, slopes, sds, strict=True))
    np.testing.assert_allclose(slope, expected, rtol=1e-6)
    assert value.item() == pytest.approx(0.5 if rule == "mean" else -1.0)


@pytest.mark.slow
@pytest.mark.parametrize("merge", [0, 4])
def test_a_gradient_climbs(models, tmp_path, merge):
    kind = {"method": "gcg", "merge": merge, "steps": 6, "round_trip": True}
    found = search(tmp_path / "run", models, direction="both", **kind)
    high, low = found[0].universal["objective"], found[-1].universal["objective"]
    assert high > low
    rows = [pl.read_parquet(f)["token_ids"].to_list() for f in (tmp_path / "run").rglob("*max/*")]
    climb = judged(models, found[0], rows[0]).mean(0)
    assert (np.diff(climb) >= -1e-5).all()
    assert climb[-1] == pytest.approx(high, abs=1e-4)


@pytest.mark.slow
def test_with_a_gradient_a_reader_counts_too(checkpoint, stranger, tmp_path):
    kind = {"method": "gcg", "merge": 3, "rule": "minimum", "steps": 4}
    found = search(tmp_path / "run", [checkpoint(), stranger], **kind)
    file, _ = (tmp_path / "run").rglob("*max/*")
    last = pl.read_parquet(file).row(-1, named=True)
    known = judged([checkpoint()], found[0], [last["token_ids"]])
    least = min(known.min(), read(stranger, found[0], [last["text"]]).min())
    assert found[0].universal["objective"] == pytest.approx(least, abs=1e-4)


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
    score_elsewhere(models, PROMPTS, str(run), [f.text for f in found], settings(), make_mesh())
    loaded = analysis.load(run)
    matrix = analysis.transfer_matrix(loaded, analysis.sequences_table(loaded))
    assert {*matrix.select("target", "prompt").rows()} == {
        (model, prompt) for model in ("other", "tiny") for prompt in ("what", "who")
    }


@pytest.mark.slow
def test_the_api_finds_what_the_command_finds(models, stranger, tmp_path):
    own = {"method": "mutate", "steps": 4, "length": 3, "candidates": 12, "topk": 16}
    own |= {"round_trip": False, "ascii_only": False, "restarts": 2, "buffer": 3, "every": 2}
    own |= {"replace_first": 2, "spread": 1.0}
    loaded = [api.load(m.path, mesh=make_mesh(), step_size=16) for m in (*models, stranger)]
    frame = engine.search_together(loaded, list(PROMPTS.values()), rule="minimum", **own)
    found = search(tmp_path / "run", [*models, stranger], rule="minimum")
    assert frame["objective"][-1] == pytest.approx(found[0].universal["objective"], abs=1e-5)
    assert frame["text"][-1] == found[0].text
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
@pytest.mark.parametrize("method", ["mutate", "gcg"])
def test_more_devices_change_nothing(models, tmp_path, method):
    kind = {"method": method, "merge": 3 if method == "gcg" else 0}
    one = search(tmp_path / "one", models, **kind)
    assert one == search(tmp_path / "two", models, data=2, **kind)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"judges": "{other}, {other}"}, "model 'other' was given twice; slugs must differ"),
        ({"judges": "{same}"}, "model 'tiny' was given twice; slugs must differ"),
        (
            {"judges": "{other}", "transfer": False},
            "judges='.*' with transfer=False, .*: transfer=True$",
        ),
        (
            {"judges": "{other}", "joint": True},
            "judges='.*' with joint=True, .*; allowed: joint=False$",
        ),
        (
            {"joint": True, "universal": "mean"},
            "joint=True with universal='mean'; allowed: one of both",
        ),
    ],
)
def test_what_excludes_each_other_is_refused_before_the_search(
    checkpoint, tmp_path, changes, message
):
    other, same = checkpoint("other", head_seed=1), checkpoint(head_seed=2)
    config = search_config.get_config()
    config.update(changes)
    config.judges = config.judges.format(other=other.path, same=same.path)
    with pytest.raises(AssayError, match=rf"^{message}"):
        run = str(tmp_path / "run")
        searching.search([checkpoint()], PROMPTS, run, settings(), make_mesh(), config)
    assert not (tmp_path / "run").exists()


def job_of(model, **changes) -> jobs.Job:
    asked = problem(model, **changes)
    slug = model.card.slug
    return jobs.Job(
        models={slug: model},
        prompts=["who"],
        objective=asked,
        each={slug: asked},
        files={},
        fingerprints={},
        missing=(),
    )


def test_models_that_fit_alone_but_not_together_are_refused(models, tmp_path, monkeypatch):
    few, enough, alone = 0, 1 << 32, job_of(models[0], method="mutate")
    while enough - few > 1:
        free = (few + enough) // 2
        monkeypatch.setattr(admission, "free_memory", lambda free=free: free)
        try:
            jobs.check_memory(alone, make_mesh())
            enough = free
        except AssayError:
            few = free
    monkeypatch.setattr(admission, "free_memory", lambda: enough + 1024)
    jobs.check_memory(alone, make_mesh())
    with pytest.raises(AssayError, match=r"^beside the other models of the universal search: tiny"):
        search(tmp_path / "run", models, {"who": "Who?"})
    assert not (tmp_path / "run").exists()


def test_every_program_is_compiled_by_all_processes_together(models, monkeypatch):
    wrapped = []

    def together(program):
        wrapped.append(program)
        return program

    monkeypatch.setattr(universal, "run_together", together)
    shared, mesh, graph = settings().of_compiled_step(), make_mesh(), scorer(models[0]).graph
    slopes = universal._slopes_pass.__wrapped__(graph, mesh, shared)
    rewards = universal._rewards_pass.__wrapped__(graph, mesh, (0, 1))
    between = universal._between.__wrapped__(mesh, shared, "mean")
    pieces = [getattr(between.pieces, name) for name in ("draw", "merge", "join", "rank")]
    rest = [between.propose, between.weigh, between.combine, between.admit]
    assert wrapped == [slopes, rewards, *pieces, *rest]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rule": "most"}, "universal='most'; allowed: 'mean', 'minimum'"),
        ({"method": "beam"}, "method='beam'; allowed in a universal search: 'gcg', 'mutate'"),
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
    each = [problem(model, text, **own) for model in models for text in PROMPTS.values()]
    budget = 3.5 * sum(map(step_flops, each)) * each[0].settings.attempts
    search(tmp_path / "run", models, flops=budget, **own)
    files = (tmp_path / "run").rglob("*seed0.parquet")
    assert {pl.read_parquet(file)["step"].max() for file in files} == {3}


def test_a_reward_that_a_reader_cannot_give_ends_the_search(
    checkpoint, stranger, tmp_path, monkeypatch
):
    give = judges.TextJudge.rewards

    def rewards(self, texts):
        own = give(self, texts)
        return own if len(texts) > 100 else np.full_like(own, np.nan)  # not of the sample

    monkeypatch.setattr(judges.TextJudge, "rewards", rewards)
    with pytest.raises(AssayError, match="not finite"):
        search(tmp_path / "run", [checkpoint(), stranger])


@pytest.fixture(scope="module")
def fine(tmp_path_factory):
    """Positions -> a model that reads byte by byte, where the others know words."""

    def build(**changes):
        folder = tmp_path_factory.mktemp("fine")
        source = tiny.write_model(folder / "hf", seed=3, head_seed=5, **changes)
        tiny.tokenizer(words=("zz",)).save_pretrained(source)
        return folders.convert(source, folder / "checkpoint", "fine")

    return build


@pytest.mark.slow
def test_a_reply_that_a_reader_cuts_finer_is_too_long_before_anything_is_loaded(
    checkpoint, fine, tmp_path
):
    """With as many tokens there as here, it ended in the middle of the search, and so again."""
    template = fine().template
    split = max((template.split(p) for p in PROMPTS.values()), key=lambda s: len(s.prefix))
    around = len(split.prefix) + len(split.suffix)
    few = fine(max_position_embeddings=around + 2 * 9)  # of `<script>`: eight bytes, and one more
    shorter = problem(checkpoint(), *PROMPTS.values(), length=2)
    assert judges.Reading.of(few, "", PROMPTS, shorter).most == 18
    message = (
        rf"^model 'fine': a conversation with a reply of 3 tokens as texts, up to 9 tokens each "
        rf"has up to {around + 27} tokens; allowed by the model: {around + 18}$"
    )
    with pytest.raises(AssayError, match=message):
        search(tmp_path / "run", [checkpoint(), few], length=3)
    others = problem(checkpoint(), *PROMPTS.values(), length=2, deny=("<script>",))
    assert judges.Reading.of(few, "", PROMPTS, others).most == 16  # `<script`
    message = r"^model 'tiny': a conversation with a reply of 99 tokens has up to \d+ "
    short = checkpoint(max_position_embeddings=around + 20)
    with pytest.raises(AssayError, match=message):
        search(tmp_path / "run", [short], length=99)
    assert not (tmp_path / "run").exists()


def killed(*arguments, **named):
    raise Killed


def test_memory_and_operations_of_a_reader_are_those_of_its_own_tokens(
    checkpoint, fine, tmp_path, monkeypatch
):
    asked, check = [], admission.check_search

    def noted(checkpoint, mesh, dtype, work, beside=0.0):
        asked.append((checkpoint.card.slug, work))
        return check(checkpoint, mesh, dtype, work, beside)

    monkeypatch.setattr(admission, "check_search", noted)
    monkeypatch.setattr(run_folder, "restore", killed)
    model, reader, prompts = checkpoint(), fine(), {"who": "Who?"}
    own = {"length": 4, "allow": ("<script>", "a", "b", "c"), "topk": 4}
    with pytest.raises(Killed):
        search(tmp_path / "run", [model, reader], prompts, **own)
    (split,) = map(reader.template.split, prompts.values())
    # The longest reply has 4 * 9 tokens, which take 48 positions with what closes them.
    works = [work for slug, work in asked if slug == "fine"]
    assert {work.own for work in works} == {48}
    reading = judges.Reading.of(reader, "", prompts, problem(model, **own))
    assert (reading.most, reading.usual) == (36, 11)  # 4 * (8 + 1), 4 * (8 + 1 + 1 + 1) / 4
    (judge,) = judges.text_judges(reading, problem(model, **own), scorer(reader))
    before, positions = len(split.prefix), 11 + len(split.suffix)
    assert judge.flops == flops.response(reader.card.decoder, positions, before)


def test_a_reader_that_cannot_be_standardised_is_named(checkpoint, tmp_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("broken")
    source = tiny.write_model(folder / "hf", nan_head=True)
    tiny.tokenizer(words=tiny.WORDS[::-1]).save_pretrained(source)
    broken = folders.convert(source, folder / "checkpoint", "broken")
    with pytest.raises(AssayError, match=r"^model 'broken', prompt 'What .*\?': the rewards of"):
        search(tmp_path / "run", [checkpoint(), broken])


@pytest.mark.slow
def test_a_model_that_reads_texts_is_told_before_the_search(
    checkpoint, stranger, tmp_path, capfd, monkeypatch
):
    beside = []

    class Noted(progress._Bar):
        def __init__(self, **settings):
            beside.append([settings["desc"], *(other.desc for other in progress._open)])
            super().__init__(**settings)

    with monkeypatch.context() as patch:
        patch.setattr(progress, "_Bar", Noted)
        found = search(tmp_path / "run", [checkpoint(), stranger], steps=1)
    assert beside and not [one for one in beside if len(one) > 1]  # no bar inside that of the steps
    token, own = (model.tokens[259] for model in (checkpoint(), stranger))
    line = (
        f"model stranger: token 259 is {own!r}, not {token!r}: it reads texts: no gradient, no file"
    )
    told = capfd.readouterr().err
    assert told.count(line) == 1
    assert told.index(line) < told.index("steps")
    assert found[0].universal["readers"] == ["stranger"]
    assert (found[0].model, found[0].universal["judges"][-1][0]) == ("tiny", "stranger")
    search(tmp_path / "run", [checkpoint(), stranger], steps=1)
    assert line not in capfd.readouterr().err  # it was complete
    loaded = [api.load(m.path, mesh=make_mesh()) for m in (checkpoint(), stranger)]
    monkeypatch.setattr(judges, "text_judges", killed)
    with pytest.raises(Killed):
        engine.search_together(loaded, "Who?", method="mutate", steps=1, topk=16)
    assert capfd.readouterr().err.count(line) == 1


@pytest.mark.parametrize(
    ("known", "own", "said"),
    [
        ({0: "a", 1: "b"}, {0: "a", 1: "c", 2: "d"}, "token 1 is 'c', not 'b'"),
        ({0: "a"}, {0: "\x1b[2J\n\u202e"}, r"token 0 is '\x1b[2J\n\u202e', not 'a'"),
        ({0: "a", 7: "b"}, {0: "a", 5: "c", 7: "b"}, ""),
        ({0: "a"}, dict.fromkeys(range(513), "a"), ""),
        (dict.fromkeys(range(514), "a"), {0: "a"}, "it has 1 tokens, not 514"),
    ],
)
def test_the_first_token_that_differs_is_quoted(known, own, said):
    assert judges.difference(known, own) == said
