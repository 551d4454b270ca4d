"""Every bench runs at toy sizes from its first to its last line."""

import concurrent.futures

import numpy as np
import pytest
import torch

from bench import device, encoder, peers, report, search, sweep
from bench.random_model import published
from tests.support import large_runs

pytestmark = pytest.mark.slow  # models are loaded, programs compiled and processes started

SWEEP = ("--candidates=64", "--cached=32", "--paper=32", "--step_size=32", "--batches=32")
SEARCH = ("--candidates=8", "--length=2", "--topk=8", "--swept=32", "--steps=1", "--batches=8")


@pytest.fixture(scope="module")
def flags(checkpoint):
    """Flags of a bench, on a tiny model in the place of an embedded one."""
    made = checkpoint("mlp", head="mlp", max_position_embeddings=256)
    with pytest.MonkeyPatch.context() as patch:
        for bench in (sweep, search):
            patch.setattr(bench, "embedded_model", lambda *_: (made.path.parent / "hf", made))
        patch.setattr(peers, "quiet", lambda threads: None)
        yield ["--rounds=1"]


def test_sweep_compares_rewards_with_those_of_transformers(flags, capsys):
    sweep.main([*flags, *SWEEP])
    printed = capsys.readouterr().out
    assert "assay - cached" in printed and "assay - paper" in printed


@pytest.mark.parametrize("other", ["cached", "paper"])
def test_other_rewards_end_the_sweep(monkeypatch, other):
    rewards, alike = dict.fromkeys(("assay", "cached", "paper"), np.arange(4.0)), np.arange(4) > 0
    assert sweep.agree(rewards, alike)
    assert not sweep.agree({**rewards, other: np.arange(4.0) + 1e-3}, alike)
    monkeypatch.setattr(sweep, "run", lambda chosen: False)
    with pytest.raises(SystemExit, match="different rewards"):
        sweep.main([])


def test_search_compares_rewards_and_gradients_with_those_of_torch(flags, monkeypatch):
    ours, slopes = search.gradient, []

    def once(*of):  # compiled once
        slopes[:] = slopes or [ours(*of)]
        return slopes[0]

    monkeypatch.setattr(search, "gradient", once)
    search.main([*flags, *SEARCH])
    gradient = peers.TorchGCG.gradient
    monkeypatch.setattr(peers.TorchGCG, "gradient", lambda self: -gradient(self))
    with pytest.raises(SystemExit, match="different numbers"):
        search.main([*flags, *SEARCH])


def test_encoder_compares_a_sweep_with_that_of_transformers(monkeypatch, capsys):
    monkeypatch.setattr(encoder, "quiet", lambda threads: None)
    small = "--layers=1", "--rows=64", "--rounds=1", "--batches=32", "--lengths=16"
    encoder.main(small)
    printed = capsys.readouterr().out
    assert "transformers in batches of 32" in printed and "of the products'" in printed
    theirs = encoder.torch_rewards
    monkeypatch.setattr(encoder, "torch_rewards", lambda *of: theirs(*of) * 1.001)
    monkeypatch.setattr(encoder, "rates", lambda *of: "")
    with pytest.raises(SystemExit, match="different rewards"):
        encoder.main(small)


def test_report_compares_its_agreement_with_scipys(tmp_path, monkeypatch, capsys):
    run = large_runs.large_run(
        tmp_path / "run", np.random.default_rng(0), models=3, prompts=2, tokens=8192
    )

    def written(run, folder):
        folder.mkdir()
        (folder / "index.html").write_text("page")
        return 1.0, 1.0, 1.0

    monkeypatch.setattr(report, "report_alone", written)
    report.main([f"--run={run}", "--pairs=2"])
    assert "per-pair join and scipy, scaled from" in capsys.readouterr().out


def test_device_prints_every_section_at_toy_shapes(capsys, monkeypatch):
    """The peer in a thread, whose process imports torch once more."""
    threads = concurrent.futures.ThreadPoolExecutor
    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", lambda n, **_: threads(n))
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    assert device.main(["--toy", "--model=gemma-2-27b", "--step_sizes=16"]) == 0
    printed = capsys.readouterr().out
    assert "TOY SHAPES" in printed
    for section in ("torch       cached, 32", "products    copy", "sweep       16 a step"):
        assert section in printed
    assert "vocabulary  512 tokens" in printed and "search      16 of 2 tokens" in printed


def test_torch_is_the_peer_of_what_assay_measures():
    """Cached rewards are those of whole conversations."""
    hf, prompt = published("qwen3-8b", True)
    network = peers._random_network(hf, torch.device("cpu"))
    ids = np.arange(8)
    cached = peers.CachedWay(network, prompt, 4).score(ids)
    rows = torch.tensor([[*prompt.prefix, token, *prompt.suffix] for token in ids.tolist()])
    with torch.inference_mode():
        hidden = network.base(rows, use_cache=False).last_hidden_state[:, -1]
        whole = network.head(hidden)[:, 0].float().numpy()
    assert np.abs(cached - whole).max() < 0.1 * whole.std()
