"""Published models: identity, revision, template policy, expected size.

`MODELS` holds the paper's ten reward models by RewardBench rank, `NEXT` other reward models of the
same architectures, `LANGUAGE_MODELS` the ten language models of the paper's Tables A1-A5. A model
that is not listed here can be converted too: its own config.json says what is needed.
"""

import dataclasses
from pathlib import Path

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
    tensor_bytes: bytes of all tensors in the repository, if stated somewhere; a conversion that
      reads another number is refused. `known_shapes.expected_bytes` computes those of others.
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
    tensor_bytes: int | None = None

    @property
    def slug(self) -> str:
        """The model's name in runs."""
        return self.hub_id.rsplit("/", 1)[1].lower()


def _by_slug(*specs: ModelSpec) -> dict[str, ModelSpec]:
    return {spec.slug: spec for spec in specs}


MODELS = _by_slug(
    ModelSpec(
        hub_id="nicolinho/QRM-Gemma-2-27B",
        revision="eef8d852e886240e308a57b61d69f0e58489f0ed",
        nickname="N-Gem-27B",
        weights="Skywork/Skywork-Reward-Gemma-2-27B-v0.2",
        developer="nicolinho",
        base="Gemma 2",
        size_b=27,
        dtype="bfloat16",
        head="gated",
        rewardbench_rank=2,
    ),
    ModelSpec(
        hub_id="Skywork/Skywork-Reward-Gemma-2-27B-v0.2",
        nickname="S-Gem-27B-v0.2",
        developer="Skywork",
        base="Gemma 2",
        size_b=27,
        dtype="bfloat16",
        head="linear",
        rewardbench_rank=3,
        tensor_bytes=54_454_265_856,
    ),
    ModelSpec(
        hub_id="Skywork/Skywork-Reward-Gemma-2-27B",
        nickname="S-Gem-27B",
        developer="Skywork",
        base="Gemma 2",
        size_b=27,
        dtype="bfloat16",
        head="linear",
        rewardbench_rank=5,
        bos="single",
        tensor_bytes=54_454_265_856,
    ),
    ModelSpec(
        hub_id="Skywork/Skywork-Reward-Llama-3.1-8B-v0.2",
        nickname="S-Lla-8B-v0.2",
        developer="Skywork",
        base="Llama 3.1",
        size_b=8,
        dtype="bfloat16",
        head="linear",
        rewardbench_rank=10,
        date=DATE,
    ),
    ModelSpec(
        hub_id="nicolinho/QRM-Llama3.1-8B",
        revision="74280eebb9580bfecff5d0b2edb81f7d6186a204",
        nickname="N-Lla-8B",
        weights="Skywork/Skywork-Reward-Llama-3.1-8B",
        developer="nicolinho",
        base="Llama 3.1",
        size_b=8,
        dtype="bfloat16",
        head="gated",
        rewardbench_rank=11,
        bos="single",
        date=DATE,
    ),
    ModelSpec(
        hub_id="LxzGordon/URM-LLaMa-3.1-8B",
        nickname="L-Lla-8B",
        weights="Skywork/Skywork-Reward-Llama-3.1-8B",
        developer="LxzGordon",
        base="Llama 3.1",
        size_b=8,
        dtype="bfloat16",
        head="urm",
        rewardbench_rank=12,
        bos="single",
        date=DATE,
    ),
    ModelSpec(
        hub_id="Ray2333/GRM-Llama3-8B-rewardmodel-ft",
        nickname="R-Lla-8B",
        developer="Ray2333",
        base="Llama 3",
        size_b=8,
        dtype="float16",
        bos="double",
        head="linear",
        rewardbench_rank=17,
    ),
    ModelSpec(
        hub_id="Ray2333/GRM-Llama3.2-3B-rewardmodel-ft",
        nickname="R-Lla-3B",
        developer="Ray2333",
        base="Llama 3.2",
        size_b=3,
        dtype="float16",
        bos="double",
        head="linear",
        rewardbench_rank=19,
        date=DATE,
        tensor_bytes=6_425_511_936,
    ),
    ModelSpec(
        hub_id="RLHFlow/ArmoRM-Llama3-8B-v0.1",
        revision="39aadadd6d1b66ab358f0b4ce8899624c35c7434",
        nickname="F-Lla-8B-v0.1",
        developer="RLHFlow",
        base="Llama 3",
        size_b=8,
        dtype="bfloat16",
        head="gated",
        rewardbench_rank=20,
    ),
    ModelSpec(
        hub_id="Ray2333/GRM-gemma2-2B-rewardmodel-ft",
        nickname="R-Gem-2B",
        developer="Ray2333",
        base="Gemma 2",
        size_b=2,
        dtype="float16",
        bos="double",
        head="linear",
        rewardbench_rank=31,
        tensor_bytes=5_228_688_384,
    ),
)


def _skywork(
    name: str,
    base: str,
    size_b: float,
    *,
    bos: str = "template",
    date: str = "",
    tensor_bytes: int | None = None,
) -> ModelSpec:
    return ModelSpec(
        hub_id=f"Skywork/{name}",
        nickname=name.removeprefix("Skywork-Reward-"),
        developer="Skywork",
        base=base,
        size_b=size_b,
        dtype="bfloat16",
        head="linear",
        bos=bos,
        date=date,
        tensor_bytes=tensor_bytes,
    )


NEXT = _by_slug(
    _skywork(
        "Skywork-Reward-Llama-3.1-8B",
        "Llama 3.1",
        8,
        bos="single",
        date=DATE,
        tensor_bytes=15_009_865_728,
    ),
    _skywork("Skywork-Reward-V2-Llama-3.1-8B", "Llama 3.1", 8, bos="single", date=DATE),
    _skywork("Skywork-Reward-V2-Llama-3.2-1B", "Llama 3.2", 1, bos="single", date=DATE),
    _skywork("Skywork-Reward-V2-Llama-3.2-3B", "Llama 3.2", 3, bos="single", date=DATE),
    _skywork("Skywork-Reward-V2-Qwen3-0.6B", "Qwen 3", 0.6),
    _skywork("Skywork-Reward-V2-Qwen3-1.7B", "Qwen 3", 1.7),
    _skywork("Skywork-Reward-V2-Qwen3-4B", "Qwen 3", 4),
    _skywork("Skywork-Reward-V2-Qwen3-8B", "Qwen 3", 8),
    ModelSpec(
        hub_id="sfairXC/FsfairX-LLaMA3-RM-v0.1",
        nickname="FsfairX-8B",
        developer="sfairXC",
        base="Llama 3",
        size_b=8,
        dtype="bfloat16",
        head="linear",
    ),
    ModelSpec(
        hub_id="allenai/Llama-3.1-Tulu-3-8B-RM",
        nickname="Tulu-3-8B",
        developer="allenai",
        base="Llama 3.1",
        size_b=8,
        dtype="bfloat16",
        head="linear",
    ),
    ModelSpec(
        hub_id="Ray2333/GRM-llama3-8B-sftreg",
        nickname="GRM-8B-sftreg",
        developer="Ray2333",
        base="Llama 3",
        size_b=8,
        dtype="float16",
        bos="double",
        head="mlp",
    ),
    ModelSpec(
        hub_id="internlm/internlm2-1_8b-reward",
        nickname="InternLM2-1.8B",
        developer="InternLM",
        base="InternLM2",
        size_b=1.8,
        dtype="float16",
        head="linear",
        tensor_bytes=3_399_163_904,
    ),
    ModelSpec(
        hub_id="internlm/internlm2-7b-reward",
        nickname="InternLM2-7B",
        developer="InternLM",
        base="InternLM2",
        size_b=7,
        dtype="float16",
        head="linear",
    ),
    ModelSpec(
        hub_id="internlm/internlm2-20b-reward",
        nickname="InternLM2-20B",
        developer="InternLM",
        base="InternLM2",
        size_b=20,
        dtype="float16",
        head="linear",
    ),
    ModelSpec(
        hub_id="infly/INF-ORM-Llama3.1-70B",
        nickname="INF-ORM-70B",
        developer="infly",
        base="Llama 3.1",
        size_b=70,
        dtype="bfloat16",
        head="mlp",
        date=DATE,
    ),
)


def _gemma(
    name: str,
    base: str,
    size_b: float,
    *,
    dtype: str = "bfloat16",
    tensor_bytes: int | None = None,
) -> ModelSpec:
    """A language model, pretrained or instruction-tuned (`-it`)."""
    return ModelSpec(
        hub_id=f"google/{name}",
        nickname=name,
        developer="Google",
        base=base,
        size_b=size_b,
        dtype=dtype,
        tensor_bytes=tensor_bytes,
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

KNOWN = MODELS | NEXT | LANGUAGE_MODELS


def find(source: str) -> ModelSpec | None:
    """The entry of a hub id, or of a folder named after one; None if it is not listed."""
    *owner, name = source.rstrip("/").split("/")
    spec = KNOWN.get(name.lower())
    is_hub_id = len(owner) == 1 and not Path(source).is_dir()
    if spec and is_hub_id and source.lower() != spec.hub_id.lower():
        return None  # another owner's model of the same name
    return spec
