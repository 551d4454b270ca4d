"""`assay score` of files whose rows have prompts of their own, against transformers row by row."""

import json
import re

import numpy as np
import polars as pl
import pytest

import analysis
from analysis.measures import pairs
from engine.runs import schema
from engine.runs.folder import RunFolder
from engine.sweep.outcomes import Outcome
from launch.common.scoring import show_first_rows
from tests.support import folders, slow, tiny
from tests.support.tolerances import TOLERANCES

pytestmark = pytest.mark.usefixtures("one_length")
PROMPT = "What is the greatest thing?"
# Writes tools, documents, a variable, and of messages a name, what was thought, and calls of tools;
# turns of one role must not follow one another.
TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}\n{% endif %}{% if documents %}{{ documents }}\n{% endif %}"
    "{% if style is defined %}{{ style }}\n{% endif %}"
    "{% for m in messages %}{% if loop.index0 and m.role == messages[loop.index0 - 1].role %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "<|im_start|>{{ m.role }}{{ ' ' + m.name if m.name else '' }}\n"
    "{% if m.reasoning_content is defined %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% else %}{{ m.content }}{% endif %}"
    "<|im_end|>\n{% endfor %}"
)


def turns(*contents, system=None):
    """Messages of user and assistant in turn."""
    roles = ("user", "assistant") * len(contents)
    messages = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]
    return [{"role": "system", "content": system}] * (system is not None) + messages


SUBSETS = (
    "alpacaeval-easy",
    "mt-bench-easy",
    "llmbar-natural",
    "donotanswer",
    "math-prm",
    "hep-go",
)
REWARDBENCH = [
    {"prompt": f"{PROMPT} ({n})", "chosen": f"love {'and truth ' * (n % 3)}", "chosen_model": "gpt"}
    | {"rejected": "war" * (1 + n % 2), "rejected_model": "llama", "subset": subset, "id": n}
    for n, subset in enumerate(SUBSETS)
]
TRL = [
    {"prompt": turns("Hi", system="Be kind."), "chosen": [m], "rejected": [n]}
    for m, n in [
        ({"role": "assistant", "content": "love"}, {"role": "assistant", "content": "war"}),
        ({"role": "assistant", "content": "the truth"}, {"role": "assistant", "content": "zq"}),
    ]
]
# Many replies to one prompt, which share its prefix, and some that say the same.
BEST_OF = [{"prompt": PROMPT, "response": "love " * (number % 18)} for number in range(20)]
# An empty reply, unicode, the prompt itself, equal replies: odd, and scored.
ODD_BUT_RIGHT = [
    {"prompt": "a", "chosen": "", "rejected": "b"},
    {"prompt": "\u202e", "chosen": "ﷺ", "rejected": "\x00🏳️‍🌈"},
    {"prompt": "a", "chosen": "a", "rejected": "a b"},
    {"prompt": "a", "chosen": "b", "rejected": "b"},
    {"prompt": "é ∂ 👍🏽", "chosen": "naïve — 東京\u200b", "rejected": " "},
]
THOUGHT = {"role": "assistant", "content": "x", "reasoning_content": "the quick brown fox"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}
TOOLS = [{"type": "function", "function": {"name": "f", "strict": True}}]
NAMED = {"role": "user", "content": "a?", "name": "Ann"}
DOCUMENTS = [{"title": "t", "text": "love"}]
THOUGHTS = {"chosen": [*turns("a?"), THOUGHT], "rejected": turns("a?", "x")}
CALLS = {"chosen": [*turns("a?"), CALL], "rejected": turns("a?", "y")}
# Rows -> the conversations that transformers renders, and variables of the template.
BEYOND_CONTENT = [
    (THOUGHTS, THOUGHTS, {}),
    (
        {"messages": CALLS["chosen"], "rejected_messages": CALLS["rejected"], "tools": TOOLS},
        CALLS,
        {"tools": TOOLS},
    ),
    (
        {"messages": [{**NAMED, "weight": 0}, THOUGHT], "rejected_response": "z"}
        | {"documents": DOCUMENTS, "chat_template_kwargs": {"style": "brief"}},
        {"chosen": [NAMED, THOUGHT], "rejected": [NAMED, {"role": "assistant", "content": "z"}]},
        {"documents": DOCUMENTS, "style": "brief"},
    ),
]
FILES = {"rewardbench": REWARDBENCH, "trl": TRL, "best-of": BEST_OF, "odd": ODD_BUT_RIGHT}


def in_torch(hf):
    """Reward of ids by the classification model of transformers, and the tokenizer."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch_model = AutoModelForSequenceClassification.from_pretrained(hf).eval()

    @torch.no_grad()
    def reward(ids):
        return torch_model(torch.tensor([ids])).logits.item()

    return reward, AutoTokenizer.from_pretrained(hf)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A checkpoint, and its rewards of conversations by transformers."""
    folder = tmp_path_factory.mktemp("pairs")
    hf = tiny.write_model(folder / "hf", template=TEMPLATE, max_position_embeddings=512)
    checkpoint = folders.convert(hf, folder / "checkpoint", "judge")
    of_ids, tokenizer = in_torch(hf)

    def reward(messages, **variables):
        return of_ids(tokenizer.apply_chat_template(messages, return_dict=False, **variables))

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
    """The conversations of a row, written out, each with its side."""
    sides = ("chosen", "rejected") if "chosen" in row else ("response",)
    found = []
    for side, reply in ((side, row[side]) for side in sides):
        prompt = row.get("prompt", [])
        prompt = turns(prompt) if isinstance(prompt, str) else prompt
        reply = [{"role": "assistant", "content": reply}] if isinstance(reply, str) else reply
        own = reply[: len(prompt)] == prompt
        name = "reply" if side == "response" else side
        found.append((name, reply if own else [*prompt, *reply]))
    return found


_QUICK = [("rewardbench", "text"), ("trl", "ids")]


@pytest.mark.parametrize(("name", "mode"), slow.all_but(_QUICK, [(name, "text") for name in FILES]))
def test_every_reward_is_that_of_transformers(score, model, tmp_path, name, mode):
    """In mode `ids` too, since no byte of these texts merges with the template's."""
    rows = FILES[name]
    suffix = "parquet" if name == "rewardbench" else "jsonl"
    done = score(rows, f"--config.mode={mode}", "--config.self_check=2", name=f"list.{suffix}")
    assert done.code == 0, done.err
    found = pairs.replies(analysis.load(tmp_path / "run"), "list")
    expected = [model[1](messages) for row in rows for _, messages in whole(row)]
    assert found["side"].to_list() == [side for row in rows for side, _ in whole(row)]
    np.testing.assert_allclose(found["reward"], expected, rtol=TOLERANCES["float32"], atol=1e-4)


def test_other_keys_of_messages_and_variables_reach_the_template(score, model, tmp_path):
    """Rows of Parquet have null for each key that any message has; `weight` is written nowhere."""
    for number, (row, conversations, variables) in enumerate(BEYOND_CONTENT):
        flags = ("--config.self_check=2", f"--name=list{number}", "--json")
        done = score([row], *flags, name="list.parquet").fine()
        assert any("weight" in line for line in done.err) == ("weight" in str(row))
        found = pairs.replies(analysis.load(tmp_path / "run"), f"list{number}")
        expected = [model[1](conversation, **variables) for conversation in conversations.values()]
        assert found["side"].to_list() == [*conversations]
        np.testing.assert_allclose(found["reward"], expected, rtol=1e-4, atol=1e-4)
    assert "reasoning_content: the quick brown fox" in found["reply"][0]


LONG, FIRST = "love" * 600, {"prompt": "a", "chosen": "b"}
# Rows of a file, and the row, its field and value in the line that refuses them.
ODD = [
    ([{"prompt": "a", "chosen": "b", "rejected": LONG}], "row 1, rejected: .* 618 .* 512"),
    (
        [{"messages": turns("a", "b")}, {"messages": turns("a", "b", "c")}],
        "row 2: messages: .*user",
    ),
    ([{"messages": [*turns("a", "b"), turns("a", "b")[1]]}], "row 1: .*roles must alternate"),
    ([{**FIRST, "rejected": ""}, FIRST], "row 2: rej"),
    ([{"messages": [{"role": "gpt", "content": "b"}]}], "row 1: messages: message 1: role='gpt'; "),
    ([{"chosen": "\n\nHuman: a", "rejected": "b"}], "row 1: chosen: .*'Human: …'"),
    ([{"prompt": "a", "reply": str(turns("a", "b"))}], "row 1: reply: messages"),
    ([{"prompt": "a", "reply": "\ud800"}], "row 1: reply: .*surrogate"),
]


@pytest.mark.parametrize(("rows", "message"), ODD)
def test_odd_rows_are_one_line_that_names_the_row(score, tmp_path, rows, message):
    done = score(rows)
    assert done.code == 2 and re.search(f"^score: (items=.*list.jsonl: )?{message}", done.err[-1])
    assert not (tmp_path / "run" / "conversations").exists()


def test_a_list_is_resumed_verified_and_scored_again(score, command, model, tmp_path):
    run, flags = tmp_path / "run", ("--config.part_size=6", "--config.self_check=2")
    done = score(REWARDBENCH, *flags)
    assert done.out[-1].endswith("replies.csv: 1 model × 6 pairs, 12 new rewards")
    folder = run / "conversations" / "list"
    part, table = folder / "model=judge" / "part-0000006-0000012.parquet", folder / "list.parquet"
    before, place = (part.read_bytes(), table.read_bytes()), schema.list_path("list")
    part.unlink()
    assert f"{part.name}: missing" in command("verify", f"--run={run}").out[0]
    assert score(REWARDBENCH, *flags).out[-1].endswith("6 pairs, 6 new rewards")
    command("verify", f"--run={run}", "--rescore=4", f"--checkpoint={model[0].path}").fine()
    (run / "run.json").unlink()
    assert score(REWARDBENCH, *flags).out[-1].endswith("complete already")
    assert (part.read_bytes(), table.read_bytes()) == before
    other = score(REWARDBENCH[:5], *flags)
    assert "rows=12, not 10" in other.err[-1]
    reversed_list, folder = pl.read_parquet(table)[::-1], RunFolder.open(str(run))
    del folder.tables[place]
    folder.save({place: reversed_list})
    assert f"{table}: other conversations" in command("verify", f"--run={run}").out[0]
    table.write_bytes(before[1][:-1] + b"x")
    assert f"{table}: damaged" in command("verify", f"--run={run}").out[0]


def test_texts_without_a_prompt_take_the_one_that_is_given(score, model, tmp_path):
    rows = [{"chosen": "love", "rejected": "war"}]
    assert score(rows, "--prompt=Be kind.␞Why?", "--config.self_check=2").code == 0
    found = pl.read_csv(tmp_path / "run" / "conversations" / "list" / "replies.csv")
    asked = [turns("Why?", reply, system="Be kind.") for reply in ("love", "war")]
    expected = [model[1](messages) for messages in asked]
    np.testing.assert_allclose(found["reward"], expected, rtol=1e-4, atol=1e-4)


def test_a_csv_may_hold_messages_and_labels_are_kept(score, tmp_path):
    """Labels of our columns' names get another one."""
    chat = json.dumps(turns("a", "b")).replace('"', '""')
    text = f'messages,id,margin,kind\n"{chat}",x,wide,\n"{chat}",y,,good\n'
    assert score(text, "--config.self_check=2", name="list.csv").code == 0
    found = pl.read_csv(tmp_path / "run" / "conversations" / "list" / "replies.csv")
    kept = found.select("id", "prompt", "reply", "label_margin", "kind", "right").rows()
    assert kept == [("x", "a", "b", "wide", None, None), ("y", "a", "b", None, "good", None)]


# Texts that merge where they meet, end with eos, or hold spaces.
TEXTS = [
    ("Why?\n", "\nlove", " zq "),
    (PROMPT, "?", "the truth<|im_end|>"),
    ("user", "\nlove", ""),
    ("é " * 20, "war " * 9, "love"),
]


def test_rows_of_texts_are_rendered_as_trl_does(command, source, tmp_path):
    """As `RewardTrainer._prepare_dataset` of TRL 0.24 to 1.9 does, by a tokenizer that adds BOS."""
    hf = tiny.write_model(tmp_path / "judge", pad_token_id=2)  # eos
    tiny.tokenizer(adds_bos=True).save_pretrained(hf)
    rows = [dict(zip(("prompt", "chosen", "rejected"), texts, strict=True)) for texts in TEXTS]
    path = source("".join(json.dumps(row) + "\n" for row in rows), "list.jsonl")
    flags = [f"--checkpoint={hf}", f"--run={tmp_path}/run", f"--config.cache={tmp_path}/cache"]
    flags += ["--config.self_check=2", "--config.convert.template=trl"]
    done = command("score", *flags, f"--items={path}").fine()
    assert any(line.endswith("<|endoftext|>Why?↵↵⟦love⟧<|im_end|>") for line in done.err)
    command("sweep", *flags, "--prompt=Why?\n").fine()

    (reward, tokenizer), run = in_torch(hf), analysis.load(tmp_path / "run")
    eos, swept = tokenizer.eos_token, run.scores(models=["judge"]).collect()
    swept = swept.filter(pl.col("token_id") % 40 == 7)
    texts = [p + (r if r.endswith(eos) else r + eos) for p, *replies in TEXTS for r in replies]
    start, end = tokenizer("Why?\n")["input_ids"], tokenizer.eos_token_id
    for found, ids in (
        (pairs.replies(run, "list"), tokenizer(text=texts)["input_ids"]),
        (swept, [[*start, i, end] for i in swept["token_id"]]),
    ):
        expected = [reward(sequence) for sequence in ids]
        within = 1e-4 * np.ptp(expected)
        np.testing.assert_allclose(found["reward"], expected, rtol=0, atol=within)


def test_messages_are_not_rendered_as_trl_renders_texts(command, source, tmp_path):
    """TRL renders them in the chat template. Nothing is swept before."""
    hf, out = tiny.write_model(tmp_path / "judge"), tmp_path / "out"
    path = source(json.dumps(TRL[1]) + "\n", "list.jsonl")
    flags = [hf, f"--out={out}", f"--items={path}", f"--config.cache={tmp_path / 'cache'}"]
    done = command("report", *flags, "--config.convert.template=trl")
    assert done.code == 2 and re.match("report: list: .*messages.* judge ", done.err[-1])
    assert not list(out.rglob("*.parquet"))


def test_a_comparison_says_once_how_its_pairs_are_rendered(capsys):
    """Models that render them alike have one line."""
    rows = {"a": "x", "b": "y", "c": "x"}
    show_first_rows([Outcome(model=m, prompts=1, first_row=row) for m, row in rows.items()])
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == ["a, c", "b"]


def test_a_report_sweeps_its_prompts_and_scores_pairs_under_their_own(
    command, model, source, tmp_path, monkeypatch
):
    monkeypatch.setattr("launch.common.reporting.report_on", lambda runs, target, settings: target)
    path = source("".join(json.dumps(row) + "\n" for row in TRL), "trl.jsonl")
    flags = ("--prompt=Why?", "--prompt=How?", f"--out={tmp_path}", "--config.self_check=1")
    done = command("report", model[0].path, f"--items={path}", "--json", *flags).fine()
    *swept, listed = json.loads(done.out[-1])["results"]
    assert [result["text"] for result in swept] == ["Why?", "How?"]
    margins = {}
    for number, row in enumerate(dict(whole(row)) for row in TRL):
        margins[number + 1] = model[1](row["chosen"]) - model[1](row["rejected"])
    assert listed["accuracy"] == np.mean(np.array([*margins.values()]) > 0)
    assert listed["margin"] == pytest.approx(np.mean([*margins.values()]), abs=1e-4)
    by_margin = sorted(margins, key=lambda row: margins[row])
    assert [row["row"] for row in listed["worst"]] == by_margin
    cut = analysis.load(tmp_path / "run").running_scores("trl", model[0].card.slug)
    assert cut["row"].unique(maintain_order=True).to_list() == by_margin[:3]
    for messages, reward in cut.select("messages", model[0].card.slug).iter_rows():
        assert reward == pytest.approx(model[1](messages), abs=1e-4)
