"""What is in a run, as `--json` prints it: each result with its ends, its self-check, its time."""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

import analysis
from analysis import Run
from engine.runs import storage

_SHOWN = 5  # tokens per end


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


def ends(
    run: Run, models: Sequence[str], prompts: Sequence[str]
) -> Iterator[tuple[str, str, pl.DataFrame]]:
    """Model, prompt and all its tokens, of the vocabularies that some models have scored."""
    for model, prompt in itertools.product(models, prompts):
        if (model, prompt) in run.results:
            yield model, prompt, run.scores(models=[model], prompts=[prompt]).collect()


def _named(run: Run, model: str, prompt: str) -> dict[str, Any]:  # Any: what JSON holds
    scores = run.scores(models=[model], prompts=[prompt]).collect().select("token", "reward")
    ranked = scores.sort("reward", descending=True, maintain_order=True)
    return {
        "highest": ranked.head(_SHOWN).to_dicts(),
        "lowest": ranked[::-1].head(_SHOWN).to_dicts(),
    }
