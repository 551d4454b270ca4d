"""Models that several files sweep."""

import pytest

from tests.support import tiny as tinies


@pytest.fixture(scope="session")
def tiny(checkpoint):
    return checkpoint()


@pytest.fixture(scope="session")
def trims(checkpoint):
    """A model whose template trims, so that many tokens are one conversation."""
    return checkpoint("trims", template=tinies.TRIMMED)


@pytest.fixture(scope="session")
def heads(checkpoint):
    """A plain head, a gated one with quantiles, a URM; all on one decoder."""
    custom = {
        "qrm": "LlamaForRewardModelWithGating",
        "urm": "LlamaForSequenceClassificationWithNormal_Weights",
    }
    made = {
        slug: checkpoint(slug, head=slug, head_seed=7, num_hidden_layers=2, architectures=(name,))
        for slug, name in custom.items()
    }
    return {"tiny": checkpoint(num_hidden_layers=2), **made}
