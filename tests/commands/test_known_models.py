"""configs/known_models.py: what is published under each name, and the sizes it must have.

What bears a listed model's name and is another model is refused in one line.
"""

import math
import re

import polars as pl
import pytest

from configs import known_models, known_shapes, prompts
from engine.checkpoint.restore import parameters
from engine.convert import gates
from engine.convert.hf_config import decoder_config, is_language_model, output_config
from engine.errors import AssayError
from engine.models.heads import HEADS, HeadConfig
from engine.runs.schema import check_names
from launch import models
from launch.common import converting
from tests.support import hub_server, tiny

# RewardBench rank, nickname, hub id, revision where the paper pins one.
PAPER = [
    (2, "N-Gem-27B", "nicolinho/QRM-Gemma-2-27B", "eef8d852e886240e308a57b61d69f0e58489f0ed"),
    (3, "S-Gem-27B-v0.2", "Skywork/Skywork-Reward-Gemma-2-27B-v0.2", None),
    (5, "S-Gem-27B", "Skywork/Skywork-Reward-Gemma-2-27B", None),
    (10, "S-Lla-8B-v0.2", "Skywork/Skywork-Reward-Llama-3.1-8B-v0.2", None),
    (11, "N-Lla-8B", "nicolinho/QRM-Llama3.1-8B", "74280eebb9580bfecff5d0b2edb81f7d6186a204"),
    (12, "L-Lla-8B", "LxzGordon/URM-LLaMa-3.1-8B", None),
    (17, "R-Lla-8B", "Ray2333/GRM-Llama3-8B-rewardmodel-ft", None),
    (19, "R-Lla-3B", "Ray2333/GRM-Llama3.2-3B-rewardmodel-ft", None),
    (
        20,
        "F-Lla-8B-v0.1",
        "RLHFlow/ArmoRM-Llama3-8B-v0.1",
        "39aadadd6d1b66ab358f0b4ce8899624c35c7434",
    ),
    (31, "R-Gem-2B", "Ray2333/GRM-gemma2-2B-rewardmodel-ft", None),
]


LINEAR = {"kind": "linear"}
GATE = {"kind": "gated", "hidden": 1024, "hidden_in": 1024, "gate_layers": 4}
FIVE, NINETEEN = gates.objective_names(5), gates.objective_names(19)
GATED_8B = (4096 + 1024 + 1024 + 3) * 1024 + (1024 + 1) * 19 + 1  # numbers of the gate's network
# Slug -> rows of the embedding, head, and how many numbers its head has.
STRUCTURES = {
    "qrm-gemma-2-27b": (
        256000,
        {**GATE, "objectives": FIVE, "quantiles": 19},
        95 * 4608 + (4608 + 1024 + 1024 + 3) * 1024 + (1024 + 1) * 5 + 1,
    ),
    "skywork-reward-gemma-2-27b-v0.2": (256000, LINEAR, 4608),
    "skywork-reward-gemma-2-27b": (256000, LINEAR, 4608),
    "skywork-reward-llama-3.1-8b-v0.2": (128256, LINEAR, 4096),
    "qrm-llama3.1-8b": (
        128257,
        {**GATE, "objectives": NINETEEN, "quantiles": 19, "transform": True},
        361 * 4096 + 361 + GATED_8B,
    ),
    "urm-llama-3.1-8b": (
        128257,
        {"kind": "urm", "hidden": 1024, "hidden_in": 1024, "objectives": FIVE},
        10 * 4096 + (4096 + 1) * 1024 + (1024 + 1) * 1024 + (1024 + 1) * 5,
    ),
    "grm-llama3-8b-rewardmodel-ft": (128256, LINEAR, 4096),
    "grm-llama3.2-3b-rewardmodel-ft": (128257, LINEAR, 3072),
    "armorm-llama3-8b-v0.1": (
        128257,
        {**GATE, "objectives": NINETEEN, "transform": True},
        19 * 4096 + 361 + GATED_8B,
    ),
    "grm-gemma2-2b-rewardmodel-ft": (256000, LINEAR, 2304),
    "grm-llama3-8b-sftreg": (128256, {"kind": "mlp", "hidden": 1024}, (4096 + 2) * 1024 + 1),
    "internlm2-1_8b-reward": (92544, LINEAR, 2048),
    "inf-orm-llama3.1-70b": (128256, {"kind": "mlp", "hidden": 8192}, (8192 + 2) * 8192 + 1),
    "skywork-reward-llama-3.1-8b": (128257, LINEAR, 4096),
}
# Bytes of the published files.
KNOWN_BYTES = {
    "skywork-reward-llama-3.1-8b": 15_009_865_728,
    "internlm2-1_8b-reward": 3_399_163_904,
    "skywork-reward-gemma-2-27b": 54_454_265_856,
    "skywork-reward-gemma-2-27b-v0.2": 54_454_265_856,
    "grm-gemma2-2b-rewardmodel-ft": 5_228_688_384,
    "grm-llama3.2-3b-rewardmodel-ft": 6_425_511_936,
}


def held(fields, head) -> int:
    """How many numbers all parameters of a model have, by abstract evaluation."""
    decoder = decoder_config(fields)
    if is_language_model(fields):
        output = output_config(fields, decoder)
        return sum(math.prod(p.shape) for p in parameters(decoder, output).values())
    config = HeadConfig(
        depth=decoder.num_layers,
        width=decoder.width,
        rms_eps=decoder.rms_eps,
        norm_offset=decoder.norm_offset,
        **head,
    )
    return sum(math.prod(p.shape) for p in parameters(decoder, config).values())


def test_the_papers_ten_models_are_listed_in_order_with_their_pinned_revisions():
    listed = [
        (spec.rewardbench_rank, spec.nickname, spec.hub_id, spec.revision)
        for spec in known_models.MODELS.values()
    ]
    assert listed == PAPER
    assert set(known_models.MODELS) <= set(STRUCTURES)


@pytest.mark.parametrize("slug", known_models.KNOWN)
def test_a_slug_names_a_folder_and_finds_its_entry(slug):
    check_names([slug])
    assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*", slug)
    spec = known_models.KNOWN[slug]
    assert spec.slug == slug
    assert known_models.find(spec.hub_id) is spec
    assert known_models.find(f"/models/{spec.hub_id}/") is spec
    assert (spec.head in HEADS) == (slug not in known_models.LANGUAGE_MODELS)
    assert slug not in STRUCTURES or spec.head == STRUCTURES[slug][1]["kind"]


def test_a_source_that_is_not_listed_has_no_entry():
    assert known_models.find("someone/another-reward-model") is None
    assert known_models.find("someone/QRM-Gemma-2-27B") is None  # another owner's


def test_the_tables_share_no_model_and_their_policies_are_known():
    tables = (known_models.MODELS, known_models.NEXT, known_models.LANGUAGE_MODELS)
    assert len(known_models.KNOWN) == sum(map(len, tables))
    assert len({spec.nickname for spec in known_models.KNOWN.values()}) == len(known_models.KNOWN)
    assert {spec.bos for spec in known_models.KNOWN.values()} <= {"template", "single", "double"}
    assert {spec.date for spec in known_models.KNOWN.values()} == {"", "26 Jul 2024"}


def test_the_table_says_of_each_model_all_that_is_known_within_100_columns():
    lines = models.table().splitlines()
    assert max(map(len, lines)) <= 100
    for spec in known_models.KNOWN.values():
        (at,) = [i for i, line in enumerate(lines) if spec.nickname in line.split()]
        rank, size = spec.rewardbench_rank, known_shapes.expected_bytes(spec)
        assert re.split("  +", lines[at]) == [
            "-" if rank is None else str(rank),
            spec.nickname,
            spec.developer,
            spec.base,
            f"{spec.size_b:g}B",
            spec.head or "-",
            spec.bos,
            spec.date or "-",
            "unknown" if size is None else f"{size:,}",
        ]
        revision = spec.revision[:12] if spec.revision else "unpinned"
        assert re.split("  +", lines[at + 1]) == ["", spec.hub_id, revision, spec.dtype]
    text = "\n".join(lines)
    assert (
        text.count("unpinned") == sum(s.revision is None for s in known_models.KNOWN.values()) + 1
    )
    assert "54,454,265,856" in text  # as the repository states them
    assert "15,136,819,200" in text  # computed: Qwen 3 8B without its output head


def test_the_follow_up_has_54_distinct_prompts():
    assert len(prompts.FOLLOW_UP) == len(set(prompts.FOLLOW_UP.values())) == 54
    assert "What, in one word, is the greatest thing ever?" in prompts.FOLLOW_UP.values()
    check_names(list(prompts.FOLLOW_UP))


@pytest.mark.parametrize("slug", STRUCTURES)
def test_a_model_has_the_numbers_of_its_structure_and_no_more(slug):
    spec, (rows, settings, head) = known_models.KNOWN[slug], STRUCTURES[slug]
    fields = known_shapes.config_json(spec) | {"vocab_size": rows}
    width, size = fields["hidden_size"], fields["head_dim"]
    attention = 2 * (fields["num_attention_heads"] + fields["num_key_value_heads"]) * size
    norms = 4 if fields["model_type"] == "gemma2" else 2
    layer = width * (attention + 3 * fields["intermediate_size"] + norms)
    trunk = rows * width + fields["num_hidden_layers"] * layer + width
    assert held(fields, settings) == trunk + head
    if slug in KNOWN_BYTES:  # in 16 bits
        assert 2 * (trunk + head) == KNOWN_BYTES[slug] == spec.tensor_bytes


COMPUTED = [s for s, spec in known_models.KNOWN.items() if known_shapes.numbers(spec) is not None]


@pytest.mark.parametrize("slug", COMPUTED)
def test_the_numbers_of_a_listed_model_are_those_of_its_parameters(slug):
    spec = known_models.KNOWN[slug]
    fields = known_shapes.config_json(spec) | {"vocab_size": known_shapes.rows(spec)}
    assert known_shapes.numbers(spec) == held(fields, LINEAR)
    if spec.tensor_bytes is not None:
        size = 4 if spec.dtype == "float32" else 2
        assert size * known_shapes.numbers(spec) == spec.tensor_bytes


def test_bytes_are_unknown_where_a_size_is():
    sizes = {slug: known_shapes.expected_bytes(spec) for slug, spec in known_models.KNOWN.items()}
    assert sizes["qrm-llama3.1-8b"] is None  # the sizes inside its head
    assert sizes["grm-llama3-8b-rewardmodel-ft"] is None  # its rows
    assert sizes["gemma-2-27b"] is None  # its dtype


@pytest.mark.needs_shared
def test_the_language_models_are_those_of_the_papers_tables(shared):
    table = pl.read_csv(shared / "reference" / "table_a1_logprobs_greatest.csv")
    assert table.columns == [spec.hub_id for spec in known_models.LANGUAGE_MODELS.values()]


# A folder or hub id with a listed model's name must have that model's shapes


GEMMA = "grm-gemma2-2b-rewardmodel-ft"
ALLOWED = "; allowed: that model's own files, or a folder of another name"


def config_of(spec, **changes):
    rows = known_shapes.rows(spec)
    size = {} if rows is None else {"vocab_size": rows}
    return {**known_shapes.config_json(spec), **size, **changes}


@pytest.mark.parametrize("slug", ["skywork-reward-v2-qwen3-0.6b", GEMMA, "gemma-2-9b"])
def test_the_published_shapes_are_accepted_and_every_other_is_named(slug):
    spec = known_models.KNOWN[slug]
    converting.check_config("folder", config_of(spec), spec)
    for field in ("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size"):
        right = config_of(spec)[field]
        both = f"{field}={right + 4}; {spec.hub_id} has {field}={right}"
        message = f"folder: config.json has {both}{ALLOWED}"
        with pytest.raises(AssayError) as caught:
            converting.check_config("folder", config_of(spec, **{field: right + 4}), spec)
        assert str(caught.value) == message


def test_rows_are_compared_where_they_are_known():
    unknown = known_models.KNOWN["grm-llama3-8b-rewardmodel-ft"]
    known = known_models.KNOWN["grm-llama3.2-3b-rewardmodel-ft"]
    for rows in (128256, 128257, 128264):
        converting.check_config("folder", config_of(unknown, vocab_size=rows), unknown)
    with pytest.raises(AssayError, match=r"vocab_size=128256; .* has vocab_size=128257; allowed"):
        converting.check_config("folder", config_of(known, vocab_size=128256), known)


def test_the_kind_of_a_model_must_be_the_listed_one():
    language, reward = known_models.KNOWN["gemma-2-2b"], known_models.KNOWN[GEMMA]
    with pytest.raises(AssayError, match="is that of a reward model; google/gemma-2-2b is a lang"):
        converting.check_config("folder", config_of(reward), language)
    with pytest.raises(AssayError, match=r"is that of a language model; Ray2333/.* is a reward mo"):
        converting.check_config("folder", config_of(language), reward)
    llama = known_models.KNOWN["grm-llama3-8b-rewardmodel-ft"]
    with pytest.raises(AssayError, match=r"has model_type=llama; Ray2333/.* has model_type=gemma2"):
        converting.check_config("folder", config_of(llama), reward)


@pytest.mark.parametrize("slug", known_models.KNOWN)
def test_every_listed_model_has_its_own_shapes(slug):
    spec = known_models.KNOWN[slug]
    converting.check_config("folder", config_of(spec), spec)


def test_a_command_refuses_a_tiny_model_under_a_listed_name(command, tmp_path):
    source = tiny.write_model(tmp_path / "Skywork-Reward-Llama-3.1-8B-v0.2")
    done = command("convert", f"--source={source}", f"--checkpoint={tmp_path / 'ck'}")
    assert (done.code, done.out, len(done.err)) == (2, [], 1)
    assert done.err[0].startswith(f"convert: {source}: config.json has hidden_size=")
    assert done.err[0].endswith(ALLOWED)
    assert not (tmp_path / "ck").exists()


def test_a_hub_id_of_other_shapes_is_refused_before_its_weights_are_fetched(
    command, tmp_path, monkeypatch
):
    name = "Skywork/Skywork-Reward-Llama-3.1-8B-v0.2"
    with hub_server.running() as hub:
        hub.add(name, tiny.write_model(tmp_path / "hf"))
        hub_server.point(monkeypatch, hub, tmp_path / "cache")
        done = command("convert", f"--source={name}", f"--checkpoint={tmp_path / 'ck'}")
        assert hub.downloads("model.safetensors") == []
    assert (done.code, done.out, len(done.err)) == (2, [], 1)
    assert done.err[0].startswith(f"convert: {name}: config.json has hidden_size=")
