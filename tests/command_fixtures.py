"""Commands started inside the test process: what `python -m launch.<name>` does, less imports."""

import contextlib
import dataclasses
import logging
import runpy
import sys
import warnings

import pytest
from absl import app, flags


@dataclasses.dataclass(frozen=True)
class Done:
    code: int
    out: list[str]
    err: list[str]


app.define_help_flags()  # absl defines them once a process, at the first command


@contextlib.contextmanager
def fresh_launch(argv):
    """`launch` as if it had never been imported: every command defines a flag `--config`."""
    known, argv_before = dict(flags.FLAGS._flags()), sys.argv
    modules = {m: sys.modules.pop(m) for m in list(sys.modules) if m.split(".")[0] == "launch"}
    loggers = {name: logging.getLogger(name) for name in ("absl", "jax", "orbax", "transformers")}
    levels = {name: logger.level for name, logger in loggers.items()}
    for name, owned in flags.FLAGS.flags_by_module_dict().items():
        if name.startswith("launch.") or name in modules:
            for flag in owned:
                flags.FLAGS._flags().pop(flag.name, None)
    sys.argv = argv
    try:
        with warnings.catch_warnings():
            # How ml_collections loads a config file.
            warnings.filterwarnings("ignore", r"the load_module\(\) method", DeprecationWarning)
            yield
    finally:
        sys.argv = argv_before
        for name in [m for m in sys.modules if m.split(".")[0] == "launch"]:
            del sys.modules[name]
        sys.modules.update(modules)
        flags.FLAGS._flags().clear()
        flags.FLAGS._flags().update(known)
        flags.FLAGS.unparse_flags()
        for name, level in levels.items():
            loggers[name].setLevel(level)


@pytest.fixture
def command(capsys):
    """Name of a command and its flags -> exit code and what it printed."""

    def run(name, *arguments) -> Done:
        capsys.readouterr()
        with fresh_launch([f"launch/{name}.py", *map(str, arguments)]):
            try:
                runpy.run_module(f"launch.{name}", run_name="__main__", alter_sys=True)
                code = 0
            except SystemExit as done:
                code = done.code or 0
        out, err = capsys.readouterr()
        return Done(code, out.splitlines(), err.splitlines())

    return run
