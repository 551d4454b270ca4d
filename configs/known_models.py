"""Published models: identity, revision, template policy, expected size.

`MODELS` holds the paper's ten reward models by RewardBench rank, `NEXT` other reward models of the
same architectures, `LANGUAGE_MODELS` the ten language models of the paper's Tables A1-A5. A model
that is not listed here can be converted too: its own config.json says what is needed.
"""

import dataclasses
from pathlib import Path
from typing import Any

# Llama 3.1 and 3.2 templates print today's date; this is the date that the paper's rewards have.
DATE = "26 Jul 2024"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """One published reward or language model.

    bos: how the model was trained, or what its card says: one BOS, from the template or put in
      front of it, or two (the GRMs). The paper's own pipeline always added a second BOS:
      `--config.bos=double`.
    weights: hub id of the reward model from whose weights it was trained, if any. Such models agree
      partly for that reason.
    reward: which token's logit is the reward, of one that is published as a language model
      (`engine.settings.ConvertSettings.reward`).
    pickled: whether the main branch holds pickled weights alone, as far as known: one of the hub's
      conversions is needed (`--revision=refs/pr/<number>`).
    tensor_bytes: bytes of all tensors in the repository, if stated somewhere; a conversion that
      reads another number is refused.
    head: kind of the head (`HeadConfig.kind`), "" for a language model; a conversion that finds
      another kind is refused.
    dtype: dtype of the published weights, as far as known; a conversion reports a difference.
    """

    hub_id: str
    nickname: str
    developer: str
    base: str
    size_b: float
    dtype: str
    rewardbench_rank: int | None = None
    revision: str | None = None
    bos: str = "template"
    date: str = ""
    head: str = ""
    weights: str = ""
    reward: str = ""
    pickled: bool = False
    tensor_bytes: int | None = None

    @property
    def slug(self) -> str:
        """The model's name in runs."""
        return self.hub_id.rsplit("/", 1)[1].lower()


def _by_slug(*specs: ModelSpec) -> dict[str, ModelSpec]:
    return {spec.slug: spec for spec in specs}


def _model(
    hub_id: str, nickname: str, base: str, size_b: float, rank: int | None = None, **more: Any
) -> ModelSpec:  # Any: fields of several types
    """A reward model; its developer, dtype and head are the most frequent ones unless named."""
    usual: dict[str, Any] = {"rewardbench_rank": rank, "dtype": "bfloat16", "head": "linear"}
    usual |= {"developer": hub_id.partition("/")[0], **more}
    return ModelSpec(hub_id=hub_id, nickname=nickname, base=base, size_b=size_b, **usual)


def _gemma(name: str, base: str, size_b: float, **more: Any) -> ModelSpec:
    """A language model, pretrained or instruction-tuned (`-it`)."""
    return _model(f"google/{name}", name, base, size_b, developer="Google", head="", **more)


def _skywork1(name: str, nickname: str, base: str, size_b: float, **more: Any) -> ModelSpec:
    """A Skywork-Reward of the first generation."""
    return _model(f"Skywork/Skywork-Reward-{name}", nickname, base, size_b, **more)


def _grm(name: str, nickname: str, base: str, size_b: float, **more: Any) -> ModelSpec:
    """A GRM, trained on conversations with two BOS."""
    usual = {"dtype": "float16", "bos": "double"}
    return _model(f"Ray2333/GRM-{name}", nickname, base, size_b, **usual | more)


_27B_BYTES = 54_454_265_856  # of Gemma 2 with a linear head
MODELS = _by_slug(
    _model(
        "nicolinho/QRM-Gemma-2-27B",
        "N-Gem-27B",
        "Gemma 2",
        27,
        rank=2,
        head="gated",
        weights="Skywork/Skywork-Reward-Gemma-2-27B-v0.2",
        revision="eef8d852e886240e308a57b61d69f0e58489f0ed",
    ),
    _skywork1("Gemma-2-27B-v0.2", "S-Gem-27B-v0.2", "Gemma 2", 27, rank=3, tensor_bytes=_27B_BYTES),
    _skywork1(
        "Gemma-2-27B", "S-Gem-27B", "Gemma 2", 27, rank=5, bos="single", tensor_bytes=_27B_BYTES
    ),
    _skywork1("Llama-3.1-8B-v0.2", "S-Lla-8B-v0.2", "Llama 3.1", 8, rank=10, date=DATE),
    _model(
        "nicolinho/QRM-Llama3.1-8B",
        "N-Lla-8B",
        "Llama 3.1",
        8,
        rank=11,
        head="gated",
        bos="single",
        date=DATE,
        weights="Skywork/Skywork-Reward-Llama-3.1-8B",
        revision="74280eebb9580bfecff5d0b2edb81f7d6186a204",
    ),
    _model(
        "LxzGordon/URM-LLaMa-3.1-8B",
        "L-Lla-8B",
        "Llama 3.1",
        8,
        rank=12,
        head="urm",
        bos="single",
        date=DATE,
        weights="Skywork/Skywork-Reward-Llama-3.1-8B",
    ),
    _grm("Llama3-8B-rewardmodel-ft", "R-Lla-8B", "Llama 3", 8, rank=17),
    _grm(
        "Llama3.2-3B-rewardmodel-ft",
        "R-Lla-3B",
        "Llama 3.2",
        3,
        rank=19,
        date=DATE,
        tensor_bytes=6_425_511_936,
    ),
    _model(
        "RLHFlow/ArmoRM-Llama3-8B-v0.1",
        "F-Lla-8B-v0.1",
        "Llama 3",
        8,
        rank=20,
        head="gated",
        revision="39aadadd6d1b66ab358f0b4ce8899624c35c7434",
    ),
    _grm("gemma2-2B-rewardmodel-ft", "R-Gem-2B", "Gemma 2", 2, rank=31, tensor_bytes=5_228_688_384),
)


def _skywork(name: str, base: str, size_b: float, nickname: str = "") -> ModelSpec:
    """A Skywork-Reward-V2: on Llama its template has no BOS."""
    policy: dict[str, Any] = {"bos": "single", "date": DATE} if base.startswith("Llama") else {}
    hub_id = f"Skywork/Skywork-Reward-V2-{name}"
    return _model(hub_id, nickname or f"V2-{name}", base, size_b, **policy)


def _rewardbench2(name: str, nickname: str, size_b: float) -> ModelSpec:
    """A reward model of the authors of RewardBench 2."""
    hub_id = f"allenai/Llama-3.1-{name}-RM-RB2"
    return _model(hub_id, nickname, "Llama 3.1", size_b, pickled=True)


def _nemotron(name: str, nickname: str, base: str, size_b: float, **more: Any) -> ModelSpec:
    """A language model of Nvidia's, whose reward is the logit of token 0."""
    usual = {"developer": "Nvidia", "reward": "0"}
    return _model(f"nvidia/{name}", nickname, base, size_b, **usual | more)


def _internlm(name: str, size_b: float, **more: Any) -> ModelSpec:
    usual = {"developer": "InternLM", "dtype": "float16"}
    hub_id, nickname = f"internlm/internlm2-{name}-reward", f"InternLM2-{size_b:g}B"
    return _model(hub_id, nickname, "InternLM2", size_b, **usual | more)


NEXT = _by_slug(
    _skywork1(
        "Llama-3.1-8B",
        "Llama-3.1-8B",
        "Llama 3.1",
        8,
        bos="single",
        date=DATE,
        tensor_bytes=15_009_865_728,
    ),
    _skywork("Llama-3.1-8B", "Llama 3.1", 8),
    _skywork("Llama-3.1-8B-40M", "Llama 3.1", 8, "V2-Llama-8B-40M"),
    _skywork("Llama-3.2-1B", "Llama 3.2", 1),
    _skywork("Llama-3.2-3B", "Llama 3.2", 3),
    _skywork("Qwen3-0.6B", "Qwen 3", 0.6),
    _skywork("Qwen3-1.7B", "Qwen 3", 1.7),
    _skywork("Qwen3-4B", "Qwen 3", 4),
    _skywork("Qwen3-8B", "Qwen 3", 8),
    _nemotron("Llama-3.1-Nemotron-70B-Reward-HF", "Nemo-3.1-70B", "Llama 3.1", 70, date=DATE),
    _nemotron("Llama-3.3-Nemotron-70B-Reward", "Nemo-3.3-70B", "Llama 3.3", 70, date=DATE),
    _nemotron(
        "Llama-3.3-Nemotron-70B-Reward-Multilingual",
        "Nemo-70B-Multi",
        "Llama 3.3",
        70,
        date=DATE,
    ),
    _nemotron("Qwen-3-Nemotron-32B-Reward", "Nemo-32B", "Qwen 3", 32),
    _model("allenai/Llama-3.1-Tulu-3-8B-RM", "Tulu-3-8B", "Llama 3.1", 8),
    _rewardbench2("8B-Base", "RB2-8B-Base", 8),
    _rewardbench2("8B-Instruct", "RB2-8B-Inst", 8),
    _rewardbench2("Tulu-3-8B-SFT", "RB2-Tulu-8B-SFT", 8),
    _rewardbench2("Tulu-3-8B-RL", "RB2-Tulu-8B-RL", 8),
    _rewardbench2("70B-Instruct", "RB2-70B-Inst", 70),
    _rewardbench2("Tulu-3-70B-SFT", "RB2-Tulu-70B", 70),
    _model("allenai/OLMo-2-1124-7B-RM", "OLMo-2-7B-RM", "OLMo 2", 7, pickled=True),
    _model("allenai/OLMo-2-1124-13B-RM", "OLMo-2-13B-RM", "OLMo 2", 13, pickled=True),
    _model("Nexusflow/Athene-RM-8B", "Athene-8B", "Llama 3", 8),
    _model("Nexusflow/Athene-RM-70B", "Athene-70B", "Llama 3", 70),
    _model("Qwen/Qwen2.5-Math-PRM-7B", "Qwen-PRM-7B", "Qwen Math", 7, head="mlp"),
    _model("Qwen/Qwen2.5-Math-7B-PRM800K", "Qwen-PRM800K", "Qwen Math", 7, head="mlp"),
    _model("Qwen/Qwen2.5-Math-PRM-72B", "Qwen-PRM-72B", "Qwen Math", 72, head="mlp"),
    _model("Qwen/Qwen2.5-Math-RM-72B", "Qwen-RM-72B", "Qwen Math", 72, head="mlp"),
    _model("sfairXC/FsfairX-LLaMA3-RM-v0.1", "FsfairX-8B", "Llama 3", 8),
    _model("nicolinho/QRM-Llama3.1-8B-v2", "QRM-8B-v2", "Llama 3.1", 8, head="gated", date=DATE),
    _grm("llama3-8B-sftreg", "GRM-8B-sftreg", "Llama 3", 8, head="mlp"),
    _grm("llama3.2-3B-sftreg", "GRM-3B-sftreg", "Llama 3.2", 3, head="mlp", date=DATE),
    _grm("Gemma2-2B-sftreg", "GRM-2B-sftreg", "Gemma 2", 2, head="mlp"),
    _internlm("1_8b", 1.8, tensor_bytes=3_399_163_904),
    _internlm("7b", 7),
    _internlm("20b", 20),
    _model("infly/INF-ORM-Llama3.1-70B", "INF-ORM-70B", "Llama 3.1", 70, head="mlp", date=DATE),
)

# Bytes as the index files of the repositories state them (`total_size`).
LANGUAGE_MODELS = _by_slug(
    _gemma("gemma-2b", "Gemma", 2, tensor_bytes=5_012_344_832),
    _gemma("gemma-2b-it", "Gemma", 2),
    _gemma("gemma-7b", "Gemma", 7, tensor_bytes=17_075_361_792),
    _gemma("gemma-7b-it", "Gemma", 7),
    _gemma("gemma-2-2b", "Gemma 2", 2, dtype="float32", tensor_bytes=10_457_367_552),
    _gemma("gemma-2-2b-it", "Gemma 2", 2, tensor_bytes=5_228_683_776),
    _gemma("gemma-2-9b", "Gemma 2", 9),
    _gemma("gemma-2-9b-it", "Gemma 2", 9, tensor_bytes=18_483_411_968),
    _gemma("gemma-2-27b", "Gemma 2", 27),
    _gemma("gemma-2-27b-it", "Gemma 2", 27),
)

# Reward models that benchmarks and training recipes name and that are not read -> why.
NOT_READ = {
    "OpenAssistant/reward-model-deberta-v3-large-v2": "an encoder: attends in both directions",
    "llm-blender/PairRM": "an encoder, and compares two replies",
    "RLHFlow/pair-preference-model-LLaMA3-8B": "compares two replies",
    "gaotang/RM-R1-DeepSeek-Distilled-Qwen-14B": "writes text before it rates",
    "nvidia/Llama-3.3-Nemotron-70B-Reward-Principle": "rates by a principle in a turn of its own",
    "ShikaiChen/LDL-Reward-Gemma-2-27B-v0.1": "its head is of label distributions",
    "RLHFlow/Decision-Tree-Reward-Llama-3.1-8B": "a decision tree compares five ratings of replies",
    "PKU-Alignment/beaver-7b-v1.0-reward": "normalises its scores; pickled",
}

KNOWN = MODELS | NEXT | LANGUAGE_MODELS


def find(source: str) -> ModelSpec | None:
    """The entry of a hub id, or of a folder named after one; None if it is not listed."""
    *owner, name = source.rstrip("/").split("/")
    spec = KNOWN.get(name.lower())
    is_hub_id = len(owner) == 1 and not Path(source).is_dir()
    if spec and is_hub_id and source.lower() != spec.hub_id.lower():
        return None  # another owner's model of the same name
    return spec
