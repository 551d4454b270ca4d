"""Fixtures of the tests that run the tiny model, in tests/engine and tests/launch."""

import functools

import jax
import pytest

from engine.checkpoint import hf
from engine.checkpoint.store import Checkpoint
from engine.prompts import TemplatePolicy
from tests import tiny


@pytest.fixture(scope="session", autouse=True)
def compiled_once(tmp_path_factory):
    """Every sweep compiles its passes anew; here the first one pays for all of one shape."""
    settings = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("compiled")),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """slug, template policy and `tiny.write_model`'s arguments -> Checkpoint, converted once."""

    @functools.cache
    def build(slug="tiny", *, bos="template", date=None, **model) -> Checkpoint:
        folder = tmp_path_factory.mktemp(slug)
        source = hf.fetch(str(tiny.write_model(folder / "hf", **model)), None)
        policy = TemplatePolicy(bos=bos, date=date)
        return hf.convert(source, folder / "checkpoint", slug=slug, policy=policy)

    return build
