"""Writes the lines of docs/report-tables.md that the tables' specifications state.

python docs/contract.py
"""

import importlib
import pathlib
import pkgutil
import re
from collections.abc import Iterator

from analysis import chapters, measures
from analysis.columns import Spec

PAGE = pathlib.Path(__file__).parent / "report-tables.md"


def specifications() -> Iterator[Spec]:
    """The public specifications of all chapters and measures, by module and order of definition."""
    for package in (measures, chapters):
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for name, value in vars(importlib.import_module(found.name)).items():
                if isinstance(value, Spec) and not name.startswith("_"):
                    yield value


def written(page: str) -> str:
    """The page with the line of every specification; those that it lacks follow the last line.

    Args:
      page: the text of docs/report-tables.md; lines of tables without a specification stay.
    """
    lines = {spec.name: spec.documented() for spec in specifications()}
    pattern = re.compile(r"^\| (\S+)\.csv \| .* \|\n", re.MULTILINE)
    last = [match.end() for match in pattern.finditer(page)][-1]
    table = pattern.sub(
        lambda m: lines.pop(m[1].replace("\\", ""), m[0].strip()) + "\n", page[:last]
    )
    return table + "".join(f"{line}\n" for line in lines.values()) + page[last:]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
