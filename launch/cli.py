"""What all commands share: one-line errors, config checks, flag types, multi-host start."""

import contextlib
import difflib
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import ml_collections
from absl import app, flags
from ml_collections import config_flags

from configs import prompts
from engine.errors import AssayError

_MULTIHOST = flags.DEFINE_bool(
    "multihost", False, "Start jax.distributed (TPU pod, SLURM, or JAX_COORDINATOR_ADDRESS)."
)
_CONFIG_HELP = (
    "Settings: the file says what each key means and takes; --config.<key>=<value> sets one."
)
flags.disclaim_key_flags()  # `--config` is listed by the --help of the command that defines it


def run(main: Callable[[], str]) -> None:
    """Runs a command: prints the line it returns, or one line saying what is wrong (exit 2)."""
    command = _command()

    def body(argv: list[str]) -> int:
        _quiet()
        try:
            _check_text(sys.argv[1:])
            if len(argv) > 1:
                raise AssayError(f"argument {argv[1]!r}; allowed: flags only, as --name=value")
            if _MULTIHOST.value:
                import jax

                jax.distributed.initialize()
            print(main(), flush=True)
        except AssayError as error:
            print(f"{command}: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print(f"{command}: interrupted; run it again to go on", file=sys.stderr)
            return 130
        except BrokenPipeError:  # `| head` has read enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0

    app.run(body, flags_parser=_parse)


def config_file(name: str) -> flags.FlagHolder[ml_collections.ConfigDict]:
    """Defines `--config`: by default configs/<name>.py, wherever the command is started."""
    default = Path(prompts.__file__).with_name(f"{name}.py")
    with _one_line():  # the default and its overrides are read here already
        return config_flags.DEFINE_config_file("config", str(default), _CONFIG_HELP)


def chosen_prompts(ids: str, own: list[str]) -> Mapping[str, str]:
    """Prompt id -> text: the user's own `--prompt` texts, or those of configs/prompts.py."""
    if own:
        return {prompt_id(text): text for text in own}
    chosen = [name.strip() for name in ids.split(",") if name.strip()]
    for name in chosen:
        if name not in prompts.PROMPTS:
            raise AssayError(
                f"prompts={name!r}{_nearest(name, prompts.PROMPTS)}; "
                f"allowed: {', '.join(prompts.PROMPTS)}"
            )
    return {name: prompts.PROMPTS[name] for name in chosen}


def prompt_id(text: str) -> str:
    """Id of a prompt: its name in configs/prompts.py, or one made of its first words."""
    for name, known in prompts.PROMPTS.items():
        if text == known:
            return name
    import hashlib

    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:32].strip("-")
    return f"{words or 'prompt'}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def paths(value: Sequence[str | None], flag: str) -> list[str]:
    """A comma-separated flag that must name something."""
    named = [path for path in value if path]
    if not named or len(named) < len(value):
        allowed = flags.FLAGS[flag].help.split(". ")[0].rstrip(".")
        raise AssayError(f"--{flag} is missing; allowed: {allowed[0].lower()}{allowed[1:]}")
    return named


def _check_text(arguments: Iterable[str]) -> None:
    """Refuses bytes that are not UTF-8: Python passes them on as lone surrogates."""
    for argument in arguments:
        if re.search("[\ud800-\udfff]", argument):
            raise AssayError(f"argument {argument!r}: not UTF-8; allowed: UTF-8 text")


def _parse(argv: list[str]) -> list[str]:
    with _one_line():
        positional = flags.FLAGS(argv)
        if "config" in flags.FLAGS:
            flags.FLAGS.config.keys()  # a file that did not load says so at its first use
        return positional


@contextlib.contextmanager
def _one_line() -> Iterator[None]:
    """A misspelt flag or config key, or a bad value, is one line with the nearest name (exit 2)."""
    try:
        yield
        return
    except flags.UnrecognizedFlagError as error:
        known = list(flags.FLAGS)
        message = f"--{error.flagname} is no flag{_nearest(error.flagname, known)}; see --help"
    except SyntaxError as error:  # of a config file; it names file and line
        message = f"--config: {error}"
    except (flags.Error, AttributeError, LookupError, TypeError, ValueError, OSError) as error:
        message = _config_problem(str(error))
    print(f"{_command()}: {message}", file=sys.stderr)
    sys.exit(2)


def _config_problem(text: str) -> str:
    """ml_collections' complaint as one line."""
    if "Traceback" in text or "[Errno" in text:  # of a config file: the last line is the reason
        reason = re.sub(r"^\S+Error: |\[Errno \d+\] ", "", text.strip().splitlines()[-1].strip())
        if "positional argument" in reason:
            reason = "this file takes nothing behind its name; allowed: no ':…'"
        return f"--config: {reason}"
    text = " ".join(text.replace("\\n", " ").replace("\\", "").split())
    key = re.match(r"\W+(\w+)'( Did you mean \"(\w+)\"|\W*$)", text)  # of a key it lacks: 'key'
    if not key:
        return text
    near = f" (did you mean {key[3]!r}?)" if key[3] else ""
    return f"--config has no key {key[1]!r}{near}"


def _command() -> str:
    return Path(sys.argv[0]).stem


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _quiet() -> None:
    # Libraries' progress notes are not a user's business; their warnings are.
    for name in ("absl", "jax", "orbax", "transformers", "etils"):
        logging.getLogger(name).setLevel(logging.ERROR)
