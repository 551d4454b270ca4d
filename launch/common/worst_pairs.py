"""The pairs that a model judges worst, read while their replies go on."""

import functools
import re

import numpy as np
import polars as pl

from engine import processes
from engine.lists.files import ConversationList
from engine.runs import schema

_PAIRS, _CUTS = 3, 24  # pairs of each model, and places in each reply


def cut_replies(listed: ConversationList, run: str, slug: str) -> ConversationList | None:
    """Both replies of the pairs with the lowest margins, each cut behind some of its words.

    The rewards of this list say what the model would give if the reply ended there. At most 24
    evenly spaced words of a reply have one, and its end. Rows with several chosen or several
    rejected replies are left out.

    Returns:
      A list of the model alone (`schema.running_list`); None where `listed` holds no such pairs.
    """
    if "chosen" not in listed.table["side"]:
        return None
    worst = processes.from_first(
        f"worst pairs of {slug}", functools.partial(_worst, listed.name, run, slug)
    )
    rows = []
    single = listed.table.filter(pl.len().over("row", "side") == 1)
    for row in worst:
        for entry in single.filter(row=row).iter_rows(named=True):
            *turns, reply = entry["messages"]
            for end in _ends(reply["content"] or ""):
                cut = [*turns, {**reply, "content": reply["content"][:end]}]
                rows.append({**entry, "messages": cut, "labels": [], "conversation_id": len(rows)})
    if not rows:
        return None
    table = pl.DataFrame(rows, schema=listed.table.schema)
    return listed._replace(name=schema.running_list(listed.name, slug), table=table, notes=[])


def _worst(name: str, run: str, slug: str) -> list[int]:
    """Rows of the file, the lowest margin first."""
    from analysis.measures import pairs  # the analysis, which no other list needs
    from analysis.run import load

    scored = pairs.replies(load(run, finished_only=True), name, [slug])
    judged = pairs.pairs(scored.filter(pl.len().over("row", "side") == 1))
    return judged.sort("margin", "row")["row"].head(_PAIRS).to_list()


def _ends(text: str) -> list[int]:
    """Where a text is cut: behind words, and at its end."""
    words = [match.end() for match in re.finditer(r"\S+", text)]
    if not words:
        return []
    places = np.linspace(0, len(words) - 1, min(len(words), _CUTS)).round().astype(int)
    return sorted({*(words[at] for at in places[:-1]), len(text)})
