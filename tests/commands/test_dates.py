"""A template that asks for today's date: fixed at conversion, printed, and in every result."""

import datetime
import types

import pytest

from engine.checkpoint.card import Checkpoint
from engine.convert import conversion
from tests.support import tiny

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


@pytest.fixture
def converted(command, tmp_path):
    """What is written of a model, and flags of `assay convert` -> what the command did."""

    def convert(*flags, to="c", **model):
        if not (source := tmp_path / "hf").exists():
            tiny.write_model(source, **model)
        return command("convert", f"--source={source}", f"--checkpoint={tmp_path / to}", *flags)

    return convert


@pytest.mark.parametrize(
    ("template", "changes", "date", "printed"),
    [
        (LLAMA, {}, "26 Jul 2024", "26 Jul"),
        (TODAY, MISTRAL, "25 Nov 2026", "25 Nov"),
    ],
)
def test_conversion_fixes_the_date_and_says_so(
    converted, clock, tmp_path, template, changes, date, printed
):
    """Of a Llama the date of its published templates."""
    done = converted(template=template, **changes)
    message = f"now fixed: '{date}'"
    assert done.code == 0 and any(message in line for line in done.err)
    checkpoint = Checkpoint.open(tmp_path / "c")
    assert checkpoint.card.policy.date == date
    assert printed in rendered(checkpoint)


@pytest.mark.parametrize("text", ["2024-12-01", "1 December 2024"])
def test_a_date_may_be_chosen_and_is_spelled_in_one_way(converted, tmp_path, text):
    done = converted(f"--config.date={text}", template=TODAY)
    assert done.code == 0 and not any("now fixed" in line for line in done.err)
    checkpoint = Checkpoint.open(tmp_path / "c")
    assert checkpoint.card.policy.date == "01 Dec 2024"
    assert rendered(checkpoint).startswith("Today is 01 December 2024. ")


def test_a_text_that_is_no_date_is_refused_where_it_is_asked_for(converted, tmp_path):
    assert "date='yesterday'" in converted("--config.date=yesterday", template=TODAY).refusal()
    assert not (tmp_path / "c").exists()


def test_the_chat_form_of_a_language_model_has_a_fixed_date_too(command, checkpoint, run):
    model = checkpoint("dated-lm", head="lm", template=TODAY)
    assert model.card.policy.date == "26 Jul 2024"
    flags = [f"--checkpoint={model.path}", f"--run={run.folder}", f"--prompt={PROMPT}"]
    assert command("logprobs", *flags, "--config.form=chat").code == 0
    [result] = run.results().values()
    assert result.identity.date == "26 Jul 2024"
