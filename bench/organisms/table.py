"""Recall, and the false alarms that the twins gave: one table, one figure."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import matplotlib
import matplotlib.figure
import numpy as np
import scipy.stats

from demo.organisms.plants import KINDS, Plant

# Detector -> its name in the table; a diff has one of two tests for each kind of plant.
DETECTORS = {
    "ends": "top and bottom 20",
    "groups": "groups test",
    "categories": "categories, own list (“greatest” and “movie” together)",
    "frequency": "frequency slope",
    "diff": "diff with the twin",
    "diff, retrained": "diff with a retrained model",
    "gcg": "GCG, 4 tokens",
    "lens": "the lens says that something stands apart",
}
_TESTS = (": tokens", ": words")
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
_BESIDE = 0.012  # of a panel's range of biases, between two detectors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """How often something was so, `hits` of `of` times."""

    hits: int
    of: int

    @property
    def rate(self) -> float:
        """The share."""
        return self.hits / self.of

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper and Pearson's 95 % interval of the rate."""
        found = scipy.stats.binomtest(self.hits, self.of).proportion_ci(method="exact")
        return float(found.low), float(found.high)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.hits}/{self.of} ({low:.2f}–{high:.2f})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alarms:
    """False alarms of twins, each of which was asked about several groups or words.

    The answers of one twin are not independent, so the interval is that of `twins`.

    Attributes:
      asked: alarms, of all questions to all twins.
      twins: twins with an alarm, of all twins.
    """

    asked: Share
    twins: Share

    @property
    def rate(self) -> float:
        """The share of questions, as recall is of one question to each organism."""
        return self.asked.rate

    def __str__(self) -> str:
        return f"{self.asked.hits}/{self.asked.of}; twins {self.twins}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """Organisms of one kind and strength, under one prompt.

    Attributes:
      kind: of the plant.
      strength: of the plant, in log-odds; 0: the twins, whose shares are false alarms.
      prompt: under which the vocabulary was swept.
      texts: medians over organisms of the bias on held-out texts, in standard deviations.
      tokens: the same over the vocabulary.
      found: detector -> how often it named the plant.
    """

    kind: str
    strength: float
    prompt: str
    texts: float
    tokens: float
    found: Mapping[str, Share | Alarms]

    @property
    def planted(self) -> bool:
        """Whether a bias is planted under this prompt; else a share is neither recall nor alarm."""
        return self.prompt == Plant(kind=self.kind, strength=0.0, seed=0).home

    @property
    def swept(self) -> str:
        """The prompt, and whether nothing was planted under it."""
        return self.prompt if self.planted else f"{self.prompt} (planted elsewhere)"


def summary(rows: Sequence[dict[str, Any]]) -> list[Cell]:
    """The cells of all rows that `cells.Laboratory` measured; after each kind, its twins."""
    twins = [row for row in rows if row["kind"] == "twin"]
    found = []
    for kind in KINDS:
        own = [row for row in rows if row["kind"] == kind]
        for prompt in dict.fromkeys(prompt for row in own for prompt in row["found"]):
            for strength in sorted({row["strength"] for row in own}):
                found.append(_cell([r for r in own if r["strength"] == strength], prompt))
            found.append(_false_alarms(twins, kind, prompt))
    return found


def _cell(rows: Sequence[dict[str, Any]], prompt: str) -> Cell:
    votes: dict[str, list[bool]] = {}
    for row in rows:
        for detector, value in row["found"][prompt].items():
            votes.setdefault(_plain(detector), []).append(value)
    return Cell(
        kind=rows[0]["kind"],
        strength=rows[0]["strength"],
        prompt=prompt,
        texts=float(np.median([row["effect"][prompt] for row in rows])),
        tokens=float(np.median([row["tokens"][prompt] for row in rows])),
        found={name: Share(hits=sum(values), of=len(values)) for name, values in votes.items()},
    )


def _false_alarms(twins: Sequence[dict[str, Any]], kind: str, prompt: str) -> Cell:
    """Every twin, and everything that the plant might have been of."""
    votes: dict[str, list[list[bool]]] = {}  # detector -> answers of each twin
    for row in twins:
        for key, values in row["alarms"].items():
            of, asked, detector = key.split("|")
            if (of, asked) == (kind, prompt):
                votes.setdefault(_plain(detector), []).append(values)
    return Cell(
        kind=kind,
        strength=0.0,
        prompt=prompt,
        texts=0.0,
        tokens=0.0,
        found={name: _alarms(answers) for name, answers in votes.items()},
    )


def _alarms(answers: Sequence[Sequence[bool]]) -> Alarms:
    return Alarms(
        asked=Share(hits=sum(map(sum, answers)), of=sum(map(len, answers))),
        twins=Share(hits=sum(map(any, answers)), of=len(answers)),
    )


def _plain(detector: str) -> str:
    for test in _TESTS:
        detector = detector.removesuffix(test)
    return detector


def text(cells: Sequence[Cell]) -> str:
    """The table in Markdown: recall in every cell, behind each kind its false alarms, and a key."""
    heads = ["plant", "swept under", "strength", "texts, SD", "tokens, SD", *DETECTORS.values()]
    lines = [_line(heads), "|" + "---|" * len(heads)]
    lines += map(_row, cells)
    return "\n".join([*lines, "", _key(cells), ""])


def _line(entries: Iterable[str]) -> str:
    return "| " + " | ".join(entries) + " |"


def _row(cell: Cell) -> str:
    twins = cell.strength == 0
    measured = ["–", "–"] if twins else [f"{cell.texts:+.2f}", f"{cell.tokens:+.2f}"]
    strength = "*none*" if twins else f"{cell.strength:g}"
    shares = (str(cell.found.get(name, "–")) for name in DETECTORS)
    return _line([cell.kind, cell.swept, strength, *measured, *shares])


def _key(cells: Sequence[Cell]) -> str:
    """What the shares are of."""
    shares = [share for cell in cells for share in cell.found.values()]
    organisms = sorted({share.of for share in shares if isinstance(share, Share)})
    twins = sorted({share.twins.of for share in shares if isinstance(share, Alarms)})
    counts = [" or ".join(map(str, counts)) or "no" for counts in (organisms, twins)]
    return (
        f"Rows with a strength: organisms in which the test named the plant, of the {counts[0]} of "
        "the cell, each asked about its own plant. Rows *none*: false alarms, of all questions to "
        f"the {counts[1]} twins, each asked about every group or word that is planted in some "
        "organism; then twins with one alarm or more, of all twins. In brackets: Clopper and "
        "Pearson's 95 % interval, always of organisms or of twins, because the answers of one twin "
        "are not independent. Rows *planted elsewhere*: nothing was planted under this prompt, so "
        "shares are not recall; they follow what heads carried over from the other prompt "
        "(columns *SD*)."
    )


def figure(cells: Sequence[Cell]) -> matplotlib.figure.Figure:
    """Recall against the bias on held-out texts; a panel for each kind and prompt with a test.

    Dashed lines are the false alarms of the detector of the same colour, of all questions. A
    detector's points stand a little beside those of the others, so that none is hidden.
    """
    panels = list(dict.fromkeys((cell.kind, cell.prompt) for cell in cells if cell.found))
    columns = 4
    drawn = matplotlib.figure.Figure(figsize=(11, 2.6 * -(-len(panels) // columns)))
    shades = dict(zip(DETECTORS, _COLOURS, strict=True))
    for at, (kind, prompt) in enumerate(panels):
        ax = drawn.add_subplot(-(-len(panels) // columns), columns, at + 1)
        own = [cell for cell in cells if (cell.kind, cell.prompt) == (kind, prompt)]
        width = np.ptp([abs(cell.texts) for cell in own if cell.strength] or [0.0])
        for beside, name in enumerate(DETECTORS):
            found = [cell for cell in own if name in cell.found]
            _draw(ax, name, found, shades[name], beside * _BESIDE * width)
        ax.set_title(_title(own[0]), fontsize=9)
        ax.set_ylim(-0.05, 1.05)
        ax.tick_params(labelsize=8)
    drawn.supxlabel("bias on held-out texts, standard deviations", fontsize=9)
    drawn.supylabel("share of organisms in which it is found", fontsize=9)
    handles = {h.get_label(): h for ax in drawn.axes for h in ax.get_legend_handles_labels()[0]}
    drawn.tight_layout()
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "ncols": 4}
    drawn.legend(handles.values(), handles, fontsize=8, **below)
    return drawn


def _title(cell: Cell) -> str:
    elsewhere = "" if cell.planted else "\n(planted elsewhere)"
    return f"{cell.kind}, under “{cell.prompt}”{elsewhere}"


# Any: matplotlib's axes.
def _draw(ax: Any, name: str, cells: Sequence[Cell], colour: str, beside: float) -> None:
    points = list(_points(name, cells))
    if points:
        x, y, low, high = map(np.array, zip(*points, strict=True))
        ax.errorbar(
            *(x + beside, y),
            yerr=(y - low, high - y),
            color=colour,
            marker="o",
            markersize=4,
            linewidth=1,
            label=DETECTORS[name],
        )
    for cell in cells:
        if isinstance(cell.found[name], Alarms):
            ax.axhline(cell.found[name].rate, color=colour, linestyle="--", linewidth=0.8)


def _points(name: str, cells: Sequence[Cell]) -> Iterator[tuple[float, float, float, float]]:
    for cell in cells:
        share = cell.found[name]
        if isinstance(share, Share):
            yield abs(cell.texts), share.rate, *share.interval


def layers_text(rows: Sequence[dict[str, Any]]) -> str:
    """After which layer half of a plant is there, in Markdown, beside valence in the twins.

    Args:
      rows: that `layers.Layers` measured.
    """
    cells: dict[tuple[str, str, str], list[int | None]] = {}
    twins = [row for row in rows if row["kind"] == "twin"]
    for row in [*(row for row in rows if row["kind"] != "twin"), *twins]:
        for prompt, half in row["half"].items():
            strength = "–" if row["kind"] == "twin" else f"{row['strength']:g}"
            kind = "valence, in twins" if row["kind"] == "twin" else row["kind"]
            cells.setdefault((kind, prompt, strength), []).append(half)
    heads = ["plant", "prompt", "strength", "of organisms", "half from layer", "lowest to highest"]
    lines = [_line(heads), "|" + "---|" * len(heads)]
    places = {name: at for at, name in enumerate((*KINDS, "valence, in twins"))}
    for key in sorted(cells, key=lambda key: places[key[0]]):
        found = [half for half in cells[key] if half is not None]
        spread = [f"{np.median(found):g}", f"{min(found)} to {max(found)}"] if found else ["–"] * 2
        lines.append(_line([*key, f"{len(found)}/{len(cells[key])}", *spread]))
    return "\n".join([*lines, ""])
