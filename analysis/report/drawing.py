"""The charts of a report: specifications for the page, and files for papers."""

from __future__ import annotations

import base64
import copy
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
# Of files for papers: inches of a column and of the text, points of their type, the least width of
# a panel in pixels, and how often a chart is drawn again until it is narrow.
_INCHES, _POINTS, _LEAST, _TRIES = {"column": 3.3, "text": 6.9}, 8, 60, 4
_SIDES = re.compile(r'width="[\d.]+" height="[\d.]+"')
_VIEW = re.compile(r'viewBox="[^"]*"')
_SIZE = re.compile(r'<svg[^>]*? width="([\d.]+)"[^>]*? height="([\d.]+)"')


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A chart as the page has it."""

    text: str  # its Vega-Lite specification; JSON that can stand in a script element
    width: int  # in pixels
    height: int  # in pixels
    formats: Sequence[str]  # kinds of its files in figures/
    image: str  # data URI of its SVG
    view: str  # part of the SVG file that paper shows, as a fragment; "" for all of a narrow one


def draw(
    pictures: Iterable[Picture],
    folder: pathlib.Path,
    formats: Collection[str] = ("svg",),
    width: str = "page",
) -> dict[str, Drawn]:
    """Draws every chart and saves it as `<stem>.<format>`, of a `width` of `analyze.figure_width`.

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
        drawn[picture.stem] = _drawn(picture, folder, formats, width)
    return drawn


def _drawn(picture: Picture, folder: pathlib.Path, formats: Collection[str], width: str) -> Drawn:
    spec = look.specification(picture.draw())
    svg = svg_of(spec)
    save(svg if width == "page" else _narrowed(spec, svg, width), folder, picture.stem, formats)
    wide, high = map(round, _size(svg))
    files = [kind for kind in FORMATS if kind in formats]
    image = f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
    # Beside it is room for labels of a font that is wider than the one it was drawn with.
    view = f"#svgView(viewBox(-20,0,{wide + 40},{high}))" if width == "page" else ""
    return Drawn(look.text_of(spec), wide, high, files, image, view)


def _size(svg: str) -> tuple[float, float]:
    """Width and height in pixels."""
    size = _SIZE.search(svg)
    return (float(size[1]), float(size[2])) if size else (0.0, 0.0)


def _narrowed(spec: dict[str, Any], svg: str, width: str) -> str:  # Any: JSON
    """The SVG of a specification in inches, with fewer panels side by side and narrower ones.

    Where names alone are wider, all of it is smaller.
    """
    inches = _INCHES[width]
    room = inches * 72 * look.TYPE / _POINTS
    spec, columns = copy.deepcopy(spec), 2 if width == "column" else 4
    for _ in range(_TRIES):
        wide, beside, part = _size(svg)[0], spec.get("columns", 1), spec.get("spec", spec)
        if wide <= room and svg:
            break
        now = max(1, int(beside * room / wide))
        if "columns" in spec:
            spec["columns"] = now
        if isinstance(part.get("width"), int | float):
            part["width"] = max(_LEAST, part["width"] - max(0, wide / beside - room / now))
        elif isinstance(part.get("width"), dict):  # of one column
            part["width"]["step"] *= room / wide
        svg = svg_of(spec, columns)
    wide, high = _size(svg)
    whole = max(wide, room)
    size = f'width="{inches}in" height="{inches * high / whole:.4g}in"'
    svg = _VIEW.sub(f'viewBox="0 0 {whole:g} {high:g}"', svg, count=1)
    return _SIDES.sub(size, svg, count=1)


def svg_of(spec: Mapping[str, Any], columns: int = 0) -> str:  # Any: JSON
    """A specification as SVG on a white ground, with so many columns of legends; 0: as it has."""
    import vl_convert

    config = look.config() | {"background": "white"}
    if columns:
        config["legend"] |= {"columns": columns}
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
