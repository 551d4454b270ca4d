"""Templates that fail, never end, or fill the memory: one line, within seconds."""

import json
import subprocess
import sys
import threading

import pytest

from engine.errors import AssayError
from engine.text.chat_template import ChatTemplate, TemplatePolicy
from engine.text.cue import Cue
from tests.support import folders, tiny
from tests.unit.text.test_chat_template import PROMPT, TEMPLATES, template

LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
LONG_RANGE = "{% for i in range(10**9) %}{% endfor %}"
HOSTILE = {
    "a range too long": (LONG_RANGE, "OverflowError: Range too big"),
    "a macro that calls itself": (
        "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
        "RecursionError: maximum recursion depth exceeded",
    ),
    "a long output": ("{{ 'x' * 3 * 10**7 }}", ".* 29,999,978 .* 1,000,000"),
    "half a character": ("{{ '\\ud800' }}", ".*surrogates"),
    "too much memory": ("{{ 'x' * 10**10 }}", "MemoryError"),
}


@pytest.mark.parametrize("way", HOSTILE)
def test_a_hostile_template_is_one_line_that_names_the_tokenizer(way):
    source, reason = HOSTILE[way]
    chat = template(source)
    chat.tokenizer.name_or_path = "owner/hostile"
    opening = r"^chat template of owner/hostile: .*\("
    with pytest.raises(AssayError, match=f"{opening}({reason})") as error:
        chat.render(PROMPT, ["love"])
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_a_template_that_never_ends_is_stopped_in_any_thread_and_the_next_one_renders():
    ended = []

    def ask():
        with pytest.raises(AssayError, match="2 seconds of CPU") as error:
            template(LOOP).cue(PROMPT)
        ended.append(error)
        ended.append(template().cue(PROMPT))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert len(ended) == 2


def test_a_template_is_stopped_whose_names_are_never_found():
    policy = TemplatePolicy(bos="template", date=None, template_vars={"x": "1"})
    chat = ChatTemplate(tiny.tokenizer("{{ x }}{{ 2 ** (2 ** 40) }}"), policy)
    with pytest.raises(AssayError, match="2 seconds of CPU"):
        chat.check_variables()


@pytest.mark.slow
def test_a_template_that_never_ends_is_stopped_where_the_timer_s_signal_is_ignored():
    script = (
        "import signal; signal.signal(signal.SIGPROF, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPROF})\n"
        "from engine.text import template_sandbox\n"
        f"template_sandbox.render({LOOP!r}, [[{{'role': 'user', 'content': 'Hi.'}}]], {{}}, None)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)
    assert b"2 seconds of CPU" in ended.stderr


def test_a_regex_that_gives_up_on_a_text_is_one_line_that_names_both(tmp_path):
    folder = tiny.write_model(tmp_path / "hf")
    own = json.loads((folder / "tokenizer.json").read_text())["pre_tokenizer"]
    split = {"type": "Split", "pattern": {"Regex": "(x+x+)+y"}, "behavior": "Isolated"}
    steps = {"type": "Sequence", "pretokenizers": [{**split, "invert": False}, own]}
    folders.edit_json(folder / "tokenizer.json", pre_tokenizer=steps)
    chat = folders.convert(folder, tmp_path / "checkpoint").template
    message = rf"^tokenizer {chat.tokenizer.name_or_path}: .*x.* \(Onig"
    with pytest.raises(AssayError, match=message):
        chat.sequences(PROMPT, ["love", "x" * 60])
    with pytest.raises(AssayError, match=message):
        Cue.pretrained(chat.tokenizer, PROMPT).replies(["x" * 60])


FEATURES = {
    **TEMPLATES,
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% endfor %}",
    "loop controls": "{% for m in messages %}{% if loop.last %}{% break %}{% endif %}"
    "{{ m.content }}{% endfor %}",
    "json": "{{ messages | tojson(indent=2) }}<é>{{ tools is none }}{{ '<&é' | tojson }}",
    "functions": "{{ strftime_now is defined }}{{ dict(a=1) }}{{ raise_exception is defined }}"
    "{{ dict.fromkeys([1], 2) }}",
    "blocks": "  {% if add_generation_prompt %}\n  x\n  {% endif %}\n"
    "{{ bos_token }} {{ eos_token }}",
    "a namespace": "{% set n = namespace(k=1) %}{% set n.k = 2 %}{{ n.k }}{{ documents }}",
    "a default of several": {"default": tiny.CHATML, "rag": ""},
}


NEED_A_REPLY = ("trl", "no suffix")
CASES = [
    (name, cue) for name in FEATURES for cue in (False, True) if not cue or name not in NEED_A_REPLY
]


@pytest.mark.parametrize(("name", "cue"), CASES)
def test_a_template_renders_as_transformers_renders_it(name, cue):
    chat: ChatTemplate = template(FEATURES[name], date="26 Jul 2024")
    turns = [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": "<é>\ud800 \n"}]
    expected = chat.tokenizer.apply_chat_template(
        turns[:1] if cue else turns,
        tokenize=False,
        date_string="26 Jul 2024",
        add_generation_prompt=cue,
    )
    rendered = chat.cue(PROMPT) if cue else chat.render(PROMPT, ["<é>\ud800 \n"])[0]
    assert rendered == expected
