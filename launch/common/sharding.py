"""`--shard=k/n`: the part of a list of models × prompts that one of n commands computes."""

from collections.abc import Mapping, Sequence

from engine.checkpoint.card import Checkpoint
from engine.checkpoint.restore import sharing_groups
from engine.errors import AssayError
from launch.common.command import Flags, Given

SHARD: Flags = {
    "shard": (
        None,
        "k/n: compute only share k of n of the models and prompts, into <run>/shard-k-of-n. "
        "Give all n commands the same models and prompts.",
    ),
}


def share(
    given: Given, run: str, models: Sequence[Checkpoint], prompts: Mapping[str, str], *, vocab: bool
) -> tuple[str, Sequence[Checkpoint], Mapping[str, str]]:
    """The run folder, models and prompts of this command's shard; all of them without `--shard`.

    With `vocab` every token is scored; else all models score the same number of rows.

    Raises:
      AssayError: no such shard, more shards than there is work for, or a folder of other shards.
    """
    if given.shard is None:
        return run, models, prompts
    from engine.models import flops  # not at the top: few sweeps are sharded
    from engine.runs.shards import Shard

    shard = Shard.parse(given.shard)
    groups = sharing_groups(models)
    most = len(groups) * len(prompts)
    if shard.count > most:
        raise AssayError(
            f"shard={given.shard!r}; allowed: at most {most} shards ({len(groups)} groups of "
            f"models that share a decoder × {len(prompts)} prompts)"
        )
    decoders = [group[0].card.decoder for group in groups]  # the deepest of each
    # Operations of a prompt, up to a factor that all groups share.
    costs = [flops.extension(d, 1, 0) * (d.vocab_size if vocab else 1) for d in decoders]
    mine = shares(costs, len(prompts), shard.count)[shard.index - 1]
    _, piece, pieces = mine[0]  # the same of each: piece 0 of 1 where groups are whole
    chosen = {id(checkpoint) for group, _, _ in mine for checkpoint in groups[group]}
    kept = dict(list(prompts.items())[piece::pieces])
    return shard.folder(run), [c for c in models if id(c) in chosen], kept


def shares(costs: Sequence[float], prompts: int, count: int) -> list[list[tuple[int, int, int]]]:
    """What every shard takes: (group, piece, pieces), every `pieces`-th prompt from number `piece`.

    Where there are at least as many groups as shards, groups stay whole, and are given from the
    most expensive on, each to the shard with the least so far. Else each shard takes a piece of one
    group: a further shard goes to the group whose shards have the most to do.
    """
    if count <= len(costs):
        shards: list[list[tuple[int, int, int]]] = [[] for _ in range(count)]
        for group in sorted(range(len(costs)), key=lambda g: (-costs[g], g)):
            least = min(shards, key=lambda mine: (sum(costs[g] for g, _, _ in mine), len(mine)))
            least.append((group, 0, 1))
        return shards
    pieces = [1] * len(costs)
    for _ in range(count - len(costs)):
        open_groups = [g for g in range(len(costs)) if pieces[g] < prompts]
        pieces[max(open_groups, key=lambda g: (costs[g] / pieces[g], -g))] += 1
    return [[(g, piece, pieces[g])] for g in range(len(costs)) for piece in range(pieces[g])]
