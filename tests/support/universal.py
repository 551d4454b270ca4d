"""Universal searches of tiny models: prompts, settings, and judgement by plain passes."""

import itertools

import numpy as np

from engine.search.run_folder import search_sequences
from tests.support.searches import make_mesh, scorer, settings

PROMPTS = {"who": "Who?", "what": "What is the greatest thing?"}
ALLOW = tuple("abcdefghijklmnop")
FEW = {"length": 2, "allow": ALLOW, "candidates": 16, "topk": 8, "replace_first": 2}


def search(run, models, prompts=PROMPTS, rule="mean", data=1, **changes):
    own = settings(**{"method": "mutate", "steps": 4, **changes})
    return search_sequences(models, prompts, str(run), own, make_mesh(data), rule=rule)


def judged(models, found, rows, prompts=PROMPTS):
    """Standardised rewards of rows of ids by plain passes: [judges, rows]."""
    every = []
    for model, (prompt_id, text) in itertools.product(models, prompts.items()):
        split = model.template.split(text)
        whole = [[*split.prefix, *ids, *split.suffix] for ids in rows]
        rewards = scorer(model).plain_rewards(whole)[0]
        (mean, sd) = next(
            (mean, sd)
            for slug, prompt, mean, sd in found.universal["judges"]
            if (slug, prompt) == (model.card.slug, prompt_id)
        )
        every.append((rewards - mean) / sd)
    return np.array(every)
