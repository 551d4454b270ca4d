"""A variable that a chat template reads beside the messages, such as the principle of a judge."""

import pytest

from engine.checkpoint.card import Checkpoint
from tests.support import tiny

# As a user writes it: the folder's template, with a question about the reply behind the reply.
TEMPLATE = (
    "{% set messages = messages + [{'role': 'user', 'content': 'Is it ' ~ principle ~ '?'}] %}"
    + tiny.CHATML
)
PROMPT = "What?"
SAID = "principle=brief, kind"


@pytest.fixture
def hf(tmp_path):
    return tiny.write_model(tmp_path / "hf", template=TEMPLATE)


def test_a_run_goes_on_only_under_the_same_variables(command, run, hf, tmp_path):
    paths = [str(hf), f"--run={run.folder}", f"--config.cache={tmp_path / 'cache'}"]
    flags = ["sweep", *paths, f"--prompt={PROMPT}", "--config.self_check=1"]
    assert command(*flags, f"--config.convert.template_vars={SAID}").code == 0
    [result] = run.results().values()
    assert result.identity.template_vars == {"principle": "brief, kind"}
    for other in ("principle=brief", ""):
        done = command(*flags, f"--config.convert.template_vars={other}")
        assert done.code == 2 and "template_vars" in done.err[-1]
    assert command(*flags, f"--config.convert.template_vars={SAID}").code == 0


def test_a_rows_variable_goes_before_the_conversions(command, hf, tmp_path):
    paths = [f"--source={hf}", f"--checkpoint={tmp_path / 'c'}"]
    assert command("convert", *paths, f"--config.template_vars={SAID}").code == 0
    chat = Checkpoint.open(tmp_path / "c").template
    turns = [{"role": "user", "content": PROMPT}]
    texts = chat.texts([turns, turns], [{}, {"principle": "true"}])
    assert ["brief, kind" in text for text in texts] == [True, False] and "true" in texts[1]
