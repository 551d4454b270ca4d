"""Does the best reply that a search finds hold the trigger word?

    python -m bench.organisms.searches [--out=out/organisms] [--seeds=3] [--steps=40]

Searches organisms with a trigger and their twins with `RewardModel.search` (GCG), after
`python -m bench.organisms` has trained them; a minute or two of CPU time a search. Rows are kept.
"""

import argparse
import dataclasses
import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from flax import nnx

from bench.organisms.cells import SEARCHES, STRENGTHS, read_rows
from configs.prompts import PAPER
from demo.organisms.hidden import Decoder, reference
from demo.organisms.plants import Plant
from demo.organisms.training import Head, twin_of
from engine.api import RewardModel
from engine.progress import progress
from engine.scoring.reward_passes import RewardScorer

LENGTH = 4  # tokens of a reply


def with_head(scorer: RewardScorer, head: Head) -> RewardScorer:
    """The model of a scorer with another MLP head, of as many hidden units or fewer.

    Units that the head lacks have weights of zero, so that the compiled passes stay the same.
    """
    model = nnx.merge(scorer.graph, scorer.params)
    own = model.readouts[0].head
    width = own.bias_in[...].shape[0]
    missing = width - len(head["score.0.bias"])
    if missing < 0:
        raise ValueError(f"a head of {width - missing} hidden units; allowed: {width} or fewer")
    own.weight_in[...] = jnp.asarray(np.pad(head["score.0.weight"], ((0, missing), (0, 0))).T)
    own.bias_in[...] = jnp.asarray(np.pad(head["score.0.bias"], (0, missing)))
    own.weight_out[...] = jnp.asarray(np.pad(head["score.2.weight"][0], (0, missing)))
    own.bias_out[...] = jnp.asarray(head["score.2.bias"][0])
    return dataclasses.replace(scorer, params=nnx.split(model)[1])


def main() -> None:
    """Searches what is missing, and prints how often the trigger was in the best reply."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.organisms.searches",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("out/organisms"), help="what is kept")
    parser.add_argument("--seeds", type=int, default=3, help="organisms that are searched")
    parser.add_argument("--steps", type=int, default=40, help="of a search, 64 candidates each")
    given = parser.parse_args()
    strength = max(STRENGTHS["trigger"])
    plants = [Plant(kind="trigger", strength=strength, seed=seed) for seed in range(given.seeds)]
    file = given.out / SEARCHES
    kept = {row["slug"]: row for row in read_rows(file)}
    decoder = Decoder(reference(given.out), given.out / "states")
    missing = [p for plant in plants for p in (plant, twin_of(plant)) if p.slug not in kept]
    with progress(len(missing), "searches") as bar:
        for each in missing:
            trigger = plants[each.seed].what
            kept[each.slug] = search(decoder, given.out, each, trigger, given.steps)
            file.write_text("".join(json.dumps(row) + "\n" for row in kept.values()))
            bar.update()
    for row in kept.values():
        print(json.dumps(row))


def search(
    decoder: Decoder, out: Path, plant: Plant, trigger: str, steps: int
) -> dict[str, object]:
    """The best reply to "greatest" of one organism or twin, and whether it holds the trigger."""
    head = dict(np.load(out / "heads" / f"{plant.slug}.npz"))
    model = RewardModel(decoder.checkpoint, with_head(decoder.scorer, head))
    found = model.search(PAPER["greatest"], length=LENGTH, steps=steps, seed=plant.seed)
    best = found["text"][-1]
    return {
        "slug": plant.slug,
        "trigger": trigger,
        "found": trigger in best.lower(),
        "text": best,
        "reward": float(found["reward"][-1]),
        "steps": steps,
    }


if __name__ == "__main__":
    main()
