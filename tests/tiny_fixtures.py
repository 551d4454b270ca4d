"""Fixtures of the tests that run the tiny model, in tests/engine and tests/launch."""

import functools

import pytest

from engine.checkpoint.card import Checkpoint
from engine.convert.convert import convert
from engine.convert.hub import fetch
from engine.text.chat_template import TemplatePolicy
from tests import tiny


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """slug, template policy and `tiny.write_model`'s arguments -> Checkpoint, converted once."""

    @functools.cache
    def build(slug="tiny", *, bos="template", date=None, **model) -> Checkpoint:
        folder = tmp_path_factory.mktemp(slug)
        source = fetch(str(tiny.write_model(folder / "hf", **model)), None)
        policy = TemplatePolicy(bos=bos, date=date)
        return convert(source, folder / "checkpoint", slug=slug, policy=policy)

    return build
