"""A whole sweep of an encoder against transformers: the same weights, tokens and lengths.

    python -m bench.encoder [--rounds=6] [--words=16]

The model has the shape of ELECTRA-small and random weights. Both ways are float32 on all cores and
take turns on shares of the vocabulary. transformers has unpadded batches of the size that is
fastest for it. The command fails if the rewards differ. About 5 minutes on two cores.
"""

import argparse
import functools
import itertools
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tokenizers
import torch
from transformers import ElectraConfig, ElectraForSequenceClassification, PreTrainedTokenizerFast

from bench.common import aligned, cores, machine, seconds_of, spread
from bench.peers import quiet
from bench.sweep import AssayWay
from engine.convert.conversion import convert_model
from engine.convert.hub import fetch
from engine.text.chat_template import TemplatePolicy
from engine.types import PromptIds

_TOLERANCE = 1e-3  # largest difference of two rewards, relative to their standard deviation
_TRIED = 512  # tokens for each batch size


def saved(folder: Path, layers: int, rows: int) -> ElectraForSequenceClassification:
    """A random model, and a folder of it with a tokenizer whose tokens are words."""
    torch.manual_seed(0)
    config = ElectraConfig(
        vocab_size=rows, num_hidden_layers=layers, num_labels=1, initializer_range=0.08
    )
    model = ElectraForSequenceClassification(config).eval()
    model.save_pretrained(folder)
    special = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
    }
    words = [*special.values(), *(f"w{i}" for i in range(len(special), rows))]
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, "[UNK]")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(word, words.index(word)) for word in ("[CLS]", "[SEP]")],
    )
    PreTrainedTokenizerFast(tokenizer_object=made, **special).save_pretrained(folder)
    return model


@torch.inference_mode()
def torch_rewards(
    model: ElectraForSequenceClassification, prompt: PromptIds, batch: int, ids: np.ndarray
) -> np.ndarray:
    """Rewards of tokens by id, in batches of one length: float32 [C]."""
    rewards, before = [], len(prompt.prefix)
    for tokens in torch.from_numpy(ids).split(batch):
        around = (
            torch.tensor(part).expand(len(tokens), -1) for part in (prompt.prefix, prompt.suffix)
        )
        whole = torch.cat([next(around), tokens[:, None], next(around)], 1)
        kinds = (torch.arange(whole.shape[1]) >= before).long().expand_as(whole)
        rewards.append(model(input_ids=whole, token_type_ids=kinds).logits[:, 0])
    return torch.cat(rewards).numpy()


def run(chosen: argparse.Namespace, folder: Path) -> bool:
    """Measures both ways in turns and prints the table; returns whether the rewards agree."""
    model = saved(folder / "hf", chosen.layers, chosen.rows)
    policy, source = TemplatePolicy(bos="template", date=None), fetch(str(folder / "hf"), None)
    checkpoint = convert_model(source, folder / "checkpoint", slug="encoder", policy=policy)
    prompt = checkpoint.template.split(" ".join(f"w{9 + i}" for i in range(chosen.words)))
    assay = AssayWay(checkpoint, prompt, chosen.step_size)
    shares = np.array_split(np.random.default_rng(0).permutation(chosen.rows), chosen.rounds)
    assay.score(shares[0])  # compiles the step of this length
    theirs = functools.partial(torch_rewards, model, prompt)
    theirs(chosen.batches[0], shares[0][:_TRIED])  # torch warms up
    tried = {b: seconds_of(lambda b=b: theirs(b, shares[0][:_TRIED])) for b in chosen.batches}
    batch = min(tried, key=lambda b: tried[b])
    ways = {"assay": assay.score, "transformers": functools.partial(theirs, batch)}
    rewards: dict[str, list[np.ndarray]] = {name: [] for name in ways}
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for share, (name, way) in itertools.product(shares, ways.items()):
        began, cpu = time.perf_counter(), time.process_time()
        rewards[name].append(way(share))
        spent[name].append((time.perf_counter() - began, time.process_time() - cpu))
    print(
        f"model     {chosen.layers} layers, {chosen.rows:,} tokens, conversations of "
        f"{len(prompt.prefix) + 1 + len(prompt.suffix)} positions\n"
        f"assay     steps of {chosen.step_size}, if short; transformers: batches of {batch}"
    )
    print(f"\n{table({name: np.array(each) for name, each in spent.items()})}")
    ours, other = (np.concatenate(each) for each in rewards.values())
    difference, deviation = float(np.abs(ours - other).max()), float(other.std())
    print(f"largest difference of rewards {difference:.1e}, standard deviation {deviation:.2g}")
    return difference <= _TOLERANCE * deviation


def table(spent: Mapping[str, np.ndarray]) -> str:
    """Seconds and CPU seconds of the sweep, and ratios to Assay's round by round."""
    rows = [("way", "s", "CPU s", "CPU s of assay's", "min..max")]
    for name, seconds in spent.items():
        ratios = spread(seconds[:, 1] / spent["assay"][:, 1], "{:.2f}x")
        rows.append((name, *(f"{total:,.1f}" for total in seconds.sum(0)), *ratios))
    return aligned(rows)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the benchmark; fails if the rewards differ."""
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    defaults = {"rounds": 6, "words": 16, "layers": 12, "rows": 30522, "step_size": 256}
    for name, value in defaults.items():
        flags.add_argument(f"--{name}", type=int, default=value)
    flags.add_argument("--batches", type=int, nargs="+", default=[32, 64, 128, 256])
    chosen = flags.parse_args(argv)
    quiet(cores())
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        if not run(chosen, Path(folder)):
            raise SystemExit("bench.encoder: the ways give different rewards")


if __name__ == "__main__":
    main()
