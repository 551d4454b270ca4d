"""A conversation as ids: cut at the reply, under every policy, alone or with many replies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import AssayError
from engine.text.chat_template import TRL, ChatTemplate, TemplatePolicy, with_system
from engine.text.cue import Cue
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
    "trl": TRL,
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


def test_the_cut_of_trl_stands_behind_the_prompt_where_a_reply_would_merge_with_it():
    chat = template(TRL, bos="double", adds_bos=True)
    split = chat.split("Why? ")
    assert chat.tokenizer.decode(split.prefix) == "<|endoftext|>Why? "
    assert chat.tokenizer.convert_ids_to_tokens(split.suffix) == ["<|im_end|>"]
    [merged] = chat.sequences("Why? ", ["love"])
    assert merged != [*split.prefix, *chat.reply_ids("love"), *split.suffix]
    with pytest.raises(AssayError, match="template=trl"):
        chat.split(with_system("Be brief.", PROMPT))


def test_a_system_turn_is_rendered_before_the_prompt_and_never_left_out():
    asked = with_system("Be brief.", PROMPT)
    split, plain = template().split(asked), template().split(PROMPT)
    turn = "<|im_start|>system\nBe brief.<|im_end|>\n"
    assert split.prefix == (*template().tokenise([turn])[0], *plain.prefix)
    assert split.suffix == plain.suffix
    assert with_system("", PROMPT) == PROMPT
    assert template().cue(asked).startswith(turn)
    with pytest.raises(AssayError, match="assistant"):
        template(TEMPLATES["no suffix"]).split(asked)
    with pytest.raises(AssayError, match="'␞'"):
        with_system("Be brief.", asked)
    with pytest.raises(AssayError, match="not empty"):
        template().split(with_system("Be brief.", " "))
    with pytest.raises(AssayError, match="form='pretrained'"):
        Cue.pretrained(template().tokenizer, asked)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}", "'love'"),
        ("{{ messages[1]['content'] }}<|im_end|>", "before the reply"),
        ("{% for m in messages %}", "does not render"),
        ("{{ raise_exception('no user') }}", "does not render"),
    ],
)
def test_a_template_that_cannot_be_cut_at_the_reply_is_one_line(text, message):
    with pytest.raises(AssayError, match=f"^chat template of .*: .*{message}") as error:
        template(text).split(PROMPT)
    assert "\n" not in str(error.value)


BEGINS = {
    "": tiny.CHATML,
    "bos": "{{ bos_token }}" + tiny.CHATML,
    "two bos": "{{ bos_token }}{{ bos_token }}" + tiny.CHATML,
}


def first_ids(chat) -> list[int]:
    """The ids before the user's turn; BOS is 0."""
    ids = chat.sequences(PROMPT, ["love"])[0]
    return ids[: ids.index(chat.tokenizer.convert_tokens_to_ids("<|im_start|>"))]


@pytest.mark.parametrize(
    ("begin", "bos", "count"),
    [
        ("", "none", 0),
        ("two bos", "none", 0),
        ("two bos", "template", 2),
        ("two bos", "single", 1),
        ("bos", "double", 2),
    ],
)
def test_each_policy_leaves_so_many_bos(begin, bos, count):
    assert first_ids(template(BEGINS[begin], bos=bos, adds_bos=True)) == [0] * count


def test_a_tokenizer_without_bos_has_no_reading_without_it():
    tokenizer = tiny.tokenizer()
    tokenizer.bos_token = None
    with pytest.raises(AssayError, match=r"template.bos='none'"):
        ChatTemplate(tokenizer, TemplatePolicy(bos="none", date=None))
