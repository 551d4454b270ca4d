"""How often Assay finds a bias that was planted, and how often it finds one that was not.

    python -m bench.organisms [--out=out/organisms] [--seeds=10] [--kinds=group,trigger]

Trains heads with planted biases and their unbiased twins (`demo.train_heads`), writes their runs,
and asks the tests of a report and of `assay diff` about each. Prints one table of recall and false
alarms, and writes it with a figure under --out. It continues where it stopped: hidden states,
heads and rows are kept, and used again for the same recipe and texts.
"""

import argparse
from pathlib import Path

from bench.organisms.cells import Laboratory
from bench.organisms.table import figure, summary, text
from demo.organisms.hidden import Decoder, reference
from demo.organisms.plants import KINDS


def main() -> None:
    """Measures what is missing, then prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.organisms",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("out/organisms"), help="what is kept")
    parser.add_argument("--seeds", type=int, default=10, help="organisms in a cell, at least 2")
    parser.add_argument("--kinds", default=",".join(KINDS), help="plants, comma-separated")
    given = parser.parse_args()
    kinds = given.kinds.split(",")
    if given.seeds < 2 or not set(kinds) <= set(KINDS):
        parser.error(f"allowed: --seeds of 2 or more, --kinds of {','.join(KINDS)}")
    decoder = Decoder(reference(given.out), given.out / "states")
    rows = Laboratory(given.out, decoder, given.seeds).measure(kinds)
    table = summary(rows)
    print(text(table))
    (given.out / "table.md").write_text(text(table), encoding="utf-8")
    figure(table).savefig(given.out / "organisms.svg", bbox_inches="tight")


if __name__ == "__main__":
    main()
