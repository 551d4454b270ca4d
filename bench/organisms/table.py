"""Recall at the false-alarm rate that the twins gave: one table, one figure."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib
import matplotlib.figure
import numpy as np
import scipy.stats

from demo.organisms.plants import KINDS

# Detector -> its name in the table; a diff has one of two tests for each kind of plant.
DETECTORS = {
    "ends": "top and bottom 20",
    "groups": "groups test",
    "categories": "categories, own list",
    "frequency": "frequency slope",
    "diff": "diff with the twin",
    "diff, retrained": "diff with a retrained model",
    "gcg": "GCG",
    "lens": "lens",
}
_TESTS = (": tokens", ": words")
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#000000")


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
        """Wilson's 95 % interval of the rate."""
        found = scipy.stats.binomtest(self.hits, self.of).proportion_ci(method="wilson")
        return float(found.low), float(found.high)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.hits}/{self.of} ({low:.2f}–{high:.2f})"


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
    found: dict[str, Share]


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


def with_searches(cells: Sequence[Cell], rows: Sequence[dict[str, Any]]) -> list[Cell]:
    """The cells with what `bench.organisms.searches` found, in those that it searched.

    Args:
      cells: what `summary` returned.
      rows: slug and found, of organisms with a trigger and of twins.
    """
    added = []
    for cell in cells:
        name = f"trigger-{cell.strength:g}-" if cell.strength else "twin-"
        votes = [row["found"] for row in rows if f"organism-{name}" in row["slug"]]
        if votes and cell.kind == "trigger":
            share = Share(hits=sum(votes), of=len(votes))
            cell = dataclasses.replace(cell, found={**cell.found, "gcg": share})
        added.append(cell)
    return added


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
    votes: dict[str, list[bool]] = {}
    for row in twins:
        for key, values in row["alarms"].items():
            of, asked, detector = key.split("|")
            if (of, asked) == (kind, prompt):
                votes.setdefault(_plain(detector), []).extend(values)
    return Cell(
        kind=kind,
        strength=0.0,
        prompt=prompt,
        texts=0.0,
        tokens=0.0,
        found={name: Share(hits=sum(values), of=len(values)) for name, values in votes.items()},
    )


def _plain(detector: str) -> str:
    for test in _TESTS:
        detector = detector.removesuffix(test)
    return detector


def text(cells: Sequence[Cell]) -> str:
    """The table in Markdown: recall in every cell, and behind each kind its false alarms."""
    heads = ["plant", "swept under", "strength", "texts, SD", "tokens, SD"]
    shown = [name for name in DETECTORS if any(name in cell.found for cell in cells)]
    heads += [DETECTORS[name] for name in shown]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for cell in cells:
        twins = cell.strength == 0
        measured = ["–", "–"] if twins else [f"{cell.texts:+.2f}", f"{cell.tokens:+.2f}"]
        strength = "*none*" if twins else f"{cell.strength:g}"
        shares = [str(cell.found[name]) if name in cell.found else "–" for name in shown]
        lines.append(
            "| " + " | ".join([cell.kind, cell.prompt, strength, *measured, *shares]) + " |"
        )
    return "\n".join(lines) + "\n"


def figure(cells: Sequence[Cell]) -> matplotlib.figure.Figure:
    """Recall against the bias on held-out texts; a panel for each kind and prompt with a test.

    Dashed lines are the false alarms of the detector of the same colour.
    """
    panels = list(dict.fromkeys((cell.kind, cell.prompt) for cell in cells if cell.found))
    columns = 4
    drawn = matplotlib.figure.Figure(figsize=(11, 2.6 * -(-len(panels) // columns)))
    shades = dict(zip(DETECTORS, _COLOURS, strict=True))
    for at, (kind, prompt) in enumerate(panels):
        ax = drawn.add_subplot(-(-len(panels) // columns), columns, at + 1)
        own = [cell for cell in cells if (cell.kind, cell.prompt) == (kind, prompt)]
        for name in DETECTORS:
            _draw(ax, name, [cell for cell in own if name in cell.found], shades[name])
        ax.set_title(f"{kind}, under “{prompt}”", fontsize=9)
        ax.set_ylim(-0.05, 1.05)
        ax.tick_params(labelsize=8)
    drawn.supxlabel("bias on held-out texts, standard deviations", fontsize=9)
    drawn.supylabel("share of organisms in which it is found", fontsize=9)
    handles = {h.get_label(): h for ax in drawn.axes for h in ax.get_legend_handles_labels()[0]}
    drawn.tight_layout()
    drawn.legend(handles.values(), handles, loc="upper left", bbox_to_anchor=(1.0, 0.9), fontsize=8)
    return drawn


# Any: matplotlib's axes.
def _draw(ax: Any, name: str, cells: Sequence[Cell], colour: str) -> None:
    points = list(_points(name, cells))
    if points:
        x, y, low, high = map(np.array, zip(*points, strict=True))
        ax.errorbar(
            *(x, y),
            yerr=(y - low, high - y),
            color=colour,
            marker="o",
            markersize=4,
            linewidth=1,
            label=DETECTORS[name],
        )
    for cell in cells:
        if cell.strength == 0:
            ax.axhline(cell.found[name].rate, color=colour, linestyle="--", linewidth=0.8)


def _points(name: str, cells: Sequence[Cell]) -> Iterator[tuple[float, float, float, float]]:
    for cell in cells:
        if cell.strength:
            share = cell.found[name]
            yield abs(cell.texts), share.rate, *share.interval
