"""What is in a run, as `--json` prints it; of a list of conversations for the terminal, too."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from analysis.chapters.calibration import calibrated, in_a_line
from analysis.measures import pairs, probes
from analysis.run import Run, load
from analysis.sentences import bounds
from engine import display
from engine.runs import schema, storage
from engine.runs.result import Result

REPLIES = "replies.csv"
_SHOWN = 5  # tokens per end
_WORST = 10  # pairs
_CHARACTERS = 40  # of a text in a line
_OF_MARGINS = ("log_loss", "brier", "error", "temperature", "noise", "within_noise")
_OF_OURS = ("model", "row", "id", "side", "reward", "margin", "right", "prompt", "reply")


# Any: what JSON holds.
def of_run(folder: str, models: Collection[str], texts: Collection[str]) -> Mapping[str, Any]:
    """`results` of a run: those of some models under prompts of some texts."""
    run = load(storage.path_of(folder), allow_incomplete=True)
    kinds = (run.results, run.items, run.logprobs, run.item_logprobs, run.appended)
    all_results = [result for kind in kinds for result in kind.values()]
    results = [
        {
            "path": str(result.folder),
            "model": result.model,
            "prompt": result.prompt,
            "text": result.inputs["prompts"][result.prompt],
            "complete": result.complete,
            "self_check": result.self_check,
            "seconds": result.seconds,
            **({"baseline": result.baseline} if result.reply_start else {}),
            **(_named(run, result) if result.kind == "scores" else {}),
        }
        for result in all_results
        if result.model in models and result.inputs["prompts"][result.prompt] in texts
    ]
    return {"results": results}


# Any: what JSON holds.
def of_conversations(folder: str, name: str, models: Sequence[str]) -> list[Mapping[str, Any]]:
    """What a run holds of a list of conversations: of some models, and of pairs their accuracy.

    `agreement` is the share of pairs of which each other model of the run prefers the same reply.
    """
    run = load(storage.path_of(folder), finished_only=True)
    scored = pairs.replies(run, name)
    judged, all_pairs = pairs.pairs(scored), pairs.pairs(scored, all_rejected=True)
    margins = calibrated(run, name, all_pairs).fill_nan(None)
    between = pairs.between(name, judged).select("model_a", "model_b", "alike").rows()
    judged = judged.filter(pl.col("model").is_in(list(models)))
    shares = pairs.accuracies(name, judged).filter(label=pairs.ALL)
    worst = pairs.worst(name, judged, _WORST).select("model", "row", "id", "margin")
    edits = probes.effects(run, name, models) if name in {of for of, _ in run.probes} else None
    results = list[Mapping[str, Any]]()
    for model in models:
        result = run.conversations[name, model]
        facts: dict[str, Any] = {"path": str(result.folder), "model": model, "list": name}
        facts |= {"self_check": result.self_check, "seconds": result.seconds}
        for share in shares.filter(model=model).to_dicts():
            ends = (share["ci_low"], share["ci_high"])
            facts |= {key: share[key] for key in ("accuracy", "margin", "ties")}
            facts["accuracy_95"] = ends if all(map(math.isfinite, ends)) else None
            facts |= {
                "pairs": share["n"],
                "agreement": {a if b == model else b: n for a, b, n in between if model in (a, b)},
                **{
                    key: value
                    for row in margins.filter(model=model).to_dicts()
                    for key, value in row.items()
                    if key in _OF_MARGINS
                },
                "worst": worst.filter(model=model).drop("model").to_dicts(),
            }
        if edits is not None:
            facts["probes"] = (
                edits.filter(model=model).drop("model", "list").fill_nan(None).to_dicts()
            )
        results.append(facts)
    return results


def _named(run: Run, result: Result) -> dict[str, Any]:  # Any: what JSON holds
    scores = run.joined(result).collect().select("token", "reward")
    ranked = scores.sort("reward", descending=True, maintain_order=True)
    return {
        "highest": ranked.head(_SHOWN).to_dicts(),
        "lowest": ranked[::-1].head(_SHOWN).to_dicts(),
    }


def write_replies(run: str, name: str, models: Sequence[str]) -> list[str]:
    """Writes `replies.csv` beside a list of conversations, and returns what its pairs say.

    The lines are of `models`, with their agreement with the others of the run; the file has all
    that scored the list.
    """
    loaded = load(run, finished_only=True)
    scored = pairs.replies(loaded, name)
    table = scored.select(*_OF_OURS)
    for label in pairs.label_names(scored):
        name_here = label
        while name_here in table.columns:
            name_here = f"label_{name_here}"
        table = table.with_columns(pairs.label_values(scored, label).alias(name_here))
    path = storage.path_of(run) / schema.CONVERSATIONS_DIR / name / REPLIES
    storage.write_atomic(path, table.write_csv().encode())
    own = pairs.pairs(scored, all_rejected=True).filter(pl.col("model").is_in(list(models)))
    margins = calibrated(loaded, name, own).iter_rows(named=True)
    return [*_lines(name, pairs.pairs(scored), models), *map(in_a_line, margins)]


def probe_lines(run: str, name: str, models: Sequence[str]) -> list[str]:
    """What edits of the replies of a list of pairs change in the rewards of models: a line each."""
    table = probes.effects(load(run, finished_only=True), name, models)
    lines = []
    for (model,), rows in table.group_by("model", maintain_order=True):
        strongest = probes.sure(rows).head(_SHOWN).select("probe", "effect").iter_rows()
        effects = ", ".join(f"{probe} {effect:+.3g}" for probe, effect in strongest)
        lines.append(
            f"{model}: effects of edits, in median margins: {effects or 'none beyond noise'}"
        )
    return lines


def _lines(name: str, all_judged: pl.DataFrame, models: Sequence[str]) -> Iterator[str]:
    """Accuracy, mean margin and the worst pairs of each model, and how it differs from all others.

    None without pairs.
    """
    judged = all_judged.filter(pl.col("model").is_in(list(models)))
    if not judged.height:
        return
    shares = pairs.accuracies(name, judged)
    lowest = pairs.worst(name, judged, _WORST)
    for (model,), own in shares.group_by("model", maintain_order=True):
        whole, *rest = own.iter_rows(named=True)
        ties = f", {whole['ties']} ties count as wrong" if whole["ties"] else ""
        yield (
            f"{model}: {whole['accuracy']:.1%} of {whole['n']:,} pairs right{_ends(whole)}, "
            f"mean margin {whole['margin']:.3g}{ties}"
        )
        for row in rest:
            if row["label"] == pairs.SECTION:
                yield f"  RewardBench {row['group']}: {row['accuracy']:.1%} of {row['n']:,}"
            elif row["label"] == pairs.SECOND:
                yield f"  {pairs.SECOND} {row['group']}: {row['accuracy']:.1%} of {row['n']:,}"
        yield "  worst margins (row: prompt | chosen | rejected)"
        for row in lowest.filter(model=model).iter_rows(named=True):
            texts = (row["question"], row["chosen"], row["rejected"])
            line = " | ".join(display.plain(text, _CHARACTERS) for text in texts)
            yield f"  {row['margin']:8.3g}  {row['row']}: {line}"
    for row in pairs.between(name, all_judged).iter_rows(named=True):
        if {*models} & {row["model_a"], row["model_b"]}:
            yield (
                f"{row['model_a']} less {row['model_b']}: {row['difference']:+.1%} of "
                f"{row['n']:,} pairs right{_ends(row)}; {row['alike']:.1%} judged alike"
            )


def _ends(row: Mapping[str, Any]) -> str:  # Any: cells of a table
    """The interval of a share, rounded as the page rounds it; "" where there is none."""
    low, high = 100 * row["ci_low"], 100 * row["ci_high"]
    return f" (95 % {bounds(low, high, 1)})" if math.isfinite(low) else ""
