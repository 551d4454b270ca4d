"""Models of another tokenizer in a universal search: they read the text of every candidate."""

import itertools

import numpy as np
import polars as pl
import pytest

import engine
from engine import api, progress
from engine.errors import AssayError
from engine.planning import admission, flops
from engine.search import universal_readers, universal_runs
from tests.support import folders, tiny
from tests.support.killed import Killed
from tests.support.searches import make_mesh, problem, scorer
from tests.support.universal import ALLOW, FEW, PROMPTS, judged, search


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


@pytest.mark.parametrize(("rule", "direction"), [("mean", "max"), ("minimum", "min")])
def test_a_model_of_another_tokenizer_reads_the_text(
    checkpoint, stranger, tmp_path, rule, direction
):
    model = checkpoint()
    own = FEW | {"rule": rule, "direction": direction, "steps": 60}
    found = search(tmp_path / "run", [model, stranger], **own)
    assert [(one.model, one.prompt_id) for one in found] == [("tiny", "who"), ("tiny", "what")]
    tokens = [model.template.reply_ids(letter)[0] for letter in ALLOW]
    pairs = list(itertools.product(tokens, repeat=2))
    texts = ["".join(pair) for pair in itertools.product(ALLOW, repeat=2)]
    sign = 1 if direction == "max" else -1
    both = [judged([model], found[0], pairs), read(stranger, found[0], texts)]
    standardised = sign * np.concatenate(both)
    every = standardised.mean(0) if rule == "mean" else standardised.min(0)
    assert found[0].universal["objective"] == pytest.approx(sign * every.max(), abs=1e-4)
    assert found[0].text == texts[int(np.argmax(every))]
    alone = sign * judged([model], found[0], pairs)  # another reply than without the stranger
    assert np.argmax(alone.mean(0) if rule == "mean" else alone.min(0)) != np.argmax(every)


@pytest.mark.slow
def test_a_reader_is_standardised_by_the_texts_of_single_tokens(checkpoint, stranger, tmp_path):
    model = checkpoint()
    found = search(tmp_path / "run", [model, stranger], steps=1)
    allowed = np.flatnonzero(problem(model).allowed)
    texts = [problem(model).round_trip.text(np.array([i])) for i in allowed]
    standard = read(stranger, found[0], texts)
    np.testing.assert_allclose(standard.mean(1), 0, atol=1e-4)
    np.testing.assert_allclose(standard.std(1), 1, atol=1e-4)


@pytest.mark.slow
def test_with_a_gradient_a_reader_counts_too(checkpoint, stranger, tmp_path):
    own = {"method": "gcg", "rule": "minimum", "steps": 4}
    found = search(tmp_path / "run", [checkpoint(), stranger], **own)
    file, _ = (tmp_path / "run").rglob("*max/*")
    last = pl.read_parquet(file).row(-1, named=True)
    known = judged([checkpoint()], found[0], [last["token_ids"]])
    least = min(known.min(), read(stranger, found[0], [last["text"]]).min())
    assert found[0].universal["objective"] == pytest.approx(least, abs=1e-4)


def test_a_reward_that_a_reader_cannot_give_ends_the_search(
    checkpoint, stranger, tmp_path, monkeypatch
):
    give = universal_readers.Reader.rewards

    def rewards(self, texts):
        own = give(self, texts)
        return own if len(texts) > 100 else np.full_like(own, np.nan)  # not of the sample

    monkeypatch.setattr(universal_readers.Reader, "rewards", rewards)
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
    assert universal_readers.Reading.of(few, "", PROMPTS, shorter).most == 18
    message = (
        rf"^model 'fine': a conversation with a reply of 3 tokens as texts, up to 9 tokens each "
        rf"has up to {around + 27} tokens; allowed by the model: {around + 18}$"
    )
    with pytest.raises(AssayError, match=message):
        search(tmp_path / "run", [checkpoint(), few], length=3)
    others = problem(checkpoint(), *PROMPTS.values(), length=2, deny=("<script>",))
    assert universal_readers.Reading.of(few, "", PROMPTS, others).most == 16  # `<script`
    message = r"^model 'tiny': a conversation with a reply of 99 tokens has up to \d+ "
    short = checkpoint(max_position_embeddings=around + 20)
    with pytest.raises(AssayError, match=message):
        search(tmp_path / "run", [short], length=99)
    assert not (tmp_path / "run").exists()


def test_memory_and_operations_of_a_reader_are_those_of_its_own_tokens(
    checkpoint, fine, tmp_path, monkeypatch
):
    asked, check = [], admission.check_search

    def noted(checkpoint, mesh, dtype, work, beside=0.0):
        asked.append((checkpoint.card.slug, work))
        return check(checkpoint, mesh, dtype, work, beside)

    def load(*arguments):
        raise Killed

    monkeypatch.setattr(admission, "check_search", noted)
    monkeypatch.setattr(universal_runs, "_scorer", load)
    model, reader, prompts = checkpoint(), fine(), {"who": "Who?"}
    own = {"length": 4, "allow": ("<script>", "a", "b", "c"), "topk": 4}
    with pytest.raises(Killed):
        search(tmp_path / "run", [model, reader], prompts, **own)
    (split,) = map(reader.template.split, prompts.values())
    # The longest reply has 4 * 9 tokens, which take 48 positions with what closes them.
    works = [work for slug, work in asked if slug == "fine"]
    assert {work.own for work in works} == {48}
    reading = universal_readers.Reading.of(reader, "", prompts, problem(model, **own))
    assert (reading.most, reading.usual) == (36, 11)  # 4 * (8 + 1), 4 * (8 + 1 + 1 + 1) / 4
    (judge,) = universal_readers.readers_of(reading, problem(model, **own), scorer(reader))
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
def test_what_readers_tokenise_has_no_bar_of_its_own(checkpoint, stranger, tmp_path, monkeypatch):
    """One that takes a second appeared inside the bar of the steps."""
    beside = []

    class Noted(progress._Bar):
        def __init__(self, **settings):
            beside.append([settings["desc"], *(other.desc for other in progress._open)])
            super().__init__(**settings)

    monkeypatch.setattr(progress, "_Bar", Noted)
    search(tmp_path / "run", [checkpoint(), stranger], steps=1)
    assert beside
    assert not [one for one in beside if len(one) > 1]


@pytest.mark.slow
def test_a_model_that_reads_texts_is_told_before_the_search(
    checkpoint, stranger, tmp_path, capfd, monkeypatch
):
    found = search(tmp_path / "run", [checkpoint(), stranger], steps=1)
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
    monkeypatch.setattr(api, "readers_of", killed)
    with pytest.raises(Killed):
        engine.search_together(loaded, "Who?", method="mutate", steps=1, topk=16)
    assert capfd.readouterr().err.count(line) == 1


def killed(*arguments):
    raise Killed


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
    assert universal_readers.difference(known, own) == said
