"""What this machine has free."""

from pathlib import Path

from engine import host


def group(folder: Path, most: str, used: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    caches = "anon 5\nactive_file 1\ninactive_file 2\n"
    (folder / "memory.max").write_text(f"{most}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(caches)


def test_a_group_that_this_process_is_in_bounds_its_memory(tmp_path):
    (tmp_path / "own").write_text("0::/jobs/mine\n")
    group(tmp_path, "3000", 1000)
    assert list(host._group_limits(tmp_path, tmp_path / "own")) == [2003]
    assert 0 < host.free_memory() <= 2**50
