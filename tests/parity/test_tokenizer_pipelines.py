"""What a folder's tokenizer, template and pad token do to numbers: held against torch.

The reference tokenises with the `tokenizers` library and the folder's tokenizer.json itself, writes
the conversation out by hand, and lets transformers' class choose where it reads the reward.
`AutoTokenizer` is no reference: it rebuilds some of these tokenizers.
"""

import functools

import numpy as np
import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, LlamaForCausalLM

import engine
from engine.errors import AssayError
from launch import logprobs, search, sweep, verify
from tests.support import folders, pipelines, slow, torch_models
from tests.support.pipelines import BOS, CLOSES, OPENS, PIPELINES, ROWS, TEXTS
from tests.support.sweeps import Run

PROMPT = "What, in one word, is the greatest thing ever?"
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
BODY = "{{ m['role'] }}\n{{ m['content'] }}"
TURN = f"{OPENS}{BODY}{CLOSES}"
TEMPLATES = {
    "closes": "{% for m in messages %}" + TURN + "{% endfor %}",
    "closes and ends a line": "{% for m in messages %}" + TURN + "\n{% endfor %}",
    "ends with the reply": (
        "{% for m in messages %}"
        + f"{OPENS}{BODY}{{% if not loop.last %}}{CLOSES}{{% endif %}}{{% endfor %}}"
    ),
    "a space before the reply": (
        f"{BOS}{{% for m in messages %}}{{{{ m['role'] }}}}: {{{{ m['content'] }}}}"
        f"{CLOSES}{{% endfor %}}"
    ),
}
PADS = {"the closing token": CLOSES, "another token": BOS}
# That texts become the ids of the file is shown of all. What is made of ids differs where a space
# stands before a text, and where ids have gaps; then each template, and each pad token behind what
# is read.
LINE, SPACED = "closes and ends a line", "a space before the reply"
QUICK = [
    ("Metaspace always, Llama's class", LINE, "another token"),
    ("gaps", LINE, "another token"),
    ("gaps", SPACED, "another token"),
]
CASES = [
    ("byte level", LINE, "another token"),
    ("Metaspace first, Llama's class", LINE, "another token"),
    ("gaps", "closes", "the closing token"),
    ("gaps", LINE, "the closing token"),
    ("gaps", "ends with the reply", "another token"),
]


def written(template: str, reply: str) -> str:
    """The conversation, without any template engine."""
    turns = (("user", PROMPT), ("assistant", reply))
    if template == "a space before the reply":
        return BOS + "".join(f"{role}: {text}{CLOSES}" for role, text in turns)
    end = "\n" if template == "closes and ends a line" else ""
    whole = "".join(f"{OPENS}{role}\n{text}{CLOSES}{end}" for role, text in turns)
    return whole.removesuffix(CLOSES) if template == "ends with the reply" else whole


class Folder:
    """A model folder, its checkpoint, and the references."""

    def __init__(self, place, name, template, pad, auto=AutoModelForSequenceClassification):
        source = place / "hf"
        source.mkdir()
        self.template = template
        jinja = TEMPLATES[template] if template else None
        self.raw = pipelines.write(name, source, jinja)
        self.pad = self.raw.token_to_id(PADS[pad])
        config = torch_models.llama(
            *(4, 2, 8),
            vocab_size=ROWS,
            pad_token_id=self.pad,
            tie_word_embeddings=False,
            num_hidden_layers=1,
        )
        self.network = torch_models.enlarged(config, auto)
        self.network.save_pretrained(source)
        self.checkpoint = folders.convert(source, place / "checkpoint", "tiny")

    def ids(self, text: str) -> list[int]:
        return self.raw.encode(text, add_special_tokens=False).ids

    @functools.cached_property
    def candidates(self) -> list[int]:
        return sorted(i for i in self.raw.get_vocab(with_added_tokens=True).values() if i < ROWS)

    @functools.cached_property
    def around(self) -> tuple[list[int], list[int]]:
        """Ids before and after a reply, of a template that can be cut."""
        [before, after] = written(self.template, "\0").split("\0")
        return self.ids(before), self.ids(after)

    def reward(self, ids: list[int]) -> float:
        """The class itself decides where it reads."""
        with torch.inference_mode():
            return float(self.network(torch.tensor([ids])).logits)

    def rewards(self, sequences) -> np.ndarray:
        return np.array([self.reward(ids) for ids in sequences])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    @functools.cache
    def build(name, template="closes and ends a line", pad="another token", **options):
        return Folder(tmp_path_factory.mktemp("folder"), name, template, pad, **options)

    return build


@pytest.mark.parametrize("name", PIPELINES)
def test_texts_become_the_ids_of_the_file(folder, name):
    own = folder(name)
    tokenizer = own.checkpoint.tokenizer
    for text in TEXTS:
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == own.ids(text)
        assert tokenizer(text)["input_ids"] == own.raw.encode(text).ids
    for token in own.candidates:
        assert own.checkpoint.tokens[token] == own.raw.decode([token], skip_special_tokens=False)


@pytest.mark.slow
def test_a_reply_has_no_space_that_the_tokenizer_puts_before_a_text_of_its_own(folder):
    """Among the template's ids; a search starts from these."""
    own = folder("Metaspace always, Llama's class")
    model, replies = engine.load(own.checkpoint.path), ["war and peace", "7", "love"]
    by_text = model.score(PROMPT, replies)
    np.testing.assert_allclose(model.score(PROMPT, replies, mode="ids"), by_text, **TOLERANCE)
    before, after = own.around
    for reply in replies:
        ids = own.ids(written(own.template, reply))[len(before) : -len(after)]
        assert own.checkpoint.template.reply_ids(reply) == ids


@pytest.mark.parametrize("name", slow.all_but(["gaps"], ["Metaspace always, Llama's class"]))
def test_log_probabilities_are_those_of_the_ids_of_the_file(folder, name, tmp_path):
    own = folder(name, template=None, auto=AutoModelForCausalLM)
    assert isinstance(own.network, LlamaForCausalLM)
    flags = [f"--checkpoint={own.checkpoint.path}", f"--run={tmp_path}", f"--prompt={PROMPT}"]
    assert logprobs.main(flags) == 0
    frame = pl.read_parquet(tmp_path / "logprobs" / "**/*.parquet").sort("token_id")
    assert frame["token_id"].to_list() == own.candidates
    ids = own.raw.encode(f"User: {PROMPT}\nAssistant:").ids
    with torch.inference_mode():
        expected = own.network(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
    np.testing.assert_allclose(frame["logprob"], expected[own.candidates], **TOLERANCE)


@pytest.mark.parametrize(("name", "template", "pad"), slow.all_but(QUICK, CASES))
def test_rewards_of_the_ids_of_the_file_are_read_where_transformers_reads_them(
    folder, name, template, pad
):
    """By a sweep of what the embedding holds, and a list of texts, whatever closes the turn."""
    own = folder(name, template, pad)
    assert own.checkpoint.token_ids == own.candidates
    model = engine.load(own.checkpoint.path)
    assert isinstance(model, engine.RewardModel)
    found = model.sweep(PROMPT, mode="auto" if template == SPACED else "ids").sort("token_id")
    assert found["token_id"].to_list() == own.candidates
    sample = [*own.candidates[::29], *own.candidates[-3:], own.pad]
    if template != SPACED:
        before, after = own.around
        rows = [[*before, i, *after] for i in sample]
    else:
        texts = (own.raw.decode([i], skip_special_tokens=False) for i in sample)
        rows = [own.ids(written(template, text)) for text in texts]
    rewards, expected = dict(found.select("token_id", "reward").iter_rows()), own.rewards(rows)
    assert expected.std() > 0.1
    np.testing.assert_allclose([rewards[i] for i in sample], expected, **TOLERANCE)
    replies = [*TEXTS, CLOSES, f"love{CLOSES}{CLOSES}"]
    expected = own.rewards(own.ids(written(template, text)) for text in replies)
    np.testing.assert_allclose(model.score(PROMPT, replies), expected, **TOLERANCE)
    closing = own.ids(written(template, "love"))[-1]
    by_pad = closing == own.pad or template == "ends with the reply"
    assert own.checkpoint.card.pooling == ("last_non_pad" if by_pad else "last")


@pytest.mark.slow
def test_a_searchs_file_holds_rewards_that_are_read_where_transformers_reads_them(folder, tmp_path):
    """Its last reward, the reward of its text, and what `verify --rescore` computes again."""
    own = folder("gaps", "ends with the reply", "another token")
    flags = [f"--checkpoint={own.checkpoint.path}", f"--run={tmp_path}"]
    searched = ["--config.length=2", "--config.steps=3", "--config.candidates=32"]
    searched += ["--config.topk=64", "--config.direction=max", "--config.round_trip=True"]
    assert search.main([*flags, f"--prompt={PROMPT}", *searched]) == 0
    [file] = (tmp_path / "sequences").rglob("*.parquet")
    last = pl.read_parquet(file).row(-1, named=True)
    before, after = own.around
    expected = own.reward([*before, *last["token_ids"], *after])
    np.testing.assert_allclose(last["reward"], expected, **TOLERANCE)
    [result] = (r for r in Run(tmp_path).results().values() if r.is_search)
    assert result.identity.pooling == "last_non_pad"
    from_text = own.reward(own.ids(written(own.template, last["text"])))
    np.testing.assert_allclose(result.self_check.reward_from_text, from_text, **TOLERANCE)
    assert verify.main([*flags, "--rescore=4"]) == 0


def test_a_token_that_would_not_be_read_at_a_replys_end_is_left_out_of_searches_and_swaps(folder):
    own = folder("gaps", "closes", "the closing token")
    model = engine.load(own.checkpoint.path)
    settings = {"length": 2, "specials": True, "steps": 1}
    with pytest.raises(AssayError, match="the filters leave no token"):
        model.search(PROMPT, allow=(CLOSES,), **settings)
    with pytest.raises(AssayError, match="ends with the pad token"):
        model.certify(PROMPT, f"x{CLOSES}", specials=True)


def test_a_template_that_cannot_be_cut_is_swept_as_text_and_says_so(folder, tmp_path, capsys):
    own = folder("byte level", "a space before the reply")
    flags = [f"--checkpoint={own.checkpoint.path}", f"--run={tmp_path}", f"--prompt={PROMPT}"]
    assert sweep.main([*flags, "--config.mode=ids"]) == 2
    message = capsys.readouterr().err
    assert "'love'" in message
    assert "allowed: --config.mode=text" in message
    assert not (tmp_path / "run.json").exists()
    assert sweep.main(flags) == 0
    assert "note: tiny: " in capsys.readouterr().err
    [result] = Run(tmp_path).results().values()
    assert result.identity.mode == "text"
    with pytest.raises(AssayError, match=r"^chat template of .*allowed: --config\.mode=text"):
        engine.load(own.checkpoint.path).search(PROMPT)
