"""The charts of a report: specifications for the page, and files for papers."""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import pathlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from analysis.blocks import Picture
from analysis.charts import look
from engine.errors import AssayError

FORMATS = ("svg", "png", "pdf")
_NUMBERED = re.compile(r"\b(gradient_|clip)(\d+)\b")
_SIZE = re.compile(r'<svg[^>]*? width="([\d.]+)"[^>]*? height="([\d.]+)"')


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A chart as the page has it."""

    text: str  # its Vega-Lite specification; JSON that can stand in a script element
    width: int  # in pixels
    height: int  # in pixels
    formats: Sequence[str]  # kinds of its files in figures/
    image: str  # data URI of its SVG


def draw(
    pictures: Iterable[Picture],
    folder: pathlib.Path,
    formats: Collection[str] = ("svg",),
) -> dict[str, Drawn]:
    """Draws every chart and saves it as `<stem>.<format>`.

    Returns:
      Stem -> chart.

    Raises:
      AssayError: two charts have one name.
    """
    drawn: dict[str, Drawn] = {}
    for picture in pictures:
        if picture.stem in drawn:
            raise AssayError(
                f"figure {picture.stem}: made twice, because the names of two lists and their "
                "prompts join to the same name; allowed: other names of lists"
            )
        drawn[picture.stem] = _drawn(picture, folder, formats)
    return drawn


def _drawn(picture: Picture, folder: pathlib.Path, formats: Collection[str]) -> Drawn:
    spec = look.specification(picture.draw())
    svg = svg_of(spec)
    save(svg, folder, picture.stem, formats)
    wide, high = map(round, _size(svg))
    files = [kind for kind in FORMATS if kind in formats]
    image = f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
    return Drawn(look.text_of(spec), wide, high, files, image)


def _size(svg: str) -> tuple[float, float]:
    """Width and height in pixels."""
    size = _SIZE.search(svg)
    return (float(size[1]), float(size[2])) if size else (0.0, 0.0)


def svg_of(spec: Mapping[str, Any]) -> str:  # Any: JSON
    """A specification as SVG on a white ground."""
    import vl_convert

    config = look.config() | {"background": "white"}
    svg: str = vl_convert.vegalite_to_svg(json.dumps(spec), config=config, allowed_base_urls=[])
    numbers: dict[str, str] = {}  # Vega numbers gradients and clips on from chart to chart.
    return _NUMBERED.sub(lambda m: m[1] + numbers.setdefault(m[0], str(len(numbers))), svg)


def save(svg: str, folder: pathlib.Path, stem: str, formats: Collection[str]) -> None:
    """Writes an SVG as files."""
    import vl_convert

    if "svg" in formats:
        (folder / f"{stem}.svg").write_text(svg, encoding="utf-8")
    if "png" in formats:
        (folder / f"{stem}.png").write_bytes(vl_convert.svg_to_png(svg, scale=2))
    if "pdf" in formats:
        (folder / f"{stem}.pdf").write_bytes(vl_convert.svg_to_pdf(svg))


@functools.cache  # it takes a second to make
def vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, which sets `vegaEmbed`."""
    import vl_convert

    text: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return text.replace("</script", "<\\/script")
