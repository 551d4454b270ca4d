"""Language models: log-probabilities are those of torch, and each trap of the output head shows."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config

from engine.checkpoint.card import Checkpoint
from engine.errors import AssayError
from engine.models.language_model import LanguageModel
from engine.scoring.language_passes import LanguageScorer
from engine.scoring.rows import ContinuationRows
from engine.text.cue import Cue
from tests.support import folders, parity, slow, torch_models
from tests.support.planted import instead

CAP = 3.0


def gemma2(**changes):
    return Gemma2Config(**torch_models.GEMMA2, **changes)


# Every form of output head, under every name that its tensor has; rewards prove the decoders.
CONFIGS = {
    "llama, tied": torch_models.CONFIGS["gqa-llama3"],
    "llama, untied": torch_models.CONFIGS["mqa-linear"],
    "gemma2": lambda: gemma2(final_logit_softcapping=CAP),
    "gemma2, no final soft-cap": lambda: gemma2(final_logit_softcapping=None),
    "gemma3, images": torch_models.CONFIGS["gemma3, images"],
    "gpt_neox, untied": lambda: torch_models.gpt_neox(tie_word_embeddings=False),
    "gpt2, tied": torch_models.CONFIGS["gpt2"],
}
LENGTHS = (1, 2, 7)  # of replies, in characters
TEXTS = [chr(33 + 5 * i) + "x" * (n - 2) + "?" * (n > 1) for i, n in enumerate(2 * LENGTHS)]


@functools.cache
def build(name: str):
    """A random model whose log-probabilities vary by more than a unit."""
    return torch_models.enlarged(CONFIGS[name](), AutoModelForCausalLM, embedding=0.5)


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    """Name in `CONFIGS` -> the torch model, its conversion, and the scorer over that."""

    @functools.cache
    def make(name: str):
        folder = tmp_path_factory.mktemp("language")
        model = build(name)
        torch_models.save(model, folder / "hf")
        checkpoint = folders.convert(folder / "hf", folder / "checkpoint")
        return model, checkpoint, parity.restore(checkpoint).scorer

    return make


@torch.no_grad()
def by_torch(model, ids) -> np.ndarray:
    """Log p of every token after each position: float64 [T, V]."""
    logits = model(torch.tensor([list(map(int, ids))])).logits[0]
    return torch.log_softmax(logits.double(), -1).numpy()


def check_next_tokens(model, scorer) -> None:
    """After prompts that fill a padded length and that do not, longer than the windows."""
    for length in (45, 48):
        prompt = parity.prompt_ids(length)
        expected = by_torch(model, prompt.prefix)[-1]
        actual = scorer.prefill(prompt).logprobs
        assert actual.shape == expected.shape
        parity.assert_close(actual, expected, scale=expected.std())


def replies() -> ContinuationRows:
    return ContinuationRows(Cue.pretrained(torch_models.tokenizer(), "What is it?"), TEXTS)


def teacher_forced(model, rows: ContinuationRows) -> np.ndarray:
    """The sum over a reply's own tokens of what torch's softmax says of them, a reply at a time."""
    prefix, sums = rows.prompt.prefix, []
    for own in rows.ids:
        after = by_torch(model, [*prefix, *own])[len(prefix) - 1 : -1]
        sums.append(after[range(len(own)), own].sum())
    return np.array(sums)


def numbers(scorer) -> tuple[np.ndarray, ...]:
    """Of the token after a prompt, of replies behind it, and of the same as whole sequences."""
    rows = replies()
    opened = scorer.prefill(rows.prompt)
    scored = scorer.score(opened, rows, 0, len(rows), lambda done: None)[0][0]
    prefix = rows.prompt.prefix
    return opened.logprobs, scored, scorer.plain([[*prefix, *own] for own in rows.ids], len(prefix))


def check_replies(model, scorer) -> None:
    """Replies of several lengths, by the pass behind a prompt and by that of whole sequences."""
    expected = teacher_forced(model, replies())
    for actual in numbers(scorer)[1:]:
        parity.assert_close(actual, expected, scale=np.abs(expected).min())


CHECKS = {"next tokens": check_next_tokens, "replies": check_replies}
QUICK = [("gemma2", check) for check in CHECKS]
CASES = [(name, "next tokens") for name in CONFIGS] + [("llama, untied", "replies")]


@pytest.mark.parametrize(("name", "check"), slow.all_but(QUICK, CASES))
def test_log_probabilities_are_those_of_torch(language, name, check):
    model, _, scorer = language(name)
    CHECKS[check](model, scorer)


# Planted bugs


def configured(**changes):
    """The same weights under another output head."""

    def plant(patch, checkpoint) -> LanguageScorer:
        head = dataclasses.replace(checkpoint.card.head, **changes)
        card = dataclasses.replace(checkpoint.card, head=head)
        return parity.restore(dataclasses.replace(checkpoint, card=card)).scorer

    return plant


def head_ignored(patch, checkpoint) -> LanguageScorer:
    scorer = parity.restore(checkpoint).scorer
    embedding = scorer.params["decoder"]["embedding"][...]
    scorer.params["readouts"][0]["weight"].set_value(embedding)
    return scorer


def coded(name: str, change):
    """A method with a bug, traced anew."""

    def plant(patch, checkpoint) -> LanguageScorer:
        instead(LanguageModel, name, change)(patch)
        return parity.restore(checkpoint).rebuilt().scorer

    return plant


def read_one_early(right, self, ids, last):
    return right(self, ids, jnp.maximum(last - 1, 0))


def last_not_counted(right, self, residuals, targets, counted):
    """A reply's last token is left out."""
    last = counted.shape[1] - 1 - jnp.argmax(counted[:, ::-1], axis=1)
    others = jnp.arange(counted.shape[1]) != last[:, None]
    return right(self, residuals, targets, counted & others)


BUGS = {
    "no final soft-cap": (configured(softcap=None), "gemma2", check_next_tokens),
    "untied head ignored": (head_ignored, "llama, untied", check_next_tokens),
    "read one position early": (coded("prefill", read_one_early), "llama, tied", check_next_tokens),
    "last token not counted": (coded("_sum", last_not_counted), "llama, untied", check_replies),
}


@pytest.mark.parametrize("bug", slow.all_but(["untied head ignored"], BUGS))
def test_a_planted_bug_fails_parity(language, monkeypatch, bug):
    plant, name, check = BUGS[bug]
    model, checkpoint, _ = language(name)
    scorer = plant(monkeypatch, checkpoint)
    with pytest.raises(AssertionError, match="relative error"):
        check(model, scorer)


# Where arrays lie, and in which steps


@pytest.mark.slow
def test_mesh_and_step_size_leave_log_probabilities_unchanged(language):
    _, checkpoint, scorer = language("llama, tied")
    spread = parity.restore(checkpoint, mesh=parity.make_mesh(2, 2), step_size=4).scorer
    for actual, right in zip(numbers(spread), numbers(scorer), strict=True):
        np.testing.assert_allclose(actual, right, rtol=1e-5)


@pytest.mark.slow
def test_an_odd_vocabulary_is_split_by_its_width(tmp_path):
    config = torch_models.llama(4, 4, 8, vocab_size=265, tie_word_embeddings=False)
    model = torch_models.enlarged(config, AutoModelForCausalLM, embedding=0.5)
    torch_models.save(model, tmp_path / "hf")
    checkpoint = folders.convert(tmp_path / "hf", tmp_path / "checkpoint")
    scorer = parity.restore(checkpoint, mesh=parity.make_mesh(2, 2)).scorer
    embedding = scorer.params["decoder"]["embedding"][...]
    assert {shard.data.shape for shard in embedding.addressable_shards} == {(265, 16)}
    check_next_tokens(model, scorer)


# Conversion


@pytest.mark.parametrize(("name", "head"), [("llama, tied", True), ("llama, untied", False)])
def test_a_tied_head_has_no_parameter_of_its_own(language, name, head):
    _, checkpoint, _ = language(name)
    card = checkpoint.card
    assert (card.kind, card.head.kind, card.head.tied) == ("language model", "lm", head)
    assert ("readout.weight" in card.dtypes) == (not head)
    assert Checkpoint.open(checkpoint.path).card == card


def saved(folder, name, remove=(), tensors=None, **changes):
    torch_models.save(build(name), folder)
    folders.edit_json(folder / "config.json", remove, **changes)
    if tensors:
        torch_models.edit_tensors(folder, tensors)
    return folder


def with_head(change: float):
    def edit(tensors):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + change

    return edit


def test_a_tied_head_that_the_file_repeats_is_read_once(tmp_path):
    folder = saved(tmp_path / "hf", "llama, tied", tensors=with_head(0.0))
    checkpoint = folders.convert(folder, tmp_path / "checkpoint")
    check_next_tokens(build("llama, tied"), parity.restore(checkpoint).scorer)


@pytest.mark.parametrize(("name", "is_tied"), [("gemma2", True), ("llama, untied", False)])
def test_where_config_json_does_not_say_the_class_decides_what_is_tied(tmp_path, name, is_tied):
    folder = saved(tmp_path / "hf", name, remove=["tie_word_embeddings"])
    checkpoint = folders.convert(folder, tmp_path / "checkpoint")
    assert checkpoint.card.head.tied == is_tied


REFUSED = {
    "tied to another matrix": (
        {"name": "llama, tied", "tensors": with_head(1.0)},
        r"'lm_head\.weight' .*embedding",
    ),
    "no word about the soft-cap": (
        {"name": "gemma2", "remove": ["final_logit_softcapping"]},
        r"config\.json: no final_logit_softcapping",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_folder_that_contradicts_itself_is_refused(tmp_path, case):
    arguments, message = REFUSED[case]
    folder = saved(tmp_path / "hf", **arguments)
    with pytest.raises(AssayError, match=message):
        folders.convert(folder, tmp_path / "checkpoint")
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]
