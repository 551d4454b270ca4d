"""Random reward models in torch beside what the engine made of them, converted once a session."""

import dataclasses
import functools

import pytest
import torch
from transformers import LlamaForSequenceClassification

from engine.checkpoint.card import Checkpoint
from tests.models import head_references, parity, reference


@dataclasses.dataclass(frozen=True)
class Pair:
    model: LlamaForSequenceClassification
    checkpoint: Checkpoint
    restored: parity.Restored


@pytest.fixture(scope="module", autouse=True)
def _quick():
    """Models are tiny: torch's threads would wait for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def pair_of(tmp_path_factory):
    """Name in `reference.SPECS`, and the head's kind -> Pair."""

    @functools.cache
    def build(name: str, head: str = "linear") -> Pair:
        folder = tmp_path_factory.mktemp(name)
        model = reference.build(reference.SPECS[name])
        reference.save(model, folder / "hf", head)
        checkpoint = reference.convert(folder / "hf", folder / "checkpoint", slug=name)
        return Pair(model, checkpoint, parity.restore(checkpoint))

    return build


@pytest.fixture(scope="session")
def loaded(tmp_path_factory):
    """Name in `head_references.CASES` -> `Loaded`."""
    return functools.cache(lambda name: head_references.load(name, tmp_path_factory.mktemp("head")))


@pytest.fixture(scope="session")
def pair(pair_of) -> Pair:
    """GQA with llama3 scaling, weights enlarged."""
    return pair_of("gqa-llama3")
