"""What every figure shares: colours of models, type, text that any font can draw, saving."""

import functools
import os
import pathlib
from collections.abc import Iterable
from typing import Any

import matplotlib
from matplotlib import font_manager, ft2font, transforms
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from analysis import display

# The ten models of the paper, in the order in which it gives them matplotlib's tab10.
_PAPER = (
    "qrm-gemma-2-27b",
    "skywork-reward-gemma-2-27b-v0.2",
    "skywork-reward-gemma-2-27b",
    "skywork-reward-llama-3.1-8b-v0.2",
    "qrm-llama3.1-8b",
    "urm-llama-3.1-8b",
    "grm-llama3-8b-rewardmodel-ft",
    "grm-llama3.2-3b-rewardmodel-ft",
    "armorm-llama3-8b-v0.1",
    "grm-gemma2-2b-rewardmodel-ft",
)
_TAB10 = (
    "#1f77b4",
    "#ff7f0e",
    "#2ca02c",
    "#d62728",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#7f7f7f",
    "#bcbd22",
    "#17becf",
)
# Paul Tol's "muted" scheme: nine hues that stay apart in every common colour blindness.
_MUTED = (
    "#332288",
    "#cc6677",
    "#117733",
    "#88ccee",
    "#ddaa33",
    "#882255",
    "#44aa99",
    "#999933",
    "#aa4499",
)

INK = "#1d2530"
FAINT = "#8a94a3"
GRID = "#e4e8ee"
TOP = "#0f766e"
BOTTOM = "#b45309"

_FONT = "DejaVu Sans"  # Ships with matplotlib, so a figure looks the same everywhere.
RC: dict[Any, Any] = {
    "font.family": _FONT,
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.labelsize": 9.0,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "text.color": INK,
    "text.usetex": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.fonttype": "path",
    "svg.hashsalt": "assay",
}
styled = functools.partial(matplotlib.rc_context, RC)


def canvas(width: float, height: float) -> Figure:
    """An empty figure of `width` × `height` inches, laid out so that nothing overlaps."""
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, wspace=0.02, hspace=0.02)
    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def colours(models: Iterable[str]) -> dict[str, str]:
    """Colour of each model: the paper's for its ten, a colour-blind safe one for the others.

    Depends only on the set of slugs, so that a model looks the same in every figure of a
    report. Beyond nine others, colours repeat.
    """
    known = dict(zip(_PAPER, _TAB10, strict=True))
    slugs = list(models)
    others = sorted(slug for slug in slugs if slug not in known)
    chosen = {slug: _MUTED[i % len(_MUTED)] for i, slug in enumerate(others)}
    return {slug: known.get(slug) or chosen[slug] for slug in slugs}


def drawable(text: str, limit: int = 200) -> str:
    r"""`text` as matplotlib can draw it, cut after about `limit` drawn characters.

    What the font lacks becomes its code point (\u4e2d), and a dollar sign is escaped, for a
    pair of them would start mathematics.
    """
    pieces, room = [], limit
    for char in text:
        piece = char if ord(char) in _glyphs() else display.escape(char)
        room -= len(piece)
        if room < 0:
            pieces.append("…")
            break
        pieces.append(piece)
    return "".join(pieces).replace("$", r"\$")


def token(text: str, limit: int = 18) -> str:
    """A token as matplotlib can draw it, with what draws nothing marked (see `display`)."""
    return drawable(display.plain(text), limit)


def title(ax: Axes, text: str, colour: str) -> None:
    """Titles the panel of one model: its name in ink, over a line in its colour."""
    ax.set_title(name(text), loc="left", fontweight="bold", fontsize=9, pad=9)
    above = transforms.offset_copy(ax.transAxes, ax.get_figure(root=True), y=4, units="points")
    line = Line2D([0, 1], [1, 1], transform=above, color=colour, linewidth=3)
    line.set(clip_on=False, solid_capstyle="butt")
    ax.add_artist(line)


def name(text: str, limit: int = 26) -> str:
    """The name of a model, cut in the middle where it is longer than `limit`."""
    if len(text) > limit:
        half = (limit - 1) // 2
        text = f"{text[:half]}…{text[-half:]}"
    return drawable(text)


def save(figure: Figure, folder: pathlib.Path, stem: str) -> dict[str, pathlib.Path]:
    """Writes `<stem>.png` (150 dots an inch) and `<stem>.svg`; returns the path of each.

    The same figure gives the same bytes: neither file holds a date.
    """
    paths = {kind: folder / f"{stem}.{kind}" for kind in ("png", "svg")}
    with styled():
        figure.canvas.draw()
        figure.set_layout_engine("none")  # The layout stands; each saving would seek it again.
        figure.savefig(os.fspath(paths["png"]), dpi=150, bbox_inches="tight")
        figure.savefig(os.fspath(paths["svg"]), metadata={"Date": None}, bbox_inches="tight")
    return paths


def grid_shape(panels: int, columns: int) -> tuple[int, int]:
    """Rows and columns of `panels` panels, no more than `columns` wide and evenly filled."""
    rows = -(-panels // columns)
    return rows, -(-panels // rows)


@functools.cache
def _glyphs() -> frozenset[int]:
    found = []
    for weight in ("normal", "bold"):
        face = font_manager.FontProperties(family=_FONT, weight=weight)
        found.append(frozenset(ft2font.FT2Font(font_manager.findfont(face)).get_charmap()))
    return found[0] & found[1]
