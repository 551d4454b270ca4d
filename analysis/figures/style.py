"""What every figure shares: colours of models, type, text that any font can draw, saving.

Only `analysis.figures` imports matplotlib, and only inside the functions that draw.
"""

import functools
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec

from analysis.sentences import minus as minus
from analysis.sentences import p_value as p_value
from analysis.statistics import Array
from engine import display

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.colors import Colormap as Colormap
    from matplotlib.figure import Figure as Figure

_Arguments = ParamSpec("_Arguments")

# The ten models of the paper, in the order in which it assigns them matplotlib's tab10.
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

# Okabe and Ito's colours, for what is not a model. Markers distinguish the same without colour.
_HUES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666")
_KNOWN = {"greatest": 0, "worst": 1, "best": 2}
MARKERS = "osD^vPX<>*"

INK = "#1d2530"
FAINT = "#8a94a3"
GRID = "#e4e8ee"
TOP = "#0f766e"
BOTTOM = "#b45309"

_FONT = "DejaVu Sans"  # Ships with matplotlib, so a figure looks the same everywhere.
_RC: dict[Any, Any] = {  # Any: as matplotlib types its settings
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
_DPI = 150


def styled(draw: "Callable[_Arguments, Figure]") -> "Callable[_Arguments, Figure]":
    """`draw` with the type and colours of this module."""

    @functools.wraps(draw)
    def drawn(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> "Figure":
        import matplotlib

        with matplotlib.rc_context(_RC):
            return draw(*args, **kwargs)

    return drawn


def canvas(width: float, height: float) -> "Figure":
    """An empty figure of `width` × `height` inches, laid out so that nothing overlaps."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

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


def looks(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each prompt, method, base or developer; the paper's prompts keep theirs.

    Beyond seven, colours repeat; markers do after ten.
    """
    names = list(names)
    free = [i for i in range(len(MARKERS)) if i not in {_KNOWN[n] for n in names if n in _KNOWN}]
    others = [name for name in names if name not in _KNOWN]
    places = {name: free[i % len(free)] for i, name in enumerate(others)}
    at = {name: _KNOWN.get(name, places.get(name, 0)) for name in names}
    return {name: (_HUES[i % len(_HUES)], MARKERS[i]) for name, i in at.items()}


def panels(
    names: Mapping[str, str], models: Sequence[str], columns: int, size: tuple[float, float]
) -> "tuple[Figure, dict[str, Axes]]":
    """A figure with one titled panel per model, `columns` of them side by side.

    Args:
      names: slug -> nickname of every model of the report: the colours depend on the set.
      models: slugs of those that have a panel, in order.
      columns: panels side by side, at most.
      size: width and height of one panel in inches.
    """
    rows, across = grid_shape(len(models), columns)
    figure = canvas(max(size[0] * across, 3.8), size[1] * rows + 0.3)
    axes = figure.subplots(rows, across, squeeze=False).ravel()
    shades = colours(names)
    for ax, model in zip(axes, models, strict=False):
        title(ax, names[model], shades[model])
        ax.set_axisbelow(True)
        ax.grid(color=GRID, linewidth=0.7)
    for ax in axes[len(models) :]:
        ax.set_visible(False)
    return figure, dict(zip(models, axes, strict=False))


def legend(figure: "Figure", shown: Mapping[str, tuple[str, str]], lines: bool = False) -> None:
    """A legend above the whole figure: label -> its colour and marker."""
    from matplotlib.lines import Line2D

    keys = [
        Line2D([], [], color=c, marker=m, linestyle="-" if lines else "none", markersize=5)
        for c, m in shown.values()
    ]
    labels = [name(text, 30) for text in shown]
    # A letter takes about 0.075 inches, and a marker with its gaps 0.55.
    longest = 0.55 + 0.075 * max(map(len, labels), default=0)
    across = max(1, min(4, int(figure.get_figwidth() / longest)))
    figure.legend(keys, labels, loc="outside upper left", ncols=across, frameon=False, fontsize=8.5)


def cloud(ax: "Axes", x: Array, y: Array, colour: str) -> None:
    """Thousands of points: as a picture inside the SVG, not as thousands of paths."""
    (marks,) = ax.plot(x, y, "o", color=colour, markersize=3.2, markeredgewidth=0, alpha=0.4)
    marks.set_rasterized(True)


def drawable(text: str, limit: int = 200) -> str:
    r"""`text` as matplotlib can draw it, cut after about `limit` drawn characters.

    A character that the font lacks becomes its code point (\u4e2d). A dollar sign is escaped,
    because a pair of them would start mathematics.
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
    """A token as matplotlib can draw it, with invisible characters marked (see `display`)."""
    return drawable(display.plain(text), limit)


def title(ax: "Axes", text: str, colour: str) -> None:
    """Titles the panel of one model: its name in ink, over a line in its colour."""
    from matplotlib import transforms
    from matplotlib.lines import Line2D

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


def save(figure: "Figure", folder: pathlib.Path, stem: str) -> dict[str, pathlib.Path]:
    """Writes `<stem>.png` (150 dots per inch) and `<stem>.svg`; returns the path of each.

    The same figure gives the same bytes: neither file holds a date.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    paths = {kind: folder / f"{stem}.{kind}" for kind in ("png", "svg")}
    with matplotlib.rc_context(_RC):
        figure.set_dpi(_DPI)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # The layout is fixed now: a second drawing keeps it.
        # The canvases write the files, because `savefig` would draw once more for each.
        png: Any = FigureCanvasAgg(figure)  # Any: matplotlib does not type these methods
        svg: Any = FigureCanvasSVG(figure)
        png.print_png(os.fspath(paths["png"]))
        svg.print_svg(os.fspath(paths["svg"]), metadata={"Date": None})
    return paths


def grid_shape(panels: int, columns: int) -> tuple[int, int]:
    """Rows and columns of `panels` panels, no more than `columns` wide and evenly filled."""
    rows = -(-panels // columns)
    return rows, -(-panels // rows)


@functools.cache
def gradient(*colours: str) -> "Colormap":
    """A colour map that runs through `colours`."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("-".join(colours), list(colours))


def colormap(named: str) -> "Colormap":
    """A colour map of matplotlib by its name; values that are not defined are grey."""
    import matplotlib

    return matplotlib.colormaps[named].with_extremes(bad="#eeeeee")


def shade(named: str, at: float) -> str:
    """The colour at a place from 0 to 1 of a colour map of matplotlib."""
    import matplotlib

    return matplotlib.colors.to_hex(matplotlib.colormaps[named](at))


def log_axis(ax: "Axes", ticks: int) -> None:
    """Gives `ax` a logarithmic x axis with `ticks` labels at most."""
    from matplotlib import ticker

    ax.set_xscale("log")
    ax.xaxis.set_major_locator(ticker.LogLocator(numticks=ticks))
    ax.xaxis.set_minor_formatter(ticker.NullFormatter())


@functools.cache
def _glyphs() -> frozenset[int]:
    """Code points that the font has, upright and bold."""
    from matplotlib import font_manager, ft2font

    faces = []
    for weight in ("normal", "bold"):
        face = font_manager.FontProperties(family=_FONT, weight=weight)
        faces.append(frozenset(ft2font.FT2Font(font_manager.findfont(face)).get_charmap()))
    return faces[0] & faces[1]
