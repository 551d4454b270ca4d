"""The figures of a report: drawn one at a time, and saved."""

import base64
import io
import pathlib
from collections.abc import Mapping, Sequence

from analysis.blocks import Section, pictures
from analysis.figures import style
from engine.errors import AssayError

_INLINE_SVG_BYTES = 80_000  # The page takes the PNG of a larger figure, which is then smaller.
_COLOURS = 128  # Of that PNG; figures/ holds it in all its colours.


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
    if paths["svg"].stat().st_size <= _INLINE_SVG_BYTES:
        kind, data = "svg+xml", paths["svg"].read_bytes()
    else:
        kind, data = "png", _few_colours(paths["png"])
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _few_colours(png: pathlib.Path) -> bytes:
    """The picture in `_COLOURS` colours: a third of its size, and alike to the eye."""
    from PIL import Image

    with Image.open(png) as picture:
        few = picture.convert("RGB").quantize(
            _COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE
        )
    data = io.BytesIO()
    few.save(data, "PNG", optimize=True)
    return data.getvalue()
