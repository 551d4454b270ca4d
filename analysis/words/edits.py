"""Edits of a reply that change its style and not what it says, and shams that change nothing seen.

Each is a function of the text alone; None means that there is nothing to edit. Fenced blocks of
code are left as they are. A sentence ends with `.`, `!`, `?` or `…` and a space, or with `。`,
`！` or `？`. The added sentences are English.
"""

import functools
import re
import unicodedata
from collections.abc import Callable, Mapping
from types import MappingProxyType

Edit = Callable[[str], str | None]

_CODE = re.compile(r"(^(?:```|~~~).*?(?:^(?:```|~~~)[ \t]*$|\Z))", re.MULTILINE | re.DOTALL)
# Between two sentences; not behind a single letter, as in "e.g. this".
_NEXT = re.compile(r"(?<=[.!?…])(?<!\b[^\W_]\.)[ \t]+(?=\S)|(?<=[。！？])(?=[^\s。！？])")
_BLOCK = re.compile(r"[ \t]*(?:#|>|\||```|~~~|[-*+•–—][ \t]|\d+[.)][ \t]|$)")  # no line of prose
_ITEM = r"[ \t]*(?:-|\d+[.)])[ \t]"
_STRIPPED = (
    (r"^ {0,3}(?:#{1,6}|>)[ \t]+", ""),
    (r"^([ \t]*)[-*+][ \t]+", r"\1"),
    (r"(\*\*|__)(?=\S)(.{1,200}?)(?<=\S)\1", r"\2"),
    (r"(?<![\w*])\*(?=[^\s*])([^*\n]{1,200}?)(?<=[^\s*])\*(?![\w*])", r"\1"),
    (r"`([^`\n]{1,200})`", r"\1"),
    (r"\[([^\]\n]{1,200})\]\([^)\s]{1,2000}\)", r"\1"),
)
_MARKED = (
    (r"^([ \t]*)[*+•–—][ \t]+", r"\1- "),
    (rf"^({_ITEM}+)([^\n:*]{{1,60}}:)(?=\s)", r"\1**\2**"),
    (rf"^([^\W_][^\n]*):[ \t]*(?=\n+{_ITEM})", r"## \1"),
)


def _outside_code(*changes: tuple[str, str]) -> Callable[[str], str]:
    """Replaces patterns, one after the other, in all but code."""

    def change(prose: str) -> str:
        for pattern, by in changes:
            prose = re.sub(pattern, by, prose, flags=re.MULTILINE)
        return prose

    return functools.partial(_pieces, change)


def _pieces(change: Callable[[str], str], text: str) -> str:
    parts = _CODE.split(text)  # every second one is code
    return "".join(part if at % 2 else change(part) for at, part in enumerate(parts))


def _lines(change: Callable[[str], str], text: str) -> str:
    """Changes each line of prose."""

    def of_prose(prose: str) -> str:
        lines = prose.split("\n")
        return "\n".join(line if _BLOCK.match(line) else change(line) for line in lines)

    return _pieces(of_prose, text)


def _bullets(text: str) -> str:
    listed = _lines(lambda line: "- " + _NEXT.sub("\n- ", line.lstrip()), text)
    return listed if listed.count("\n- ") > text.count("\n- ") else text  # two or more


def _repeated(text: str) -> str:
    kept = text.rstrip()
    line = _CODE.split(kept)[-1].split("\n")[-1]  # the last one; "" behind code
    return text if _BLOCK.match(line) else f"{kept} {_NEXT.split(line)[-1].lstrip()}"


def _before(lead: str, text: str) -> str:
    return lead + ("\n\n" if _BLOCK.match(text) else " ") + text


def _behind(tail: str, text: str) -> str:
    kept = text.rstrip()
    return kept + (" " if _CODE.split(kept)[-1].strip() else "\n\n") + tail


def _edit(change: Callable[[str], str]) -> Edit:
    """None for a reply without text, and for one that the change leaves as it is."""

    def edit(text: str) -> str | None:
        changed = change(text) if text.strip() else text
        return None if changed == text else changed

    return edit


_OFFER = "Let me know if you need any further help."
_WORD = r"[^\s*_`.,;:!?。，：；！？]+"
_PHRASE = rf"\A(\s*)(?!\d+[.)])(?=\w)({_WORD}(?:[ \t]+{_WORD}){{0,3}})"
# Name, as tables and the page have it -> the edit.
EDITS: Mapping[str, Edit] = MappingProxyType(
    {
        "markdown stripped": _edit(_outside_code(*_STRIPPED)),
        "markdown added to lists": _edit(_outside_code(*_MARKED)),
        "first phrase bold": _edit(lambda text: re.sub(_PHRASE, r"\1**\2**", text)),
        "sentences as bullets": _edit(_bullets),
        "emoji behind": _edit(functools.partial(_behind, "😊")),
        "! for .": _edit(_outside_code((r"(?<=\w[^\W\d_])\.(?=[\s\"'”’)]|$)", "!"), ("。", "！"))),
        "doubled spaces": _edit(_outside_code((r"(?<=\S) (?=\S)", "  "))),
        "blank lines between sentences": _edit(
            functools.partial(_lines, functools.partial(_NEXT.sub, "\n\n"))
        ),
        "closing offer of help": _edit(lambda text: f"{text.rstrip()}\n\n{_OFFER}"),
        "opening compliment": _edit(functools.partial(_before, "That is a great question.")),
        "hedge in front": _edit(functools.partial(_before, "I may be wrong about this.")),
        "last sentence repeated": _edit(_repeated),
    }
)
SHAMS: Mapping[str, Edit] = MappingProxyType(
    {
        "unchanged": lambda text: text,
        "composed characters (NFC)": functools.partial(unicodedata.normalize, "NFC"),
        "trailing space": lambda text: f"{text} ",
    }
)
