"""A whole sweep of an encoder against transformers: the same weights, tokens and lengths.

    python -m bench.encoder [--rounds=6] [--positions=24] [--step_size=256]

The model has the shape of ELECTRA-small and random weights. Both ways are float32 on all cores and
take turns on shares of the vocabulary. transformers has unpadded batches of the size that is
fastest for it. Rates at several lengths stand beside those of the matrix products alone. The
command fails if the rewards differ. About 8 minutes on two cores.
"""

import argparse
import functools
import itertools
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import BertTokenizer, ElectraConfig, ElectraForSequenceClassification

from bench.common import best_s, cores, machine, matmul_rate, seconds_of, spread
from bench.peers import quiet
from bench.sweep import AssayWay
from engine.checkpoint.card import Checkpoint
from engine.convert.conversion import convert_model
from engine.convert.hub import fetch
from engine.display import aligned
from engine.models import flops
from engine.scoring.batches import rows_of_step
from engine.text.chat_template import TemplatePolicy
from engine.types import PromptIds

_TOLERANCE = 1e-4  # largest difference of two rewards, relative to their standard deviation
_TRIED = 512  # tokens for each batch size and each length


def made(
    folder: Path, layers: int, rows: int
) -> tuple[ElectraForSequenceClassification, Checkpoint]:
    """A random model whose tokens are words, and the checkpoint of it."""
    torch.manual_seed(0)
    sizes = {"vocab_size": rows, "num_hidden_layers": layers, "num_labels": 1}
    model = ElectraForSequenceClassification(ElectraConfig(**sizes, initializer_range=0.1)).eval()
    model.save_pretrained(folder / "hf")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "love"]  # a template is asked with love
    words += [f"w{i}" for i in range(len(words), rows)]
    tokenizer = BertTokenizer(vocab={word: i for i, word in enumerate(words)})
    tokenizer.save_pretrained(folder / "hf")
    source, policy = fetch(str(folder / "hf"), None), TemplatePolicy(bos="template", date=None)
    return model, convert_model(source, folder / "checkpoint", slug="encoder", policy=policy)


@torch.inference_mode()
def torch_rewards(
    model: ElectraForSequenceClassification, prompt: PromptIds, batch: int, ids: np.ndarray
) -> np.ndarray:
    """Rewards of tokens by id, in batches of one length: float32 [C]."""
    around = [torch.tensor(part) for part in (prompt.prefix, prompt.suffix)]
    rewards = []
    for tokens in torch.from_numpy(ids).split(batch):
        before, behind = (part.expand(len(tokens), -1) for part in around)
        whole = torch.cat([before, tokens[:, None], behind], 1)
        kinds = (torch.arange(whole.shape[1]) >= len(prompt.prefix)).long().expand_as(whole)
        rewards.append(model(input_ids=whole, token_type_ids=kinds).logits[:, 0])
    return torch.cat(rewards).numpy()


def asked(checkpoint: Checkpoint, positions: int) -> PromptIds:
    """A prompt whose conversation with a token has so many positions."""
    return checkpoint.template.split(" ".join(f"w{9 + i}" for i in range(positions - 4)))


def compare(
    chosen: argparse.Namespace, model: ElectraForSequenceClassification, checkpoint: Checkpoint
) -> bool:
    """Measures both ways in turns and prints the table; returns whether the rewards agree."""
    prompt = asked(checkpoint, chosen.positions)
    assay = AssayWay(checkpoint, prompt, chosen.step_size)
    shares = np.array_split(np.random.default_rng(0).permutation(chosen.rows), chosen.rounds)
    assay.score(shares[0])  # compiles the step of this length
    theirs, some = functools.partial(torch_rewards, model, prompt), shares[0][:_TRIED]
    theirs(chosen.batches[0], some)  # torch warms up
    tried = {b: seconds_of(functools.partial(theirs, b, some)) for b in chosen.batches}
    batch = min(tried, key=lambda b: tried[b])
    ways = {"assay": assay.score, "transformers": functools.partial(theirs, batch)}
    rewards: dict[str, list[np.ndarray]] = {name: [] for name in ways}
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for share, (name, way) in itertools.product(shares, ways.items()):
        wall, cpu = time.perf_counter(), time.process_time()
        rewards[name].append(way(share))
        spent[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    rows = [("way", "s", "CPU s", "CPU s of assay's", "min..max")]
    for name, seconds in spent.items():
        ratios = np.array(seconds)[:, 1] / np.array(spent["assay"])[:, 1]
        totals = (f"{total:,.1f}" for total in np.sum(seconds, 0))
        rows.append((name, *totals, *spread(ratios, "{:.2f}x")))
    print(f"\n{chosen.positions} positions; transformers in batches of {batch}")
    print("\n".join(aligned(rows)))
    ours, other = (np.concatenate(parts) for parts in rewards.values())
    difference, deviation = float(np.abs(ours - other).max()), float(other.std())
    print(f"largest difference of rewards {difference:.1e}, standard deviation {deviation:.2g}")
    return difference <= _TOLERANCE * deviation


def rates(checkpoint: Checkpoint, lengths: Sequence[int], step_size: int) -> str:
    """A table of the best rates of Assay at some lengths."""
    config, ids = checkpoint.card.decoder, np.arange(_TRIED) % checkpoint.card.decoder.vocab_size
    rows = [("positions", "candidates a step", "candidates/s", "GFLOP/s", "of the products'")]
    for positions in lengths:
        way = AssayWay(checkpoint, asked(checkpoint, positions), step_size)
        size = rows_of_step(len(ids), positions, step_size)
        rate = len(ids) / best_s(functools.partial(way.score, ids))
        reached = rate * flops.response(config, positions, 0)
        alone = matmul_rate(config, size, positions, "float32")
        cells = f"{positions}", f"{size}", f"{rate:,.0f}", f"{reached / 1e9:,.0f}"
        rows.append((*cells, f"{reached / alone:.0%}"))
    return "\n".join(aligned(rows))


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the benchmark; fails if the rewards differ."""
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    defaults = {"rounds": 6, "positions": 24, "layers": 12, "rows": 30522, "step_size": 256}
    for name, value in defaults.items():
        flags.add_argument(f"--{name}", type=int, default=value)
    flags.add_argument("--batches", type=int, nargs="+", default=[32, 64, 128, 256])
    flags.add_argument("--lengths", type=int, nargs="+", default=[16, 24, 32, 64])
    chosen = flags.parse_args(argv)
    quiet(cores())
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        model, checkpoint = made(Path(folder), chosen.layers, chosen.rows)
        alike = compare(chosen, model, checkpoint)
        print(f"\n{rates(checkpoint, chosen.lengths, chosen.step_size)}")
    if not alike:
        raise SystemExit("bench.encoder: the ways give different rewards")


if __name__ == "__main__":
    main()
