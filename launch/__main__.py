"""`assay <command> …`, the same as `python -m launch.<command> …`."""

import importlib
import importlib.metadata
import sys
from collections.abc import Sequence

from engine import processes
from engine.errors import AssayError
from launch.common.text import escape_unencodable, nearest, show

# Listed here, so that the list needs no import of a command: most of them import jax.
COMMANDS = {
    "report": "From a model's name to its report, in one command. Start here.",
    "demo": "The same for small embedded models; no model is downloaded.",
    "models": "Print the models that Assay knows.",
    "cache": "List the converted models that commands keep, or remove them.",
    "plan": "Say how much memory a model needs, here and on other machines.",
    "convert": "Convert a Hugging Face model to a checkpoint.",
    "sweep": "Score every token of the vocabulary as a reply.",
    "score": "Score a list of replies of any length.",
    "search": "Search for the replies with the highest and lowest reward.",
    "logprobs": "Compute log-probabilities of a language model.",
    "import_scores": "Import scores that others released into a run.",
    "reproduce": "Reproduce the paper, and compare number by number.",
    "verify": "Check a run: every result, hash, row and id.",
    "diff": "Say what changed between two reward models, with a verdict.",
    "watch": "Score a reward model while it is trained, step by step.",
    "analyze": "Write the report of one or several runs.",
    "serve": "Ask reward models on a page; tokens are ranked while you watch.",
}
ALIASES = {"gcg": "search"}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the named command; without one, lists them. Returns the exit status."""
    escape_unencodable()
    name, *arguments = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name == "help" and arguments:
        name, arguments = arguments[0], ["--help"]
    if name in ("--help", "-h", "help"):
        return _printed(_listing())
    if name == "--version":
        return _print_version()
    if name not in (*COMMANDS, *ALIASES):
        near = nearest(name, (*COMMANDS, *ALIASES))
        print(f"assay: {name!r} is no command{near}; `assay` lists them", file=sys.stderr)
        return 2
    return _run(ALIASES.get(name, name), arguments)


def _run(module: str, arguments: Sequence[str]) -> int:
    """Imports a command, which may take seconds, and runs it."""
    try:
        status: int = importlib.import_module(f"launch.{module}").main(arguments)
        return status
    except KeyboardInterrupt:  # outside of `command.run`, which says the same
        print(f"{module}: {processes.stopped(module)}", file=sys.stderr)
        return processes.INTERRUPTED


def _listing() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {does}" for name, does in COMMANDS.items()]
    return "\n".join(
        [
            "usage: assay <command> [--flag=value …]",
            "",
            *lines,
            "",
            "assay help <command> gives examples and flags; assay --version prints the version.",
        ]
    )


def _print_version() -> int:
    try:
        return _printed(f"assay {importlib.metadata.version('assay-rewards')}")
    except importlib.metadata.PackageNotFoundError:
        print("assay: not installed; `pip install -e .` installs it", file=sys.stderr)
        return 2


def _printed(text: str) -> int:
    """Prints a text; returns the exit status."""
    try:
        show(text)
    except AssayError as error:
        print(f"assay: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
