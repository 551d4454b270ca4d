"""Lists the converted models that commands keep, or removes them.

A command that is given a model's folder or a hub id converts it once, into models/ in $ASSAY_CACHE,
by default ~/.cache/assay. A model that was removed is converted again when it is next needed.
"""

import sys

from absl import flags
from absl.flags import FlagValues

from engine.display import aligned, counted, in_words
from engine.errors import AssayError
from engine.sources import cache as models
from launch.common import command
from launch.common.text import nearest

_ALL = "true"  # what absl makes of a flag without a value


def define_flags(given: FlagValues) -> None:
    """Defines --cache and --clear."""
    text = "Folder of converted models, if commands were given one as --config.cache."
    flags.DEFINE_string("cache", "", text, flag_values=given)
    text = "Remove all models; with `=<name>` only that one."
    clear: flags.Flag[str] = flags.Flag(flags.ArgumentParser(), None, "clear", None, text)
    clear.boolean = True  # it may stand alone
    flags.DEFINE_flag(clear, flag_values=given)


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
        facts = [
            {"name": e.name, "source": e.source, "bytes": e.nbytes, "used": f"{e.used}"}
            for e in entries
        ]
        lines = [*aligned(rows), last] if entries else [last]
        return command.CommandResult("\n".join(lines), lambda: {"models": facts})
    names = sorted(entry.name for entry in entries)
    if given.clear not in (_ALL, *names):
        raise AssayError(
            f"--clear={given.clear}{nearest(given.clear, names)}; allowed: "
            f"{', '.join(names) or 'no name, since the cache is empty'}"
        )
    removed = [entry for entry in entries if given.clear in (_ALL, entry.name)]
    freed = sum(entry.nbytes for entry in removed)
    for entry in removed:
        models.remove(root, entry)
    line = f"{root}: {counted(len(removed), 'model')} removed, {in_words(freed)}"
    return command.CommandResult(line, lambda: {"removed": [entry.name for entry in removed]})


COMMAND = command.Command("cache", cache, __doc__, [define_flags])
main = COMMAND.main


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
