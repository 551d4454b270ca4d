"""Sweeps behind a reply start: transformers' rewards, and a sweep's parts, resume and meshes."""

import contextlib
import dataclasses
import functools

import numpy as np
import pytest
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from engine.errors import AssayError
from engine.runs import schema
from engine.runs.identity import items_hash
from engine.runs.verify import verify
from engine.scoring.rows import token_rows
from engine.settings import SweepSettings
from engine.sweep import repeated, rescore
from engine.text.chat_template import with_reply_start
from tests.support import folders, torch_models
from tests.support import tiny as tinies
from tests.support.parity import make_mesh
from tests.support.sweeps import PROMPTS, result

pytestmark = pytest.mark.usefixtures("one_length")
PROMPT = PROMPTS["greatest"]
_TURNS = "{% for m in messages %}"
# As the families' own templates close a turn and treat the ends of a reply.
FAMILIES = {
    "chatml": tinies.CHATML,
    "llama 3": (
        "{{ bos_token }}" + _TURNS + "<|start|>{{ m['role'] }}<|end|>\n\n"
        "{{ m['content'] | trim }}<|eot|>{% endfor %}"
    ),
    "gemma": (
        _TURNS + "<start>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n"
        "{{ m['content'] | trim }}<end>\n{% endfor %}"
    ),
    "mistral": (
        _TURNS + "{% if m['role'] == 'user' %}[INST] {{ m['content'] }}[/INST]"
        "{% else %} {{ m['content'] }}{{ eos_token }}{% endif %}{% endfor %}"
    ),
    "phi 3": _TURNS + "<|{{ m['role'] }}|>\n{{ m['content'] }}<|im_end|>\n{% endfor %}",
}
STARTS = {"ids": "Sure, the truth", "text": "Sure, "}
WORDS = [*tinies.WORDS, " thanks", "Sure", "please"]


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """Name -> a folder that transformers loads, and its checkpoint, of a vocabulary of 300."""

    @functools.cache
    def build(name):
        folder = tmp_path_factory.mktemp("family")
        tinies.write_model(folder / "hf")
        tinies.tokenizer(FAMILIES[name], words=WORDS).save_pretrained(folder / "hf")
        return folder / "hf", folders.convert(folder / "hf", folder / "checkpoint")

    return build


class Reference:
    """Transformers' own rendering, tokenizer and forward pass."""

    def __init__(self, folder):
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.network = AutoModelForSequenceClassification.from_pretrained(folder).eval()

    def rendered(self, reply: str) -> str:
        turns = [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": reply}]
        return self.tokenizer.apply_chat_template(turns, tokenize=False)

    def ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]


def conversations(reference, model, mode):
    """Ids of every token behind the reply start, and of the reply start alone."""
    start = STARTS[mode]
    alone = reference.ids(reference.rendered(start))
    if mode == "text":
        texts = [reference.rendered(start + token) for token in model.tokens.values()]
        return [reference.ids(text) for text in texts], alone
    whole = reference.rendered(start)
    cut = whole.rindex(start) + len(start)
    before, after = reference.ids(whole[:cut]), reference.ids(whole[cut:])
    return [[*before, token, *after] for token in model.tokens], alone


@pytest.mark.parametrize("mode", STARTS)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_token_stands_behind_a_reply_as_transformers_renders_it(family, name, mode):
    folder, model = family(name)
    rows = token_rows(model, with_reply_start(PROMPT, STARTS[mode]), mode)
    expected, alone = conversations(Reference(folder), model, mode)
    ids = range(len(model.tokens))
    assert len(ids) >= 300 and rows.sequences([*ids]) == expected
    assert rows.sequences(rows.baseline) == [alone]


@pytest.mark.parametrize("mode", STARTS)
def test_every_token_behind_a_reply_has_the_reward_of_transformers(run, family, mode):
    folder, model = family("gemma")
    run.sweep([model], {"behind": with_reply_start(PROMPT, STARTS[mode])}, mode=mode)
    reference = Reference(folder)
    sequences, alone = conversations(reference, model, mode)
    rewards = torch_models.rewards(reference.network, sequences)
    tolerance = 1e-4 * float(rewards.std())
    np.testing.assert_allclose(run.rewards("tiny", "behind"), rewards, rtol=0, atol=tolerance)
    [found] = run.results().values()
    baseline = torch_models.rewards(reference.network, [alone])[0]
    assert found.baseline == pytest.approx(baseline, abs=tolerance)
    assert found.reply_start == STARTS[mode]
    assert found.complete


BEHIND = {"behind": with_reply_start(PROMPT, "the truth is love")}


def test_parts_resume_and_devices_leave_the_same_bytes(run, other_run, tiny):
    run.sweep([tiny], BEHIND)
    other_run.sweep([tiny], BEHIND, mesh=make_mesh(2))
    (other_run.folder / result(prompt="behind") / "part-0000100-0000200.parquet").unlink()
    assert other_run.sweep([tiny], BEHIND, mesh=make_mesh(2)) == 100
    assert other_run.hashes() == run.hashes()
    baselines = [r.results()[result(prompt="behind")].baseline for r in (run, other_run)]
    assert baselines[0] == pytest.approx(baselines[1], abs=1e-6)


def test_models_of_one_decoder_share_the_pass_and_have_baselines_of_their_own(run, checkpoint):
    models = [checkpoint(), checkpoint("other", head_seed=5)]
    run.sweep(models, BEHIND)
    found = run.results()
    for model in models:
        rows = token_rows(model, BEHIND["behind"], "ids")
        kept = found[result(model.card.slug, "behind")]
        assert kept.identity.prefix_ids == (rows.prompt.prefix,)
        assert kept.complete
    assert len({kept.baseline for kept in found.values()}) == 2


def test_a_result_without_its_baseline_is_not_complete_and_is_checked_again(run, tiny):
    run.sweep([tiny], BEHIND)
    run.edit(lambda entry: entry.pop("baseline"), result(prompt="behind"))
    assert not run.results()[result(prompt="behind")].complete
    assert run.sweep([tiny], BEHIND) == 0
    assert run.results()[result(prompt="behind")].complete


def test_prompts_and_reply_starts_keep_their_mode_beside_one_that_is_trimmed(run, trims):
    kept = {"plain": PROMPT, "kept": with_reply_start(PROMPT, "no")}
    run.sweep([trims], kept, mode="auto")
    run.sweep([trims], kept | {"cut": with_reply_start(PROMPT, "no ")}, mode="auto")
    modes = {path: found.identity.mode for path, found in run.results().items()}
    assert modes == {result("trims", "cut"): "text", **{result("trims", k): "ids" for k in kept}}


@pytest.mark.parametrize(("experts", "ok"), [(0, False), (4, True)])
def test_the_baseline_of_a_mixture_is_compared_again_as_one_row(
    run, tiny, monkeypatch, experts, ok
):
    run.sweep([tiny], BEHIND)
    path = result(prompt="behind")
    run.edit(lambda entry: entry.update(baseline=entry["baseline"] + 0.02), path)
    decoder = dataclasses.replace(tiny.card.decoder, experts=experts, experts_per_token=experts)
    claimed = dataclasses.replace(tiny, card=dataclasses.replace(tiny.card, decoder=decoder))
    folder = verify(run.folder).folder
    scorer = rescore._load(tiny, make_mesh(), "float32", (), lens=False)
    expected = contextlib.nullcontext() if ok else pytest.raises(AssayError, match="reply start")
    with expected:
        rng = np.random.default_rng(0)
        rescore._compare(folder, folder.results[path], claimed, scorer, 3, rng)


@pytest.mark.slow
def test_the_tokens_that_move_replies_most_are_repeated_behind_each(run, tiny, monkeypatch):
    """But not behind a reply that leaves no room for them."""
    monkeypatch.setattr(schema, "TIMES", (1, 32))
    starts = {"a": "the war", "b": "no", "long": "!" * 60}
    behind = {name: with_reply_start(PROMPT, text) for name, text in starts.items()}
    run.sweep([tiny], behind)
    settings = SweepSettings(mode="text", dtype="float32", step_size=16)
    arguments = ([tiny], behind, str(run.folder), settings, make_mesh())
    assert repeated.repeat_rewards(*arguments) > 0
    assert repeated.repeat_rewards(*arguments) == 0
    baselines = [run.results()[result(prompt=name)].baseline for name in behind]
    effects = (
        np.array([run.rewards("tiny", name) for name in behind]) - np.array(baselines)[:, None]
    )
    most = (effects > 0).mean(axis=0) > 0.5
    places = np.flatnonzero(most)[np.argsort(-effects.mean(axis=0)[most])]
    texts = [tiny.tokens[int(at)] for at in places]
    lists = run.record()["lists"]
    assert {schema.repeated_group(name) for name in lists} == set(schema.REPEATED)
    name = next(name for name in lists if schema.repeated_group(name) == "raise")
    assert not (run.folder / f"items/{name}/model=tiny/prompt=long").exists()
    items = run.frame(f"items/{name}/model=tiny/prompt=a")["item"].to_list()
    assert schema.repeated_list("raise", items_hash(items)) == name
    tokens = items[::2]
    assert tokens == [t for t in texts if "\ufffd" not in t][: len(tokens)]
    assert items[1] == tokens[0] * 32
