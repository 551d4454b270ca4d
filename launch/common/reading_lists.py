"""Lists of a run that are scored under every reading too: those that people ranked."""

from etils import epath

from engine.errors import AssayError
from engine.runs import parts, provenance, schema, storage
from engine.runs.reader import read_contents
from launch.common.reading_tasks import Listed
from launch.common.spelling import nearest


def lists_of(run: epath.Path, asked: str) -> list[Listed]:
    """The lists of a run, with people's ranks and the prompts under which they were scored.

    Args:
      run: the folder, with or without a run in it.
      asked: names, comma-separated; `auto` for all whose ranks by people the run holds.

    Raises:
      AssayError: a list that the run does not hold, or of which it holds no ranks by people.
    """
    if not storage.exists(run / schema.MANIFEST):
        if asked not in ("auto", ""):
            raise AssayError(f"lists={asked!r}: run {run} holds no lists; allowed: 'auto'")
        return []
    contents = read_contents(run)
    scored = [result for result in contents.results.values() if result.items]
    ranked = {
        str(result.items)
        for result in scored
        if result.kind == schema.ITEMS_DIR
        and storage.exists(run / schema.humans_path(str(result.items)))
    }
    names = sorted(ranked) if asked == "auto" else [n.strip() for n in asked.split(",") if n]
    found = []
    for name in names:
        if name not in ranked:
            raise AssayError(
                f"lists={name!r}{nearest(name, ranked)}; allowed: lists of the run with ranks by "
                f"people ({', '.join(sorted(ranked)) or 'it has none'})"
            )
        asked_for = {r.prompt: contents.prompts[r.prompt] for r in scored if r.items == name}
        place = schema.humans_path(name)
        data = storage.read(run / place)
        table = parts.read_frame(run / place, None, provenance.of_table(place), may_be_old=True)
        replies = table.frame.sort("item_id")["item"].to_list()
        found.append(Listed(name=name, replies=replies, humans=data, prompts=asked_for))
    return found
