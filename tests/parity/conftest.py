import pytest
import torch


@pytest.fixture(scope="package", autouse=True)
def _one_thread_in_torch():
    """Models are tiny: torch's threads would wait for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
