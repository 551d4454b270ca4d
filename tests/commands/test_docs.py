"""README, notes and pages name only commands, flags, files and columns that exist."""

import ast
import importlib
import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from engine.runs import schema
from launch.__main__ import ALIASES, COMMANDS

ROOT = Path(__file__).parents[2]
# The changelog names what is gone.
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if page.name != "CHANGELOG.md"
)
OWN = ("engine", "analysis", "launch", "configs", "bench", "demo", "docs", "tests")
_MODULE = re.compile(rf"({'|'.join(OWN)})(\.\w+)+")
_PATH = re.compile(rf"({'|'.join(OWN)})/[\w./-]*")


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def _spans(page: Path) -> list[str]:
    """Inline code, outside fenced blocks, and tables of other programs' names."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^### Every field.*?^#", "", text, flags=re.MULTILINE | re.DOTALL)
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]


def _commands(page: Path) -> list[list[str]]:
    """Words of every command line, in blocks and in the text."""
    lines = [
        line for block in _blocks(page, "shell") for line in block.replace("\\\n", " ").splitlines()
    ]
    spans = [s for s in _spans(page) if re.match(r"(assay|make|python -m) ", s) and "<" not in s]
    return [words for line in (*lines, *spans) if (words := shlex.split(line, comments=True))]


def _command(name: str):
    return importlib.import_module(f"launch.{ALIASES.get(name, name)}").COMMAND


def _config_keys(command: str) -> set[str]:
    settings = _command(command).settings
    config = settings.defaults() if settings else {}

    def keys(part, before):
        for name in part:
            yield f"{before}{name}"
            if hasattr(part[name], "items"):
                yield from keys(part[name], f"{before}{name}.")

    return set(keys(config, ""))


def _check_flags(command: str, words: list[str]) -> None:
    known = {*_command(command)._flags(), "config"}
    for word in words:
        if setting := re.match(r"--(?:no)?config\.([\w.]+)", word):
            assert setting[1] in _config_keys(command), f"{command} {word}"
        elif flag := re.match(r"--(?:no(?=once))?([\w-]+)", word):
            assert flag[1] in known, f"{command} {word}"


def _has_spec(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_flags_of_a_page_exist(page):
    makefile = (ROOT / "Makefile").read_text()
    for words in _commands(page):
        words = words[words.index("assay") :] if "assay" in words else words
        match words:
            case ["assay", "help", command]:
                assert command in {*COMMANDS, *ALIASES}, words
            case ["assay", command, *rest] if not command.startswith("-"):
                assert command in {*COMMANDS, *ALIASES}, words
                _check_flags(command, rest)
            case ["python", "-m", module, *rest]:
                assert _has_spec(module), words
                if module.startswith("launch."):
                    _check_flags(module.removeprefix("launch."), rest)
            case ["make", *targets]:
                for target in targets:
                    known = "=" in target or re.search(rf"^{target}:", makefile, re.MULTILINE)
                    assert known, words


@pytest.fixture(scope="module")
def sources():
    """Every source and configuration file as one text."""
    files = [path for folder in OWN for path in (ROOT / folder).rglob("*.py")]
    files += (ROOT / "launch/cluster").iterdir()
    files += [ROOT / "pyproject.toml", ROOT / "Makefile", *ROOT.glob("requirements*.txt")]
    return "\n".join(path.read_text() for path in files)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_modules_settings_and_identifiers_of_a_page_exist(page, sources):
    settings = {key for command in COMMANDS for key in _config_keys(command)}
    for span in _spans(page):
        if setting := re.match(r"--config\.([\w.]+)", span):
            assert setting[1] in settings, span
        if _PATH.fullmatch(span):
            assert (ROOT / span).exists(), span
        if _MODULE.fullmatch(span):
            parts = span.split(".")
            module = next(
                ".".join(parts[:n])
                for n in range(len(parts), 0, -1)
                if _has_spec(".".join(parts[:n]))
            )
            rest = parts[module.count(".") + 1 :]
            source = importlib.util.find_spec(module).origin
            assert not rest or re.search(rf"\b{rest[0]}\b", Path(source).read_text()), span
        if re.fullmatch(r"[A-Za-z_][\w.]*\w", span) and re.search(r"_|[a-z][A-Z]", span):
            assert span.rsplit(".", 1)[-1] in sources, span
    for block in _blocks(page, "python"):
        ast.parse(block)


@pytest.mark.parametrize("page", [p for p in PAGES if p.parent == ROOT], ids=lambda p: p.name)
def test_links_of_a_page_outside_the_site_exist(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert re.match("https?://", target) or (ROOT / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_of_a_page_have_at_most_100_characters(page):
    """But for rows of tables, and one word, such as a link, that nothing can wrap."""
    long = [line for line in page.read_text().splitlines() if len(line) > 100]
    assert [line for line in long if line[0] != "|" and len(line.split()) > 1] == []


def test_the_run_format_lists_every_column():
    text = (ROOT / "docs/run-format.md").read_text()
    contract = {
        "vocab/<tokenizer-hash>.parquet": schema.VOCAB_COLUMNS,
        "scores/": schema.SCORE_COLUMNS,
        "items/<list>/": schema.ITEM_COLUMNS,
        "items/<list>/humans.parquet": schema.HUMAN_COLUMNS,
        "sequences/": schema.SEQUENCE_COLUMNS,
        "logprobs/": schema.LOGPROB_COLUMNS,
        "item_logprobs/<list>/": schema.ITEM_LOGPROB_COLUMNS,
        "conversations/<list>/list.parquet": schema.LIST_COLUMNS,
        "conversations/<list>/": schema.CONVERSATION_COLUMNS,
    }
    for name, columns in contract.items():
        [rows] = re.findall(
            rf"^`{re.escape(name)}`:.*?\n\n\|.*?\n\|[-|]+\n(.*?)\n\n", text, re.M | re.S
        )
        assert re.findall(r"^\| (\w+) \|", rows, re.M) == [*columns], name


def test_the_contract_says_what_the_specifications_of_tables_say():
    spec = importlib.util.spec_from_file_location("contract", ROOT / "docs/contract.py")
    contract = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(contract)
    page = contract.PAGE.read_text(encoding="utf-8")
    assert contract.written(page) == page, "python docs/contract.py writes it"
    assert "| lens.csv | model, prompt, layer, layers (of the model)" in page
    cut = page.replace("layers (of the model)", "layers").replace("| sequences.csv", "| gone.csv")
    assert "| lens.csv | model, prompt, layer, layers (of the model)" in contract.written(cut)
    assert "| sequences.csv" in contract.written(cut)
