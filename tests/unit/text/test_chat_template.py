import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import AssayError
from engine.text.chat_template import ChatTemplate, TemplatePolicy
from tests.support import tiny

PROMPT = "What is the truth?"
DATED = (
    "{{ bos_token }}<|im_start|>system\n\n"
    "Today: {{ date_string if date_string is defined else '1 May' }}<|im_end|>"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n\n"
    "{{ message['content'] | trim }}<|im_end|>{% endfor %}"
)
# The newline before a reply is ordinary text, with which a newline of the reply merges.
PLAIN_NEWLINE = (
    "{% for message in messages %}<{{ message['role'] }}>\n{{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}<|im_end|>{% endif %}\n{% endfor %}"
)
TEMPLATES = {
    "chatml": tiny.CHATML,
    "trimmed": tiny.TRIMMED,
    "dated": DATED,
    "plain newline": PLAIN_NEWLINE,
    "no suffix": "{{ messages[0]['content'] }}<|im_end|>{{ messages[1]['content'] }}",
}
REPLIES = st.lists(st.sampled_from(["love", "war", " the", "Ω", "<script>", "?", "7"]), min_size=1)


def template(text=tiny.CHATML, *, bos="template", date=None, adds_bos=False):
    policy = TemplatePolicy(bos=bos, date=date)
    return ChatTemplate(tiny.tokenizer(text, adds_bos=adds_bos), policy)


BY_NAME = {name: template(text) for name, text in TEMPLATES.items()}


@pytest.mark.parametrize("name", TEMPLATES)
@given(words=REPLIES)
def test_prefix_reply_and_suffix_are_the_rendered_conversation(name, words):
    chat, reply = BY_NAME[name], "".join(words).strip()
    split = chat.split(PROMPT)
    [rendered] = chat.sequences(PROMPT, [reply])
    assert [*split.prefix, *chat.reply_ids(reply), *split.suffix] == rendered
    assert chat.tokenizer.decode(rendered) == chat.render(PROMPT, [reply])[0]


def test_a_reply_that_begins_with_a_newline_merges_with_the_templates(name="plain newline"):
    chat = BY_NAME[name]
    split = chat.split(PROMPT)
    [merged] = chat.sequences(PROMPT, ["\nlove"])
    newlines = chat.tokenizer.convert_tokens_to_ids("ĊĊ")
    assert merged[: len(split.prefix)] == [*split.prefix[:-1], newlines]


def test_a_template_that_trims_renders_a_padded_reply_as_the_bare_one():
    chat = template(tiny.TRIMMED)
    assert chat.sequences(PROMPT, [" love\n"]) == chat.sequences(PROMPT, ["love"])


def test_a_template_whose_text_merges_with_every_reply_is_refused():
    chat = template("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}")
    with pytest.raises(AssayError, match="the reply 'love' does not stand as its own tokens"):
        chat.split(PROMPT)


@pytest.mark.parametrize(
    ("date", "line"), [("26 Jul 2024", "Today: 26 Jul 2024"), (None, "Today: 1 May")]
)
def test_a_template_that_prints_a_date_prints_the_policys(date, line):
    chat = template(DATED, date=date)
    assert line in chat.tokenizer.decode(chat.split(PROMPT).prefix)


@pytest.mark.parametrize("prompt", ["", " ", "\n\t"])
def test_an_empty_prompt_is_refused(prompt):
    with pytest.raises(AssayError, match=r"prompt='.*'; allowed: text that is not empty"):
        template().split(prompt)


def test_a_tokenizer_without_a_chat_template_is_refused():
    with pytest.raises(AssayError, match="no chat template"):
        template(None)


@pytest.mark.parametrize("text", ["{% for m in messages %}", "{{ raise_exception('no user') }}"])
def test_a_template_that_does_not_render_is_one_line(text):
    broken = template(text)
    with pytest.raises(AssayError, match="does not render a prompt and a reply") as error:
        broken.render("What?", ["love"])
    assert "\n" not in str(error.value)
