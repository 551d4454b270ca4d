"""The import rules of the packages, read from the syntax tree of every module.

Imports inside functions and under TYPE_CHECKING count too: an arrow is an arrow. To add a room to
`engine`, add its name to the tier where it stands.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# A room of `engine` imports itself and the rooms in the lines above its own, nothing beside it.
# `engine/__init__.py`, the public face, imports any of them, and none of them imports it.
ENGINE_TIERS = [
    {"errors"},
    {"types", "rendering", "progress"},
    {"models", "prompts", "runs"},
    {"mesh", "candidates", "cues"},
    {"checkpoint", "scoring", "verify"},
    {"jobs", "language"},
    {"sweep", "logprobs"},
    {"search"},
    {"api"},
]
ENGINE_TIER = {room: tier for tier, rooms in enumerate(ENGINE_TIERS) for room in rooms}

# Package -> which of our own packages (or modules) it may import beside itself.
MAY_IMPORT = {
    "launch": {"engine", "analysis", "configs", "demo"},
    "configs": set(),
    "engine": set(),
    "analysis": {"engine.errors", "engine.runs.schema"},
    "demo": set(),
}
EXTRA = {"demo.train_heads": {"engine", "analysis"}}
TORCH = {"demo.train_heads", "demo.features"}  # train the committed heads; `make demo` runs neither
OURS = {*MAY_IMPORT, "bench", "tests"}

# Where -> third-party and standard modules that it must not import, and why.
DEVICE = {"jax", "jaxlib", "flax", "optax", "orbax", "transformers"}
FILES = {"io", "os", "pathlib", "shutil", "tempfile", "etils", "orbax", "polars", "safetensors"}
BANNED = {
    "configs": (DEVICE, "configs are read before any device work"),
    "analysis": (DEVICE, "analysis runs where there is no jax"),
    "engine.models": (FILES, "models do no I/O"),
}
PLOTTING = {"matplotlib", "seaborn", "plotly"}


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Dotted names that a module of `package` imports; `from a import b` is `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(parents if node.level else []), *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("import_module", "__import__")
        ):
            names = [a.value for a in node.args[:1] if isinstance(a, ast.Constant)]
            yield from (str(name) for name in names if not str(name).startswith("."))


def engine_problem(module: str, target: str) -> str | None:
    """What is wrong with `module` of engine importing `target` of engine."""
    if module == "engine":
        return None
    room = module.split(".")[1]
    if room not in ENGINE_TIER:
        return f"room {room!r} is not in ENGINE_TIERS: add it to the tier where it stands"
    if target == "engine":
        return "a room does not import engine's public face"
    other = target.split(".")[1]
    if other not in ENGINE_TIER:
        return f"{target}: {other!r} is not in ENGINE_TIERS"
    if other != room and ENGINE_TIER[other] >= ENGINE_TIER[room]:
        return f"{target}: {other!r} does not stand above {room!r}"
    return None


def import_problem(module: str, target: str) -> str | None:
    """What is wrong with `module` importing `target`, both dotted names."""
    package, top = module.split(".")[0], target.split(".")[0]
    if top == package == "engine":
        return engine_problem(module, target)
    if top in OURS and top != package:
        allowed = MAY_IMPORT[package] | EXTRA.get(module, set())
        if not any(within(target, name) for name in allowed):
            return f"{target}: {package} may import {sorted(allowed) or 'no other package'}"
    for place, (names, reason) in BANNED.items():
        if within(module, place) and top in names:
            return f"{target}: {reason}"
    if top in PLOTTING and not within(module, "analysis.figures"):
        return f"{target}: only analysis.figures draws"
    if top == "torch" and module not in TORCH:
        return f"{target}: the runtime does not install torch"
    return None


def module_problems(module: str, package: str, source: str) -> Iterator[str]:
    tree = ast.parse(source)
    if package.startswith("engine.") or module.startswith("engine."):
        room = module.split(".")[1]
        if room not in ENGINE_TIER:
            yield f"room {room!r} is not in ENGINE_TIERS: add it to the tier where it stands"
            return
    for target in imports(tree, package):
        if problem := import_problem(module, target):
            yield problem
    if within(module, "engine.models"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "open":
                yield "open(): models do no I/O"


def problems(root: Path) -> list[str]:
    """`path: what is wrong`, for every module of our packages under `root`."""
    found = []
    for path in sorted(path for name in MAY_IMPORT for path in (root / name).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        package = ".".join(parts[:-1])
        module = package if parts[-1] == "__init__" else ".".join(parts)
        for problem in module_problems(module, package, path.read_text(encoding="utf-8")):
            found.append(f"{path.relative_to(root)}: {problem}")
    return found


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, source in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(source, encoding="utf-8")


def test_every_module_keeps_the_import_rules():
    assert problems(ROOT) == []


ALLOWED = {
    "launch/sweep.py": "import engine, analysis.load\nfrom configs import models\nimport demo",
    "configs/sweep.py": "from ml_collections import ConfigDict\nfrom . import common",
    "engine/__init__.py": "def load():\n    from engine.sweep import run\n    from . import search",
    "engine/types.py": "import numpy, jax",
    "engine/models/decoder.py": "import jax\nfrom . import config\nfrom ..types import Array",
    "engine/scoring.py": "from engine.models.decoder import Decoder\nfrom engine import types",
    "engine/sweep.py": "import pathlib, polars\nfrom engine import scoring, candidates",
    "analysis/load.py": "import polars, scipy\nfrom engine.runs.schema import VOCAB_COLUMNS",
    "analysis/ranks.py": "from engine.runs import schema\nfrom .load import frames",
    "analysis/figures/heat.py": "import matplotlib.pyplot as plt\nfrom analysis import ranks",
    "demo/build.py": "import gguf\nfrom demo.models import EMBEDDED",
    "demo/train_heads.py": "import engine",
}


def test_a_tree_that_keeps_the_rules_has_no_problems(tmp_path):
    write_tree(tmp_path, ALLOWED)
    assert problems(tmp_path) == []


@pytest.mark.parametrize(
    ("path", "source", "message"),
    [
        ("launch/sweep.py", "import bench.sweep", "launch may import"),
        ("launch/sweep.py", "from tests import conftest", "launch may import"),
        ("configs/sweep.py", "import jax.numpy as jnp", "before any device work"),
        ("configs/sweep.py", "import engine", "configs may import no other package"),
        ("configs/sweep.py", "def f():\n    from engine import types", "configs may import"),
        ("engine/types.py", "from engine.models import decoder", "does not stand above 'types'"),
        ("engine/mesh.py", "from engine.scoring import Scorer", "does not stand above 'mesh'"),
        ("engine/scoring.py", "from . import checkpoint", "does not stand above 'scoring'"),
        ("engine/scoring.py", "from .sweep import run", "does not stand above 'scoring'"),
        ("engine/logprobs.py", "def f():\n    import engine.sweep", "above 'logprobs'"),
        ("engine/runs/parts.py", "from ..checkpoint import hf", "does not stand above 'runs'"),
        ("engine/runs/__init__.py", "from ..sweep import run", "does not stand above 'runs'"),
        ("engine/sweep.py", "import engine", "public face"),
        ("engine/sweep.py", "from engine import load", "'load' is not in ENGINE_TIERS"),
        ("engine/sweep.py", "import importlib\nimportlib.import_module('configs')", "no other"),
        ("engine/sweep.py", "import analysis", "engine may import no other package"),
        ("engine/novel.py", "", "room 'novel' is not in ENGINE_TIERS: add it"),
        ("engine/models/heads.py", "import os.path", "models do no I/O"),
        ("engine/models/heads.py", "from pathlib import Path", "models do no I/O"),
        ("engine/models/heads.py", "import orbax.checkpoint", "models do no I/O"),
        ("engine/models/heads.py", "def f():\n    import polars", "models do no I/O"),
        ("engine/models/heads.py", "def f():\n    return open('x')", "models do no I/O"),
        ("analysis/ranks.py", "def f():\n    import jax", "where there is no jax"),
        ("analysis/ranks.py", "from flax import nnx", "where there is no jax"),
        ("analysis/load.py", "from engine.runs import parts", "analysis may import"),
        ("analysis/load.py", "import engine", "analysis may import"),
        ("analysis/load.py", "from configs import models", "analysis may import"),
        ("analysis/ranks.py", "import matplotlib.pyplot", "only analysis.figures draws"),
        ("launch/analyze.py", "import matplotlib", "only analysis.figures draws"),
        ("demo/build.py", "import engine", "demo may import no other package"),
        ("demo/build.py", "from analysis import ranks", "demo may import no other package"),
        ("engine/checkpoint/hf.py", "import torch", "the runtime does not install torch"),
    ],
)
def test_a_planted_violation_is_found(tmp_path, path, source, message):
    write_tree(tmp_path, {path: source})
    (problem,) = problems(tmp_path)
    assert problem.startswith(f"{path}: ")
    assert message in problem


# Imports every module of the packages named on the command line, then prints what came with them.
LOADED = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), name + "."):
        importlib.import_module(found.name)
print(*sorted({name.split(".")[0] for name in sys.modules}))
"""


def loaded_by(*names: str) -> set[str]:
    command = [sys.executable, "-c", LOADED, *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_analysis_and_configs_load_no_jax():
    assert not loaded_by("analysis", "engine.runs.schema", "configs") & {"jax", "flax", "torch"}


def test_the_check_for_loaded_modules_sees_jax():
    assert "jax" in loaded_by("jax.numpy")
