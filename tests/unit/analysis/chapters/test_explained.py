import numpy as np
import polars as pl
import pytest

from analysis.chapters import agreement, explained


@pytest.fixture
def kendall():
    """Four models; the first scores every token alike."""
    rng = np.random.default_rng(0)
    columns = {f"m{i}": rng.normal(size=200).round(1).astype(np.float32) for i in range(4)}
    rewards = pl.DataFrame({"token": [f"t{i}" for i in range(200)], **columns})
    return agreement.kendall_matrix(rewards.with_columns(m0=pl.lit(1.0, dtype=pl.Float32)))


def test_a_map_leaves_out_models_without_an_order(kendall):
    table = explained.mds_table(kendall, np.random.default_rng(0))
    assert table.columns == ["model", "x", "y", "stress"]
    assert table["model"].to_list() == ["m1", "m2", "m3"]
    assert table["stress"].n_unique() == 1


def test_what_is_not_known_of_all_models_predicts_nothing():
    models = pl.DataFrame(
        {
            "model": ["a", "b", "c"],
            "base": ["Llama 3", "Llama 3.2", "Gemma 2"],
            "developer": ["x", None, "y"],
            "size_b": [8.0, 3.0, 2.0],
            "rewardbench_rank": [1, 1, 1],
        }
    )
    found = explained.predictors(models)
    assert list(found) == ["base", "size"]
    assert found["base"][0].tolist() == [1.0, 1.0, 0.0]
    assert found["size"][0].tolist() == pytest.approx([1.0, 1 / 6, 1 / 7])


@pytest.mark.parametrize(
    ("base", "family"),
    [
        ("Llama 3.1", "Llama"),
        ("Gemma 2", "Gemma"),
        ("Qwen2.5", "Qwen"),
        ("Llama-3", "Llama"),
        ("7", "7"),
        (None, None),
    ],
)
def test_a_family_is_a_base_without_its_version(base, family):
    assert explained.family(base) == family
