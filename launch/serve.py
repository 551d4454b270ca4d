"""Serves a page on this machine that asks one or two reward models.

    assay serve <checkpoint> [<second>] [--run=<dir>] [--port=8431]

Type a question: every token of the vocabulary is ranked while you watch. Type replies, compare two
models or two questions, search, and keep what was ranked in a run. docs/serve.md says what is sent
where. Ctrl-C ends it.
"""

import itertools
import sys
import time
from collections.abc import Sequence

from absl import flags
from absl.flags import FlagValues

from engine import processes
from engine.checkpoint.card import REWARD, Checkpoint
from engine.errors import AssayError
from launch.common import command, scoring
from launch.common.text import say, show


def main(argv: Sequence[str]) -> int:
    """Runs the command with its arguments; returns the exit status."""
    models = list(itertools.takewhile(lambda argument: not argument.startswith("-"), argv))
    rest = [*argv[len(models) :]]
    if models:
        rest.insert(0, f"--checkpoint={','.join(models)}")
    return command.run("serve", rest, serve, doc=__doc__, define=[_define], config="serve")


def _define(given: FlagValues) -> None:
    flags.DEFINE_list("checkpoint", [], "One or two checkpoints.", flag_values=given)
    flags.DEFINE_string(
        "run", None, "The run folder that questions are kept in.", flag_values=given
    )
    flags.DEFINE_integer(
        "port", 8431, "Of the page; 0: any.", lower_bound=0, upper_bound=65535, flag_values=given
    )
    flags.DEFINE_string(
        "host",
        "127.0.0.1",
        "Address to listen at; by default other machines cannot connect.",
        flag_values=given,
    )


def serve(given: command.Given) -> str:
    """Flags -> settings -> models on devices -> a page, until Ctrl-C."""
    try:
        from launch.serving.explorer import Explorer, load_models
        from launch.serving.server import Server, bind
    except ModuleNotFoundError as error:
        raise AssayError(f"no package {error.name}; pip install 'assay[serve]'") from error
    names = command.paths(given, "checkpoint")
    if len(names) > 2:
        raise AssayError(f"--checkpoint: {len(names)} models; allowed: one or two")
    verify = scoring.verify_setting(given.config)
    models = [Checkpoint.open(name, verify=verify) for name in names]
    for model in models:
        model.expect(REWARD)
    settings, mesh = scoring.settings(given.config, models)
    bound, began = bind(given.host, given.port), time.perf_counter()
    try:
        say(f"loading {', '.join(model.card.slug for model in models)}")
        explorer = Explorer(load_models(models, settings, mesh, given.run), settings, given.run)
        say("compiling what the first question needs")
        explorer.warm_up()
        server = Server(explorer, bound, given.host)
        show(f"ready in {time.perf_counter() - began:.0f} s: {server.address}")
        server.wait()
    except KeyboardInterrupt:
        processes.end("serve: ended", processes.INTERRUPTED)
    return "serve: ended"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
