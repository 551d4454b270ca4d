"""Every block of the README and of the quick start runs as it is written.

The models at the paths that the pages name are tiny, and make only prints what it would run: the
tests of `tests/demo` run the demo on embedded models.
"""

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from launch.__main__ import main
from tests.support import folders, tiny
from tests.support.sweeps import ONE, Run

ROOT = Path(__file__).parents[2]
BLOCKS = [
    pytest.param(language, block, id=f"{page}-{number}")
    for page in ("README.md", "docs/quick-start.md")
    for number, (language, block) in enumerate(
        re.findall(r"^```(.*?)\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.M | re.S), 1
    )
    if language != "bibtex"
]
# Target -> what make prints for it; `setup` is made when a test runs.
MAKES = {"setup": "", "demo": "-m launch.demo", "test": '-m "not slow" --ignore=tests/demo'}
# Comment beside an expression -> whether it is true of the value.
TRUE = {
    "float32 [2]": lambda rewards: (str(rewards.dtype), rewards.shape) == ("float32", (2,)),
    "polars: token_id, token, reward": lambda frame: (
        frame.columns == ["token_id", "token", "reward"]
    ),
    "as `assay report`": lambda returned: Path(returned["page"]).is_file(),
    "every token as the reply, best first": lambda frame: (
        len(frame) > 256 and frame["reward"].is_sorted(descending=True)
    ),
}


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A folder with what `make demo` leaves in a clone, and with a model of the reader."""
    folder = tmp_path_factory.mktemp("clone")
    for file in [ROOT / "Makefile", ROOT / "pyproject.toml", *ROOT.glob("requirements*.txt")]:
        shutil.copy2(file, folder)
    (folder / ".venv").symlink_to(sys.prefix)
    demo, slug = folder / "out/demo", "smollm2-135m-d16-rt-linear"
    tiny.write_model(folder / "out/my-reward-model", seed=1)
    tiny.write_model(demo / "hf/smollm2-135m-d12-imdb-linear")
    source = tiny.write_model(demo / "hf" / slug, head_seed=1)
    Run(demo / "run").sweep([folders.convert(source, demo / "checkpoints" / slug, slug)], ONE)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("language, block", BLOCKS)
def test_a_block_of_the_first_pages_runs_as_it_is_written(
    language, block, clone, monkeypatch, capsys
):
    assert language in ("shell", "python"), f"no test runs blocks of {language!r}"
    monkeypatch.chdir(clone)
    monkeypatch.setenv("ASSAY_CACHE", "cache")
    if language == "python":
        return _python(block)
    lines = block.replace("\\\n", " ").splitlines()
    for words in filter(None, (shlex.split(line, comments=True) for line in lines)):
        _shell(words)
        if words[:2] == ["assay", "report"]:
            [page] = re.findall("^report: (.*)", capsys.readouterr().out, re.M)
            assert "</html>" in Path(page).read_text("utf-8")


def _shell(words: list[str]) -> None:
    """What a shell would run: `assay` in this process, the rest as it is."""
    if words[0] == "assay":
        return main(words[1:]) and pytest.fail(shlex.join(words))
    assert words[0] in (".", "make"), f"no test runs {words}"
    left_out = ("VENV", "PYTHON", "VIRTUAL_ENV")  # of the make that runs the tests
    inherited = {name: value for name, value in os.environ.items() if name not in left_out}
    done = subprocess.run(
        ["bash", "-c", shlex.join(words)],
        env={**inherited, "PATH": os.defpath, "MAKEFLAGS": "n"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    targets = words[1:] if words[0] == "make" else ()
    assert [target for target in targets if MAKES[target] not in done.stdout] == []


def _python(block: str) -> None:
    names: dict[str, object] = {}
    for node in ast.parse(block).body:
        source = ast.get_source_segment(block, node)
        if not isinstance(node, ast.Expr):
            exec(source, names)
            continue
        comment = block.splitlines()[node.end_lineno - 1].partition("  # ")[2]
        assert TRUE[comment](eval(source, names)), comment
