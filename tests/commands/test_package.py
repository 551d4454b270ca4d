"""The package: its requirements agree, and its wheel holds what the commands need."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("engine", "analysis", "configs", "launch", "demo")


def ranges() -> dict[str, Requirement]:
    """Library -> the range that pyproject.toml gives."""
    extras = PROJECT["optional-dependencies"]
    listed = [*PROJECT["dependencies"], *extras["demo"], *extras["docs"], *extras["dev"]]
    return {_name(text): Requirement(text) for text in listed}


def pins() -> dict[str, str]:
    """Library -> the version that the requirements files install on this Python."""
    lines = [
        line
        for path in ROOT.glob("requirements*.txt")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith(("#", "-r"))
    ]
    here = [r for r in map(Requirement, lines) if r.marker is None or r.marker.evaluate()]
    return {_name(str(r)): str(r.specifier).removeprefix("==") for r in here}


def _name(requirement: str) -> str:
    return Requirement(requirement).name.lower().replace("_", "-")


def test_every_pin_is_exact_and_satisfies_its_range():
    for name, version in pins().items():
        assert version[0].isdigit(), name
        # jax's own dependency; and what the Makefile alone installs, beside the other packages.
        if name not in ("jaxlib", "libtpu"):
            assert version in ranges()[name].specifier, name


def test_every_run_time_library_is_pinned():
    assert {_name(text) for text in PROJECT["dependencies"]} <= set(pins())


def test_the_changelog_begins_with_this_version():
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    assert next(line for line in lines if line.startswith("## [")).startswith(
        f"## [{PROJECT['version']}]"
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from a copy, so that nothing stays in the repository."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, source / package, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip("wheel", "--no-build-isolation", f"--wheel-dir={built}", source)
    (path,) = built.iterdir()
    return path


def pip(command, *arguments):
    """Runs pip without looking for dependencies or an index."""
    flags = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", command, *flags, *arguments], check=True)


def test_the_wheel_holds_every_file_of_the_packages(wheel):
    files = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert files - packed == {"demo/picture.png"}  # of the README
    assert {path.split("/")[0] for path in packed if "dist-info" not in path} == set(PACKAGES)


@pytest.mark.slow
def test_an_installed_wheel_works_from_another_folder(wheel, command, checkpoint, tmp_path):
    run, report = tmp_path / "run", tmp_path / "report"
    small = ("--config.step_size=64", "--config.prompts=greatest")
    assert command("sweep", f"--checkpoint={checkpoint().path}", f"--run={run}", *small).code == 0
    pip("install", f"--target={tmp_path / 'site'}", wheel)

    def installed(*arguments) -> str:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    where = installed("-c", "import analysis, engine; print(engine.__file__, analysis.__file__)")
    assert all(path.startswith(str(tmp_path / "site")) for path in where.split())
    assay = tmp_path / "site/bin/assay"
    assert installed(assay, "--version") == f"assay {PROJECT['version']}"
    draws = [f"--config.options.{key}=99" for key in ("permutations", "bootstraps")]
    said = installed(assay, "analyze", f"--run={run}", f"--report={report}", *draws)
    assert said == f"report: {report / 'index.html'}"
    assert "<script>" in (report / "index.html").read_text(encoding="utf-8")
