"""Prints how far rewards are from those of torch: every decoder family, every kind of head.

    python -m tests.support.parity_table [--only=<part of a name>]

The checks of tests/parity on random models with enlarged weights, in float32, prompts of 160
positions for families and 60 for heads. A number is the largest difference in units of the spread:
of the rewards, and for a gradient of its largest slope. The tests allow 1e-4.

    plain     whole sequences of 1 to 160 positions, as the self-check computes them
    sweep     two positions behind the whole prefix, as a token with its closing one
    list      replies of five positions
    text      1 to 5 positions behind all or a part of the prefix, as text that merges with it
    lens      after every layer
    gradient  by one-hot rows, against finite differences in float64

About ten minutes of CPU time on two cores.
"""

import argparse
import copy
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.parity import test_lens, test_one_hot_gradient
from tests.support import heads, parity, torch_models

NAMES = ("plain", "sweep", "list", "text", "lens", "gradient")


def largest(check: Callable[[], object]) -> float:
    """The largest relative error that a check compares with its tolerance."""
    errors = [0.0]

    def record(actual, expected, scale: float, tolerance: float = 0.0) -> None:
        errors.append(float(np.abs(np.asarray(actual) - expected).max() / scale))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parity, "assert_close", record)
        check()
    return float(np.max(errors))


def of_family(name: str, folder: Path) -> list[float]:
    """The errors of a decoder family with a linear head, one for each of `NAMES`."""
    pair = parity.converted(name, folder)
    model, restored = pair.model, pair.restored
    double = copy.deepcopy(model).double()
    checks = (
        lambda: parity.check_plain(model, restored),
        lambda: parity.check_candidates(model, restored, parity.whole_candidates(2)),
        lambda: parity.check_candidates(model, restored, parity.whole_candidates(5)),
        lambda: parity.check_response(model, restored),
        lambda: test_lens.check(test_lens.lens_of(restored), *test_lens.of_family(pair)),
        lambda: test_one_hot_gradient.check(
            (double.base_model, lambda h, gate: double.score(h)[0], restored.scorer)
        ),
    )
    return [largest(check) for check in checks]


def of_head(name: str, folder: Path) -> tuple[str, list[float]]:
    """The decoder of a kind of head, and its errors: of all passes together, lens and gradient."""
    case = heads.load(name, folder)
    head, trunk = copy.deepcopy(case.head).double(), copy.deepcopy(case.trunk).double()
    passes = largest(lambda: heads.check(case, case.restored))
    lens = largest(lambda: test_lens.check_head(case))
    double = trunk, lambda h, gate: head(h, gate).reward, case.restored.scorer
    slopes = largest(lambda: test_one_hot_gradient.check(double))
    return case.trunk.config.model_type, [passes, lens, slopes]


def cells(errors: list[float]) -> str:
    """A row's numbers."""
    return " | ".join(f"{error:.1e}" for error in errors)


def main() -> None:
    """Prints both tables."""
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--only", default="", help="families and heads that hold this")
    only = flags.parse_args().only
    # The text of a Gemma 3 with images is that of `gemma3`.
    named = [name for name in torch_models.CONFIGS if "images" not in name]
    families = [name for name in (*named, "internlm2") if only in name]
    kinds = [name for name in (*heads.CASES, *heads.FORMS) if only in name]
    with tempfile.TemporaryDirectory() as folder:
        print(f"| decoder | {' | '.join(NAMES)} |\n|{'---|' * (1 + len(NAMES))}")
        for number, name in enumerate(families):
            print(f"| {name} | {cells(of_family(name, Path(folder, f'f{number}')))} |", flush=True)
        print(f"\n| head | decoder | passes | lens | gradient |\n|{'---|' * 5}")
        for number, name in enumerate(kinds):
            decoder, errors = of_head(name, Path(folder, f"h{number}"))
            print(f"| {name} | {decoder} | {cells(errors)} |", flush=True)


if __name__ == "__main__":
    main()
