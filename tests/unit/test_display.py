import hypothesis.strategies as st
import pytest
from hypothesis import given

from engine import display


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (" love", "␣love"),
        ("a  b", "a␣␣b"),
        (" " * 16, "␣×16"),
        ("", "(empty)"),
        ("\n\n", "↵↵"),
        ("\t", "⇥"),
        ("\x00", r"\u0000"),
        ("\u200b", r"\u200b"),
        ("\u0301", r"\u0301"),
        ("x" * 60, "x" * 48 + "…"),
        (" " * 400 + "x", "␣×400x"),
    ],
)
def test_what_draws_nothing_is_marked(token, shown):
    assert display.plain(token) == shown


@given(st.text(max_size=20))
def test_a_mark_never_passes_for_the_tokens_own_text(token):
    own = "".join(part.text for part in display.segments(token, 1000) if not part.mark)
    assert own == "".join(c for i, c in enumerate(token) if display.mark_at(token, i) is None)
    assert not any(c in own for c in "\x00\n\t\u200b\u202e\ufeff")
