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
from engine.planning import flops, machines
from engine.runs import schema
from engine.runs.manifest import Manifest
from engine.runs.verify import verify
from engine.search import jobs, loop, step, universal
from engine.search import objective as problems
from engine.search.objective import Reader
from engine.search.run_folder import score_elsewhere
from engine.sweep import rescore
from launch.common import searching
from tests.support import folders, searches, tiny
from tests.support.killed import Killed, killed_after
from tests.support.parity import make_mesh
from tests.support.searches import job_of, problem, scorer, settings

PROMPTS = {"who": "Who?", "what": "What is the greatest thing?"}
ALLOW = tuple("abcdefghijklmnop")
FEW = {"length": 2, "allow": ALLOW, "candidates": 16, "topk": 8, "replace_first": 2}


def search(run, models, prompts=PROMPTS, rule="mean", **changes):
    return searches.search(
        run, models, prompts, rule=rule, **{"method": "mutate", "steps": 4, **changes}
    )


@pytest.fixture
def models(checkpoint):
    return [checkpoint(), checkpoint("other", head_seed=1)]


def scores(model, found, wholes):
    """Rewards by plain passes, standardised by the judges' moments: [prompts, rows].

    `wholes` gives the rows of whole conversations under a prompt.
    """
    every = []
    for prompt_id, prompt in PROMPTS.items():
        rewards = scorer(model).plain_rewards(wholes(prompt))[0]
        [(mean, sd)] = (
            moments
            for slug, p, *moments in found.universal["judges"]
            if (slug, p) == (model.card.slug, prompt_id)
        )
        every.append((rewards - mean) / sd)
    return np.array(every)


def judged(model, found, rows):
    """Standardised rewards of rows of ids."""

    def wholes(prompt):
        split = model.template.split(prompt)
        return [[*split.prefix, *ids, *split.suffix] for ids in rows]

    return scores(model, found, wholes)


def read(model, found, texts):
    """Standardised rewards of texts."""
    return scores(model, found, lambda prompt: model.template.sequences(prompt, texts))


def same_bytes(whole, run):
    """That a run has the searches of another; how many files they are."""
    files = [f.relative_to(whole) for f in whole.rglob("*seed0.parquet")]
    assert all((run / f).read_bytes() == (whole / f).read_bytes() for f in files)
    assert not list(run.rglob("*.safetensors"))
    return len(files)


CASES = [
    ("max", "mean", "mutate", False),
    ("min", "minimum", "mutate", False),
    ("max", "mean", "mutate", True),
    ("min", "minimum", "mutate", True),
    ("max", "minimum", "gcg", False),
]


@pytest.mark.slow
@pytest.mark.parametrize(("direction", "rule", "method", "stranger_too"), CASES)
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
    every = [judged(model, found[0], pairs) for model in known]
    every += [read(stranger, found[0], texts)] if stranger_too else []
    signed = sign * np.concatenate(every)
    objective = signed.mean(0) if rule == "mean" else signed.min(0)
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
    every = np.concatenate([judged(models[0], found, ids), read(stranger, found, texts)])
    np.testing.assert_allclose(every.mean(1), 0, atol=1e-4)
    np.testing.assert_allclose(every.std(1), 1, atol=1e-4)


@pytest.mark.parametrize(("rule", "weights"), [("mean", [0.5, 0.5]), ("minimum", [0.0, 1.0])])
def test_the_gradient_is_that_of_the_objective(rule, weights):
    rng = np.random.default_rng(0)
    rewards = [np.float32([5.0]), np.float32([1.0])]  # standardised: 2 and -1
    slopes = [rng.normal(size=(1, 3, 7)).astype(np.float32) for _ in rewards]
    means, sds = np.float32([1.0, 4.0]), np.float32([2.0, 3.0])
    value, slope = universal.weigh(rewards, slopes, np.float32([1.0]), means, sds, rule=rule)
    expected = sum(w * s / sd for w, s, sd in zip(weights, slopes, sds, strict=True))
    np.testing.assert_allclose(slope, expected, rtol=1e-6)
    assert value.item() == pytest.approx(0.5 if rule == "mean" else -1.0)


@pytest.mark.slow
def test_with_a_gradient_a_reader_counts_too(checkpoint, stranger, tmp_path):
    kind = {"method": "gcg", "merge": 3, "rule": "minimum", "steps": 4}
    found = search(tmp_path / "run", [checkpoint(), stranger], **kind)
    file, _ = (tmp_path / "run").rglob("*max/*")
    last = pl.read_parquet(file).row(-1, named=True)
    known = judged(checkpoint(), found[0], [last["token_ids"]])
    least = min(known.min(), read(stranger, found[0], [last["text"]]).min())
    assert found[0].universal["objective"] == pytest.approx(least, abs=1e-4)


@pytest.mark.slow
def test_each_judge_has_a_file_with_its_rewards(models, tmp_path):
    run = tmp_path / "run"
    found = search(run, models, direction="both", round_trip=True)
    assert len(list((run / "sequences").rglob("*.parquet"))) == len(found) == 8
    for one in found:
        where = f"model={one.model}/prompt={one.prompt_id}/direction={one.direction}"
        (file,) = (run / "sequences" / where).iterdir()
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
    paths = rescore.whole_results(content, models)
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
def test_the_api_finds_what_the_command_finds(models, stranger, tmp_path, capfd):
    names = ("length", "candidates", "topk", "round_trip", "ascii_only", "restarts", "buffer")
    names += ("every", "replace_first", "spread", "temperature")
    chosen = {name: getattr(settings(), name) for name in names} | {"method": "mutate", "steps": 4}
    loaded = [api.load(m.path, mesh=make_mesh(), step_size=16) for m in (*models, stranger)]
    frame = engine.search_together(loaded, list(PROMPTS.values()), rule="minimum", **chosen)
    found = search(tmp_path / "run", [*models, stranger], rule="minimum")
    assert frame["objective"][-1] == pytest.approx(found[0].universal["objective"], abs=1e-5)
    assert frame["text"][-1] == found[0].text
    with pytest.raises(AssayError, match=r"^universal='mean' with one model and one prompt"):
        engine.search_together(loaded[0], "Who?")  # one model, one prompt: not four letters
    token, other = (model.tokens[259] for model in (models[0], stranger))
    said = f"stranger: token 259 is {other!r}, not {token!r}: it reads texts: no gradient, no file"
    assert capfd.readouterr().err.count(said) == 2  # by the API and by the command
    assert found[0].universal["readers"] == ["stranger"]
    assert found[0].universal["judges"][-1][0] == "stranger"


@pytest.mark.slow
def test_a_killed_search_goes_on_to_the_same_bytes(models, stranger, tmp_path, monkeypatch):
    models = [*models, stranger]
    whole, run = tmp_path / "whole", tmp_path / "run"
    search(whole, models, steps=6)
    save = loop.save

    def killed(*arguments):
        save(*arguments)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(loop, "save", killed)
        search(run, models, steps=6)
    assert list(run.rglob("universal-*.safetensors"))
    with monkeypatch.context() as patch, pytest.raises(Killed):  # between two files
        killed_after(patch, Manifest, "finish", 0)
        one, other, reader = models  # the order in which they are named changes no byte
        search(run, [other, reader, one], dict(reversed(PROMPTS.items())), steps=6)
    search(run, models, steps=6)
    assert same_bytes(whole, run) == 4


@pytest.mark.slow
def test_a_search_killed_between_two_directions_loses_neither(models, tmp_path, monkeypatch):
    whole, run = tmp_path / "whole", tmp_path / "run"
    search(whole, models, direction="both", steps=3)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        killed_after(patch, Manifest, "finish", 4)  # all four files of "max" are there
        search(run, models, direction="both", steps=3)
    search(run, models, direction="both", steps=3)
    assert same_bytes(whole, run) == 8


@pytest.mark.slow
def test_two_devices_search_as_one(models, tmp_path):
    one = search(tmp_path / "one", models, method="gcg", merge=3)
    assert one == search(tmp_path / "two", models, data=2, method="gcg", merge=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"judges": "{same}"}, "model 'tiny' was given twice; slugs must differ"),
        ({"judges": "{other}", "joint": True}, "judges='.*' with joint=True, .*: joint=False$"),
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


def test_models_that_fit_alone_but_not_beside_others_are_refused(models, tmp_path, monkeypatch):
    few, enough, alone = 0, 1 << 32, job_of(models[0], method="mutate")
    while enough - few > 1:
        free = (few + enough) // 2
        monkeypatch.setattr(machines, "free_memory", lambda free=free: free)
        try:
            jobs.check_memory(alone, make_mesh())
            enough = free
        except AssayError:
            few = free
    monkeypatch.setattr(machines, "free_memory", lambda: enough + 1024)
    jobs.check_memory(alone, make_mesh())
    with pytest.raises(AssayError, match=r"^beside the other models of the universal search: tiny"):
        search(tmp_path / "run", models, {"who": "Who?"})
    assert not (tmp_path / "run").exists()


def test_every_program_is_compiled_on_all_processes_before_one_runs_it(monkeypatch):
    monkeypatch.setattr(step, "compiled_on_all", lambda program: (program, "waits"))
    assert step.compiled.__wrapped__(make_mesh(), step.with_merged)[1] == "waits"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rule": "most"}, "universal='most'; allowed: 'mean', 'minimum'"),
        ({"method": "beam"}, "method='beam'; allowed in a universal search: 'gcg', 'mutate'"),
        ({"models": 1}, "universal='mean' with one model and one prompt; allowed: several"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(models, tmp_path, changes, message):
    models = models[: changes.pop("models", 2)]
    with pytest.raises(AssayError, match=rf"^{message}[^\n]*$"):
        search(tmp_path / "run", models, {"who": "Who?"}, **changes)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_reward_that_a_reader_cannot_give_ends_the_search(
    checkpoint, stranger, tmp_path, monkeypatch
):
    give = universal.TextJudge.rewards

    def rewards(self, texts):
        right = give(self, texts)
        return right if len(texts) > 100 else np.full_like(right, np.nan)  # not of the sample

    monkeypatch.setattr(universal.TextJudge, "rewards", rewards)
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
    message = (
        rf"^model 'fine': a conversation with a reply of 3 tokens as texts, up to 9 tokens each, "
        rf"has up to {around + 27} tokens; allowed by the model: {around + 18}$"
    )
    with pytest.raises(AssayError, match=message):
        search(tmp_path / "run", [checkpoint(), few], length=3)
    assert not (tmp_path / "run").exists()


def test_memory_and_operations_of_a_reader_are_those_of_its_tokens(checkpoint, fine):
    model, reader, prompts = checkpoint(), fine(), {"who": "Who?"}
    whole = problem(model, length=4, allow=("<script>", "a", "b", "c"), topk=4, method="mutate")
    reading = Reader.build(reader, "", [*prompts.values()], whole)
    assert reading.most_tokens == 4 * (8 + 1)
    assert reading.usual_tokens == 8 + 1 + 1 + 1
    # The longest reply has 4 * 9 tokens, which take 48 positions with what closes them.
    assert jobs._work(reading, whole).own == 48
    kinds = {"objectives": [whole], "readers": [reading]}
    both = problems.SearchProblem(
        rule="mean", models=[model, reader], prompts=prompts, objective=whole, **kinds
    )
    judge = universal.judges_of(both, [scorer(model), scorer(reader)])[-1]
    assert isinstance(judge, universal.TextJudge)
    split = reader.template.split("Who?")
    positions = 11 + len(split.suffix)
    assert judge.flops == flops.response(reader.card.decoder, positions, len(split.prefix))


def test_a_reader_that_cannot_be_standardised_is_named(checkpoint, tmp_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("broken")
    source = tiny.write_model(folder / "hf", nan_head=True)
    tiny.tokenizer(words=tiny.WORDS[::-1]).save_pretrained(source)
    broken = folders.convert(source, folder / "checkpoint", "broken")
    with pytest.raises(AssayError, match=r"^model 'broken', prompt 'What .*\?': the rewards of"):
        search(tmp_path / "run", [checkpoint(), broken])


@pytest.mark.parametrize(
    ("known", "other", "said"),
    [
        ({0: "a", 1: "b"}, {0: "a", 1: "\x1b\n", 2: "d"}, r"token 1 is '\x1b\n', not 'b'"),
        ({0: "a", 7: "b"}, {0: "a", 5: "c", 7: "b"}, ""),
        (dict.fromkeys(range(514), "a"), {0: "a"}, "it has 1 tokens, not 514"),
    ],
)
def test_the_first_token_that_differs_is_quoted(known, other, said):
    assert problems.vocabulary_difference(known, other) == said
