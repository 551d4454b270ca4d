"""Fixtures that several folders of tests share: each model is made and converted once a session.

What needs torch or jax is imported where it is used, so that tests of the analysis start at once.
"""

import functools

import pytest


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """slug, template policy and `tiny.write_model`'s arguments -> Checkpoint, converted once."""
    from engine.convert import gates
    from tests.support import folders, tiny

    @functools.cache
    def build(slug="tiny", *, bos="template", date=None, **model):
        folder = tmp_path_factory.mktemp(slug)
        source = tiny.write_model(folder / "hf", **model)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gates, "PATTERNS", {"llama": tiny.GATE})
            return folders.convert(source, folder / "checkpoint", slug, bos=bos, date=date)

    return build


@pytest.fixture(scope="module")
def one_length():
    """Conversations behind a prefix are padded to one length, so that less is compiled."""
    import numpy as np

    from engine.scoring import batches

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "_joined", lambda all, *_: np.full_like(all, all.max(initial=0)))
        yield


@pytest.fixture
def run(tmp_path):
    """A run folder that no sweep has written to."""
    from tests.support.sweeps import Run

    return Run(tmp_path / "run")


@pytest.fixture
def other_run(tmp_path):
    """Another one."""
    from tests.support.sweeps import Run

    return Run(tmp_path / "other-run")


@pytest.fixture(scope="session")
def pair_of(tmp_path_factory):
    """Name of a model in torch -> Pair, converted once."""
    from tests.support import parity

    return functools.cache(lambda name: parity.converted(name, tmp_path_factory.mktemp("pair")))


@pytest.fixture(scope="session")
def pair(pair_of):
    """Grouped queries with llama3 scaling, weights enlarged."""
    return pair_of("gqa-llama3")


@pytest.fixture(scope="session")
def loaded(tmp_path_factory):
    """Name in `heads.CASES` -> `heads.Loaded`, converted once."""
    from tests.support import heads

    return functools.cache(lambda name: heads.load(name, tmp_path_factory.mktemp("head")))
