"""What is in a run, as `--json` prints it: each result with its ends, its self-check, its time."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import analysis
from analysis import Run
from analysis.measures import pairs
from engine.runs import storage

_SHOWN = 5  # tokens per end
_WORST = 10  # pairs


# Any: what JSON holds.
def of_run(folder: str, models: Collection[str], texts: Collection[str]) -> Mapping[str, Any]:
    """`results` of a run: those of some models under prompts of some texts."""
    run = analysis.load(storage.path_of(folder), allow_incomplete=True)
    kinds = (run.results, run.items, run.logprobs, run.item_logprobs)
    every = [result for kind in kinds for result in kind.values()]
    results = [
        {
            "path": str(result.folder),
            "model": result.model,
            "prompt": result.prompt,
            "text": run.prompts[result.prompt],
            "complete": result.complete,
            "self_check": result.self_check,
            "seconds": result.seconds,
            **(_named(run, result.model, result.prompt) if result.kind == "scores" else {}),
        }
        for result in every
        if result.model in models and run.prompts[result.prompt] in texts
    ]
    return {"results": results}


# Any: what JSON holds.
def of_conversations(folder: str, name: str, models: Sequence[str]) -> list[Mapping[str, Any]]:
    """What a run holds of a list of conversations: of some models, and of pairs their accuracy."""
    run = analysis.load(storage.path_of(folder), finished_only=True)
    judged = pairs.pairs(pairs.replies(run, name, models))
    shares = pairs.accuracies(name, judged).filter(label=pairs.ALL)
    worst = pairs.worst(name, judged, _WORST).select("model", "row", "id", "margin")
    results = list[Mapping[str, Any]]()
    for model in models:
        result = run.conversations[name, model]
        found: dict[str, Any] = {"path": str(result.folder), "model": model, "list": name}
        found |= {"self_check": result.self_check, "seconds": result.seconds}
        for share in shares.filter(model=model).to_dicts():
            ends = (share["ci_low"], share["ci_high"])
            found |= {key: share[key] for key in ("accuracy", "margin", "ties")}
            found["accuracy_95"] = ends if all(map(math.isfinite, ends)) else None
            found |= {
                "pairs": share["n"],
                "worst": worst.filter(model=model).drop("model").to_dicts(),
            }
        results.append(found)
    return results


def _named(run: Run, model: str, prompt: str) -> dict[str, Any]:  # Any: what JSON holds
    scores = run.scores(models=[model], prompts=[prompt]).collect().select("token", "reward")
    ranked = scores.sort("reward", descending=True, maintain_order=True)
    return {
        "highest": ranked.head(_SHOWN).to_dicts(),
        "lowest": ranked[::-1].head(_SHOWN).to_dicts(),
    }
