"""Serves a page on this machine on which you ask one or two reward models.

Type a question: every token of the vocabulary is ranked while you watch. Type replies, compare two
models or two questions, search, and keep what was ranked in a run. docs/serve.md says what is sent
where. Ctrl-C ends it. The page is ready when its programs are compiled: half a minute for a
135M-parameter model on two CPU cores, less with those of an earlier call on disk.
"""

import sys
import time
from typing import TYPE_CHECKING

from engine import processes
from engine.checkpoint.card import REWARD
from engine.errors import AssayError
from engine.settings import SweepSettings
from launch.common import command, scoring
from launch.common.config import SCORING_ANY, CommandSettings
from launch.common.text import say

if TYPE_CHECKING:
    from launch.serving.server import Server

_FLAGS = {
    "run": (None, "Run folder in which questions are kept."),
    "port": (8431, "Port of the page; 0 = any.", 0, 65535),
    "host": ("127.0.0.1", "Address to listen at; by default other machines cannot connect."),
}


def serve(given: command.Given) -> command.CommandResult:
    """Flags -> settings -> models on devices -> a page, which a shell serves until Ctrl-C."""
    try:
        from launch.serving.explorer import Explorer, load_models
        from launch.serving.server import Server, bind
    except ModuleNotFoundError as error:
        raise AssayError(f"no package {error.name}; pip install 'assay-rewards[serve]'") from error
    names = command.paths(given, "checkpoint")
    if len(names) > 2:
        raise AssayError(f"--checkpoint: {len(names)} models; allowed: one or two")
    models = scoring.models_given(given)
    for model in models:
        model.expect(REWARD)
    settings, mesh = scoring.settings(SweepSettings, given.config, models)
    bound, began = bind(given.host, given.port), time.perf_counter()
    say(f"loading {', '.join(model.card.slug for model in models)}")
    explorer = Explorer(load_models(models, settings, mesh, given.run), settings, given.run)
    say("compiling what the first question needs")
    explorer.warm_up()
    server = Server(explorer, bound, given.host)
    ready = f"ready in {time.perf_counter() - began:.0f} s: {server.address}"
    facts = {"address": server.address, "server": server}
    return command.CommandResult(ready, lambda: facts, wait=lambda: _wait(server))


def _wait(server: "Server") -> None:
    try:
        server.wait()
    except KeyboardInterrupt:
        processes.end("serve: interrupted", processes.INTERRUPTED)


COMMAND = command.Command(
    "serve",
    serve,
    __doc__,
    (scoring.MODELS, _FLAGS),
    "checkpoint",
    CommandSettings(*SCORING_ANY, without=["objectives", "lens"]),
)
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
