"""Which chat template a converted model has: the folder's, a file, the raw one, one of several."""

import re

import pytest

from engine.convert import templates
from engine.errors import AssayError
from engine.sweep.setup import vocabulary_of
from engine.text.chat_template import with_system
from tests.support import folders, tiny, torch_models

PROMPT, REPLY = "What is it?", "love"
JUDGE = (
    "{{ messages[0]['content'] }}\nAnswer: {{ messages[1]['content'] }}\nIs it right? "
    "{{ strftime_now('%Y-%m-%d') }}\n"
)


def without_template(folder) -> None:
    (folder / "chat_template.jinja").unlink()


def several(folder, **texts: str) -> None:
    """Named templates, as transformers writes them."""
    tokenizer = torch_models.tokenizer()
    tokenizer.chat_template = texts
    without_template(folder)
    tokenizer.save_pretrained(folder)


def text_of(checkpoint) -> str:
    [text] = checkpoint.template.render(PROMPT, [REPLY])
    return text


@pytest.mark.parametrize("template", ["raw", "file"])
def test_a_folder_without_a_template_takes_the_users(folder, tmp_path, template):
    without_template(folder)
    file = tmp_path / "judge.jinja"
    file.write_text(JUDGE)
    given = str(file) if template == "file" else template
    checkpoint = folders.convert(folder, tmp_path / "out", template=given, date="2024-07-26")
    judged = f"{PROMPT}\nAnswer: {REPLY}\nIs it right? 2024-07-26"
    assert text_of(checkpoint) == (judged if template == "file" else PROMPT + REPLY)


def test_the_template_of_trl_needs_an_eos_token():
    tokenizer = torch_models.tokenizer()
    tokenizer.eos_token = None
    with pytest.raises(AssayError, match=r"template='trl': .*eos"):
        templates.choose(tokenizer, "trl")


def test_a_template_may_demand_a_system_turn_and_then_refuses_prompts_without_one(folder, tmp_path):
    plain = folders.convert(folder, tmp_path / "plain")
    role = "{% if messages[0].role != 'system' %}{{ raise_exception('no system turn') }}{% endif %}"
    (folder / "chat_template.jinja").write_text(role + plain.tokenizer.chat_template)
    made = folders.convert(folder, tmp_path / "out")
    prompt = with_system("Be kind.", PROMPT)
    assert made.template.split(prompt) == plain.template.split(prompt)
    assert vocabulary_of(made).equals(vocabulary_of(plain))
    with pytest.raises(AssayError, match=r"\(no system turn\)$"):
        made.template.split(PROMPT)


def test_one_of_several_templates_is_named(folder, tmp_path):
    several(folder, judge="J {{ messages[1]['content'] }}", chat=tiny.CHATML)
    checkpoint = folders.convert(folder, tmp_path / "out", template="judge")
    assert text_of(checkpoint) == f"J {REPLY}"
    message = r"'default'; .*--config\.template"
    with pytest.raises(AssayError, match=message + ".*'judge'"):
        folders.convert(folder, tmp_path / "other")


def test_of_several_templates_the_default_one_is_usual(folder, tmp_path):
    several(folder, default="D {{ messages[1]['content'] }}", tool_use=tiny.CHATML)
    assert text_of(folders.convert(folder, tmp_path / "out")) == f"D {REPLY}"


@pytest.mark.parametrize("given", ["no-such-file", "."])
def test_what_is_no_template_is_refused(folder, tmp_path, given):
    several(folder, judge=tiny.CHATML)
    message = rf"template='{re.escape(given)}'; .*'raw', 'trl', "
    message += "'judge'$"
    with pytest.raises(AssayError, match=message):
        folders.convert(folder, tmp_path / "out", template=given)


@pytest.mark.parametrize(
    "template",
    [
        tiny.CHATML,
        tiny.CHATML + "\n",
        "\n  " + tiny.CHATML,
        "{% if true %}\n   {% endif %}\n" + tiny.CHATML + "end\n",
        "{% macro turn(m) %}<{{ m.role }}>{{ m.content }}{% endmacro %}\n"
        "{% for m in messages %}{% generation %}{{ turn(m) }}{% endgeneration %}{% endfor %}\n\n",
    ],
)
@pytest.mark.parametrize("kind", ["BEHIND", "INSIDE"])
def test_a_marked_template_renders_as_it_did_up_to_the_mark(monkeypatch, template, kind):
    tokenizer = torch_models.tokenizer()
    monkeypatch.setattr(templates, kind, {"Some": "<|im_start|>"})
    tokenizer.chat_template = template
    end = "<|im_start|>"
    reply = REPLY + end if kind == "INSIDE" else REPLY
    messages = [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": reply}]
    whole = tokenizer.apply_chat_template(messages, tokenize=False)
    expected = whole.rpartition(end)[0] + end if kind == "INSIDE" else whole + end
    messages[1]["content"] = REPLY
    assert templates.mark(tokenizer, "Some") == 1
    assert tokenizer.apply_chat_template(messages, tokenize=False) == expected


@pytest.mark.parametrize("kind", ["BEHIND", "INSIDE"])
def test_a_template_that_writes_the_mark_itself_does_not_get_it_twice(monkeypatch, kind):
    tokenizer = torch_models.tokenizer()
    monkeypatch.setattr(templates, kind, {"Some": "<|im_start|>"})
    tokenizer.chat_template = "<|im_start|>{{ messages[1]['content'] }}<|im_start|>"
    templates.mark(tokenizer, "Some")
    messages = [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": REPLY}]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    assert text == f"<|im_start|>{REPLY}<|im_start|>"


@pytest.mark.parametrize("several", [False, True])
def test_the_mark_stands_in_the_default_one_of_several_templates(monkeypatch, several):
    monkeypatch.setattr(templates, "BEHIND", {"Marked": "<|im_end|>"})
    tokenizer = torch_models.tokenizer()
    tokenizer.chat_template = {"default": JUDGE, "tools": "x"} if several else JUDGE
    (expected,) = tokenizer("<|im_end|>", add_special_tokens=False)["input_ids"]
    assert templates.mark(tokenizer, "Marked") == expected
    assert tokenizer.chat_template == JUDGE.removesuffix("\n") + "{{ '<|im_end|>' }}"
