"""The figures of a report: drawn one at a time, and saved."""

import base64
import pathlib
from collections.abc import Mapping, Sequence

from analysis.blocks import Section, pictures
from analysis.figures import style
from engine.errors import AssayError

_INLINE_SVG_BYTES = 300_000  # The page takes the PNG of a larger figure, which is then smaller.


def draw(sections: Sequence[Section], folder: pathlib.Path) -> dict[str, str]:
    """Draws every figure of `sections` and saves it as `<stem>.png` and `<stem>.svg`.

    Returns:
      Stem -> data URI for the page.

    Raises:
      AssayError: two figures have one name.
    """
    drawn: dict[str, str] = {}
    for picture in pictures(block for section in sections for block in section.blocks):
        stem = picture.stem
        if stem in drawn:
            raise AssayError(
                f"figure {stem}: made twice, because the names of two lists and their prompts "
                "join to the same name; allowed: other names of lists"
            )
        drawn[stem] = _data_uri(style.save(picture.draw(), folder, stem))
    return drawn


def _data_uri(paths: Mapping[str, pathlib.Path]) -> str:
    small = paths["svg"].stat().st_size <= _INLINE_SVG_BYTES
    kind, path = ("svg+xml", paths["svg"]) if small else ("png", paths["png"])
    return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
