"""Lists the converted models that commands keep, or removes them.

A command that is given a model's folder or a hub id converts it once, into models/ in $ASSAY_CACHE,
by default ~/.cache/assay. A model that was removed is converted again when it is next needed.
"""

import sys

from engine.display import aligned, counted, in_words
from engine.errors import AssayError
from engine.sources import cache as models
from launch.common import command
from launch.common.text import nearest

_FLAGS = {
    "cache": ("", "Folder of converted models, if commands were given one as --config.cache."),
    "clear": (None, "Name of a model to remove, or `all`."),
}


def cache(given: command.Given) -> command.CommandResult:
    """Flags -> the table, or what was removed."""
    root = models.folder(given.cache)
    entries = models.entries(root)
    if given.clear is None:
        rows = [("name", "source", "size", "last used")]
        rows += [
            (e.name, e.source, in_words(e.nbytes), f"{e.used:%Y-%m-%d %H:%M}") for e in entries
        ]
        total = in_words(sum(entry.nbytes for entry in entries))
        last = f"{root}: {counted(len(entries), 'model')}, {total}" if entries else f"{root}: empty"
        facts = [entry._asdict() for entry in entries]
        lines = [*aligned(rows), last] if entries else [last]
        return command.CommandResult("\n".join(lines), lambda: {"models": facts})
    names = sorted(entry.name for entry in entries)
    if given.clear not in ("all", *names):
        near = nearest(given.clear, names)
        raise AssayError(f"--clear={given.clear}{near}; allowed: {', '.join(['all', *names])}")
    removed = [entry for entry in entries if given.clear in ("all", entry.name)]
    freed = sum(entry.nbytes for entry in removed)
    for entry in removed:
        models.remove(root, entry)
    line = f"{root}: {counted(len(removed), 'model')} removed, {in_words(freed)}"
    return command.CommandResult(line, lambda: {"removed": [entry.name for entry in removed]})


COMMAND = command.Command("cache", cache, __doc__, [_FLAGS])
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
