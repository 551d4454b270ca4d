"""`assay score` of files whose rows have prompts of their own, against transformers row by row."""

import json

import numpy as np
import polars as pl
import pytest

import analysis
from analysis.measures import pairs
from tests.support import folders, tiny
from tests.support.tolerances import TOLERANCES

PROMPT = "What is the greatest thing?"
# As templates do that know no tools and no turns in any order.
ALTERNATING = (
    "{% for message in messages %}{% if loop.index0 and message.role == messages[loop.index0 - 1]."
    "role %}{{ raise_exception('roles must alternate') }}{% endif %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
)


def turns(*contents, system=None):
    """Messages of user and assistant in turn."""
    roles = ("user", "assistant") * len(contents)
    said = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]
    return [{"role": "system", "content": system}] * (system is not None) + said


REWARDBENCH = [
    {
        "prompt": f"{PROMPT} ({number})",
        "chosen": f"love {'and truth ' * (number % 3)}",
        "chosen_model": "gpt",
        "rejected": "war" * (1 + number % 2),
        "rejected_model": "llama",
        "subset": subset,
        "id": number,
    }
    for number, subset in enumerate(
        ("alpacaeval-easy", "mt-bench-easy", "llmbar-natural", "donotanswer", "math-prm", "hep-go")
    )
]
TRL = [
    {"prompt": turns("Hi", system="Be kind."), "chosen": turns()[:0] + [m], "rejected": [n]}
    for m, n in [
        ({"role": "assistant", "content": "love"}, {"role": "assistant", "content": "war"}),
        ({"role": "assistant", "content": "the truth"}, {"role": "assistant", "content": "zq"}),
    ]
]
SKYWORK = [
    {
        "chosen": turns("a", "b", "c", "love"),
        "rejected": turns("a", "b", "c", "war"),
        "source": "x",
    },
    {"chosen": turns(PROMPT, "7"), "rejected": turns(PROMPT, "8"), "source": None},
    {"chosen": turns("Go", "on"), "rejected": turns("Go", "on"), "source": "x"},
]
ULTRAFEEDBACK = [
    {
        "prompt": PROMPT,
        "prompt_id": "f0",
        "chosen": turns(PROMPT, "love"),
        "rejected": turns(PROMPT, "war"),
        "messages": turns(PROMPT, "love"),
        "score_chosen": 8.5,
    }
]
# Many replies to one prompt, which share its prefix, and some that say the same.
BEST_OF = [{"prompt": PROMPT, "response": "love " * (number % 18)} for number in range(20)]
CHATS = [
    {"messages": turns("é ∂ 👍🏽", "naïve — 東京\u200b")},
    {"messages": turns("Hi", "", system="")},
    {"messages": turns("love", "love")},
]
FILES = {
    "rewardbench": REWARDBENCH,
    "trl": TRL,
    "skywork": SKYWORK,
    "ultrafeedback": ULTRAFEEDBACK,
    "best-of": BEST_OF,
    "chats": CHATS,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A checkpoint, and its rewards of conversations by transformers."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = tmp_path_factory.mktemp("pairs")
    hf = tiny.write_model(folder / "hf", template=ALTERNATING, max_position_embeddings=512)
    checkpoint = folders.convert(hf, folder / "checkpoint", "judge")
    torch_model = AutoModelForSequenceClassification.from_pretrained(hf).eval()
    tokenizer = AutoTokenizer.from_pretrained(hf)

    @torch.no_grad()
    def reward(messages):
        ids = tokenizer.apply_chat_template(messages, return_dict=False)
        return torch_model(torch.tensor([ids])).logits.item()

    return checkpoint, reward


@pytest.fixture
def score(command, model, tmp_path):
    """Rows of a file, or the file itself, and flags -> what `assay score` did."""

    def run(rows, *flags, name="list.jsonl"):
        path = tmp_path / name
        if name.endswith(".jsonl"):
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        elif name.endswith(".parquet"):
            pl.DataFrame(rows).write_parquet(path)
        else:
            path.write_text(rows)
        checkpoint = f"--checkpoint={model[0].path}"
        return command("score", checkpoint, f"--run={tmp_path / 'run'}", f"--items={path}", *flags)

    return run


def whole(row):
    """The conversations of a row, written out."""
    if "messages" in row and "chosen" not in row:
        return {"reply": row["messages"]}
    sides = ("chosen", "rejected") if "chosen" in row else ("response",)
    found = {}
    for side in sides:
        reply, prompt = row[side], row.get("prompt", [])
        prompt = turns(prompt) if isinstance(prompt, str) else prompt
        reply = [{"role": "assistant", "content": reply}] if isinstance(reply, str) else reply
        own = reply[: len(prompt)] == prompt
        found["reply" if side == "response" else side] = reply if own else [*prompt, *reply]
    return found


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("mode", ["text", "ids"])
def test_every_reward_is_that_of_transformers(score, model, tmp_path, name, mode):
    """In mode `ids` too, since no byte of these texts merges with the template's."""
    rows = FILES[name]
    suffix = "parquet" if name in ("skywork", "rewardbench") else "jsonl"
    done = score(rows, f"--config.mode={mode}", name=f"list.{suffix}")
    assert done.code == 0, done.err
    found = pairs.replies(analysis.load(tmp_path / "run"), "list")
    expected = [model[1](messages) for row in rows for messages in whole(row).values()]
    assert found["side"].to_list() == [side for row in rows for side in whole(row)]
    np.testing.assert_allclose(found["reward"], expected, rtol=TOLERANCES["float32"], atol=1e-4)
