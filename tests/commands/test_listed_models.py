"""A folder or hub id with a listed model's name that holds another model is refused in one line."""

import pytest

from configs import known_models, known_shapes
from engine.errors import AssayError
from launch.common import known_model_check
from tests.support import hub_server, tiny

COMPUTED = "skywork-reward-v2-qwen3-0.6b"
STATED = "grm-gemma2-2b-rewardmodel-ft"
ALLOWED = "; allowed: that model's own files, or a folder of another name"


def config_of(spec, **changes):
    rows = known_shapes.rows(spec)
    size = {} if rows is None else {"vocab_size": rows}
    return {**known_shapes.config_json(spec), **size, **changes}


@pytest.mark.parametrize("slug", [COMPUTED, STATED, "gemma-2-9b"])
def test_the_published_shapes_are_accepted_and_every_other_is_named(slug):
    spec = known_models.KNOWN[slug]
    known_model_check.check_config("folder", config_of(spec), spec)
    for field in ("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size"):
        right = config_of(spec)[field]
        both = f"{field}={right + 4}; {spec.hub_id} has {field}={right}"
        message = f"folder: config.json has {both}{ALLOWED}"
        with pytest.raises(AssayError) as caught:
            known_model_check.check_config("folder", config_of(spec, **{field: right + 4}), spec)
        assert str(caught.value) == message


def test_rows_are_compared_where_they_are_known():
    unknown = known_models.KNOWN["grm-llama3-8b-rewardmodel-ft"]
    known = known_models.KNOWN["grm-llama3.2-3b-rewardmodel-ft"]
    for rows in (128256, 128257, 128264):
        known_model_check.check_config("folder", config_of(unknown, vocab_size=rows), unknown)
    with pytest.raises(AssayError, match=r"vocab_size=128256; .* has vocab_size=128257; allowed"):
        known_model_check.check_config("folder", config_of(known, vocab_size=128256), known)


def test_the_kind_of_a_model_must_be_the_listed_one():
    language, reward = known_models.KNOWN["gemma-2-2b"], known_models.KNOWN[STATED]
    with pytest.raises(AssayError, match="is that of a reward model; google/gemma-2-2b is a lang"):
        known_model_check.check_config("folder", config_of(reward), language)
    with pytest.raises(AssayError, match=r"is that of a language model; Ray2333/.* is a reward mo"):
        known_model_check.check_config("folder", config_of(language), reward)
    llama = known_models.KNOWN["grm-llama3-8b-rewardmodel-ft"]
    with pytest.raises(AssayError, match=r"has model_type=llama; Ray2333/.* has model_type=gemma2"):
        known_model_check.check_config("folder", config_of(llama), reward)


@pytest.mark.parametrize("slug", known_models.KNOWN)
def test_every_listed_model_has_its_own_shapes(slug):
    spec = known_models.KNOWN[slug]
    known_model_check.check_config("folder", config_of(spec), spec)


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
