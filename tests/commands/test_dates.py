"""A template that asks for today's date: fixed at conversion, printed, and in every result."""

import datetime
import json
import types

import pytest

from engine.checkpoint.card import Checkpoint
from engine.convert import conversion
from engine.errors import AssayError
from engine.text.chat_template import ChatTemplate, TemplatePolicy
from launch import convert, logprobs, sweep, verify
from tests.support import folders, tiny

TODAY = "Today is {{ strftime_now('%d %B %Y') }}. " + tiny.CHATML
# As Llama 3.2's: a date that the caller gives goes before today's.
LLAMA = (
    "{% if date_string is not defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    "Today Date: {{ date_string }}\n" + tiny.CHATML
)
PROMPT = "What?"
MISTRAL = {
    "architectures": ["MistralForSequenceClassification"],
    "model_type": "mistral",
    "sliding_window": None,
}

SMOLLM3 = {"architectures": ["SmolLM3ForSequenceClassification"], "model_type": "smollm3"}


def rendered(checkpoint) -> str:
    [text] = checkpoint.template.render(PROMPT, ["love"])
    return text


@pytest.fixture
def clock(monkeypatch):
    """Half past eleven in the evening of 24 November 2026 in New York; in UTC it is the 25th."""
    now = datetime.datetime(2026, 11, 25, 4, 30, tzinfo=datetime.UTC)
    fixed = types.SimpleNamespace(now=lambda zone: now.astimezone(zone))
    monkeypatch.setattr(
        conversion, "datetime", types.SimpleNamespace(datetime=fixed, UTC=datetime.UTC)
    )


@pytest.mark.parametrize(
    ("template", "changes", "date", "printed"),
    [
        (LLAMA, {}, "26 Jul 2024", "26 Jul"),
        (LLAMA, SMOLLM3, "08 Jul 2025", "08 Jul"),
        (TODAY, MISTRAL, "25 Nov 2026", "25 Nov"),
    ],
)
def test_conversion_fixes_the_date_and_says_so(
    tmp_path, clock, capsys, template, changes, date, printed
):
    """Of a Llama the date of its published templates, of a SmolLM3 the day of its release."""
    source = tiny.write_model(tmp_path / "hf", template=template, **changes)
    assert convert.main([f"--source={source}", f"--checkpoint={tmp_path / 'c'}"]) == 0
    said = capsys.readouterr().err
    assert f"its chat template prints today's date, which is now fixed: '{date}'" in said
    checkpoint = Checkpoint.open(tmp_path / "c")
    assert checkpoint.card.policy.date == date
    assert printed in rendered(checkpoint)


@pytest.mark.parametrize("text", ["2024-12-01", "1 December 2024"])
def test_a_date_may_be_chosen_and_is_spelled_in_one_way(tmp_path, capsys, text):
    source = tiny.write_model(tmp_path / "hf", template=TODAY)
    flags = [f"--source={source}", f"--checkpoint={tmp_path / 'c'}", f"--config.date={text}"]
    assert convert.main(flags) == 0
    assert "now fixed" not in capsys.readouterr().err
    checkpoint = Checkpoint.open(tmp_path / "c")
    assert checkpoint.card.policy.date == "01 Dec 2024"
    assert rendered(checkpoint).startswith("Today is 01 December 2024. ")


def test_a_text_that_is_no_date_is_refused_where_it_is_asked_for(tmp_path, capsys):
    source = tiny.write_model(tmp_path / "hf", template=TODAY)
    flags = [f"--source={source}", f"--checkpoint={tmp_path / 'c'}", "--config.date=yesterday"]
    assert convert.main(flags) == 2
    said = capsys.readouterr().err
    assert "it asks for today's date, but date='yesterday'; allowed: a date such as '26 Jul" in said
    assert not (tmp_path / "c").exists()


def test_a_template_that_asks_for_a_date_that_was_not_fixed_is_refused():
    chat = ChatTemplate(tiny.tokenizer(TODAY), TemplatePolicy(bos="template", date=None))
    assert chat.asks_date()
    with pytest.raises(AssayError, match=r"asks for today's date, but date=None; allowed: a date"):
        chat.render(PROMPT, ["love"])


def test_a_run_is_in_one_date_and_says_which(tmp_path, capsys):
    source, run = tiny.write_model(tmp_path / "hf", template=TODAY), tmp_path / "run"
    for name, date in (("a", "26 Jul 2024"), ("b", "27 Jul 2024")):
        to = f"--checkpoint={tmp_path / name}"
        assert convert.main([f"--source={source}", to, f"--config.date={date}"]) == 0
    swept = [f"--run={run}", "--config.self_check=4"]
    asked = [*swept, "--config.prompts=greatest"]
    assert sweep.main([f"--checkpoint={tmp_path / 'a'}", *asked]) == 0
    capsys.readouterr()
    other = [*swept, "--config.prompts=worst"]
    assert sweep.main([f"--checkpoint={tmp_path / 'b'}", *other]) == 2
    said = capsys.readouterr().err
    assert "model 'hf' is there already with template.date='26 Jul 2024', not '27 Jul 2024'" in said
    manifest = json.loads((run / "manifest.json").read_text())
    [result] = manifest["results"].values()
    assert result["fingerprint"]["date"] == "26 Jul 2024"
    flags = [f"--run={run}", "--rescore=8", f"--checkpoint={tmp_path / 'a'}"]
    assert verify.main(flags) == 0


def test_the_chat_form_of_a_language_model_has_a_fixed_date_too(tmp_path):
    source = tiny.write_model(tmp_path / "hf", head="lm", template=TODAY)
    checkpoint = folders.convert(source, tmp_path / "c")
    assert checkpoint.card.policy.date == "26 Jul 2024"
    flags = [f"--checkpoint={tmp_path / 'c'}", f"--run={tmp_path / 'run'}", f"--prompt={PROMPT}"]
    assert logprobs.main([*flags, "--config.form=chat"]) == 0
    [result] = json.loads((tmp_path / "run/manifest.json").read_text())["results"].values()
    assert result["fingerprint"]["date"] == "26 Jul 2024"
