"""What all commands share: one-line errors, config checks, flag types, multi-host start."""

import difflib
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping

from absl import app, flags

from configs import prompts
from engine.errors import AssayError

PROGRAM = os.path.basename(os.path.dirname(sys.argv[0]))

_MULTIHOST = flags.DEFINE_bool(
    "multihost", False, "Start jax.distributed (TPU pod, SLURM, or JAX_COORDINATOR_ADDRESS)."
)


def run(main: Callable[[], str]) -> None:
    """Runs a command: prints the line it returns, or one line saying what is wrong (exit 2)."""
    command = os.path.splitext(os.path.basename(sys.argv[0]))[0]

    def body(argv: list[str]) -> int:
        _quiet()
        try:
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
        return 0

    app.run(body, flags_parser=lambda argv: _parse(command, argv))


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


def paths(value: list[str], flag: str) -> list[str]:
    """A comma-separated flag that must name something."""
    if not value or not all(value):
        raise AssayError(f"--{flag} is missing; see --help")
    return value


def _parse(command: str, argv: list[str]) -> list[str]:
    """Parses flags; a misspelt flag or config key is one line with the nearest name."""
    try:
        return flags.FLAGS(argv)
    except flags.UnrecognizedFlagError as error:
        known = list(flags.FLAGS)
        message = f"--{error.flagname} is no flag{_nearest(error.flagname, known)}; see --help"
    except (flags.Error, AttributeError, KeyError, TypeError, ValueError, OSError) as error:
        message = " ".join(str(error).split())
    print(f"{command}: {message}", file=sys.stderr)
    sys.exit(2)


def _nearest(name: str, known) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _quiet() -> None:
    # Libraries' progress notes are not a user's business; their warnings are.
    for name in ("absl", "jax", "orbax", "transformers", "etils"):
        logging.getLogger(name).setLevel(logging.ERROR)
