"""configs/known_models.py: what is published under each name, and the sizes it must have.

What bears a listed model's name and is another model is refused in one line.
"""

import contextlib
import dataclasses
import json
import math
import re

import pytest

from bench.random_model import linear_head
from configs import known_models, prompts
from engine.checkpoint.restore import parameters
from engine.convert.hf_config import decoder_config, is_language_model, output_config
from engine.errors import AssayError
from engine.models.heads import HEADS
from engine.runs import storage
from engine.runs.schema import check_names
from engine.settings import ConvertSettings
from engine.sources import convert
from launch.common.released_scores import prompt_named
from tests.support import hub_server, tiny


def held(fields) -> int:
    """How many numbers all parameters of a model with a linear head have."""
    decoder = decoder_config(fields)
    language = is_language_model(fields)
    head = output_config(fields, decoder) if language else linear_head(decoder)
    return sum(math.prod(p.shape) for p in parameters(decoder, head).values())


@pytest.mark.parametrize("slug", known_models.KNOWN)
def test_a_slug_names_a_folder_and_finds_its_entry(slug):
    check_names([slug])
    assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*", slug)
    spec = known_models.KNOWN[slug]
    owned, name = spec.hub_id.replace("/", "--"), spec.hub_id.partition("/")[2]
    for place in (spec.hub_id, f"/models/{spec.hub_id}/", f"/models/{owned}"):
        assert known_models.find(place) is spec
    for place in (f"other/{name}", f"/models/other-{owned}"):
        assert known_models.find(place) is None
    assert spec.slug == slug
    assert (spec.head in HEADS) == (slug not in known_models.LANGUAGE_MODELS)


def test_the_tables_share_no_model_and_their_policies_are_known():
    tables = (known_models.MODELS, known_models.NEXT, known_models.LANGUAGE_MODELS)
    specs = known_models.KNOWN.values()
    assert len({spec.nickname for spec in specs}) == len(specs) == sum(map(len, tables))
    assert {spec.bos for spec in specs} <= {"template", "single", "double"}
    assert {spec.date for spec in specs} == {"", "26 Jul 2024"}


def test_the_row_that_the_list_names_is_the_reward(tmp_path):
    """Nemotron's: the logit of token 0 of what says that it is a language model."""
    listed = known_models.KNOWN["llama-3.3-nemotron-70b-reward"]
    spec = dataclasses.replace(listed, hub_id="owner/tiny", rows=None)
    folder = tiny.write_model(tmp_path / "tiny", head="lm")
    shapes = json.loads((folder / "config.json").read_text())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_models.ModelSpec, "config_json", lambda spec: shapes)
        made = convert.convert(
            str(folder), storage.path_of(tmp_path / "ck"), spec, ConvertSettings(), slug="tiny"
        )
    assert made.card.reward == "the logit of '<|endoftext|>' (token id 0)"


def test_the_released_prompts_have_the_texts_that_their_names_say():
    assert len(prompts.RELEASED) == len(set(prompts.RELEASED.values())) == 3 + 54
    check_names(list(prompts.FOLLOW_UP))
    words = {"world": "in the world", "time": "of all time", "ever": "ever"}
    forms = {"one": "in one word,", "single": "in a single word,", "please": "Please answer"}
    for name, key in [*prompts.RELEASED.items()][3:]:
        quality, scope, form = name.split("_")
        text = prompts.PROMPTS[key]
        assert f"{quality} thing {words[scope]}?" in text and forms[form] in text
        assert prompt_named(name) == (key, text)


@pytest.mark.parametrize("slug", [s for s, m in known_models.KNOWN.items() if m.tensor_bytes])
def test_the_stated_bytes_are_those_of_the_parameters(slug):
    spec = known_models.KNOWN[slug]
    fields = spec.config_json() | {"vocab_size": spec.rows}
    assert held(fields) * (4 if spec.dtype == "float32" else 2) == spec.tensor_bytes


GEMMA = "grm-gemma2-2b-rewardmodel-ft"


def config_of(spec, **changes):
    size = {} if spec.rows is None else {"vocab_size": spec.rows}
    return {**spec.config_json(), **size, **changes}


@pytest.mark.parametrize("slug", [GEMMA, "gemma-2-9b"])
def test_the_published_shapes_are_accepted_and_every_other_is_named(slug):
    spec = known_models.KNOWN[slug]
    convert.check_config("folder", config_of(spec), spec)
    for field in ("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size"):
        right = config_of(spec)[field]
        message = f"folder: .* {field}={right + 4}; {spec.hub_id} .*{field}={right}"
        with pytest.raises(AssayError, match=message):
            convert.check_config("folder", config_of(spec, **{field: right + 4}), spec)


LLAMA, SFTREG = "grm-llama3-8b-rewardmodel-ft", "grm-llama3-8b-sftreg"
SMALL = "grm-llama3.2-3b-rewardmodel-ft"
# A listed model -> whose config.json is there, with what changed, and what the line says, if any.
CONFIGS = [
    (LLAMA, LLAMA, {"vocab_size": 128264}, ""),  # not known
    (SMALL, SMALL, {"vocab_size": 128256}, "vocab_size=128256; .*vocab_size=128257"),
    (SFTREG, SFTREG, {"architectures": ["LlamaForCausalLM"]}, ""),  # in its files
    ("gemma-2-2b", GEMMA, {}, "reward model; google/gemma-2-2b"),
    (GEMMA, "gemma-2-2b", {}, r"language model; Ray2333/"),
    (GEMMA, LLAMA, {}, r"model_type=llama; Ray2333/.* model_type=gemma2"),
]


@pytest.mark.parametrize(("slug", "other", "changes", "message"), CONFIGS)
def test_rows_and_kind_are_compared_where_they_are_known(slug, other, changes, message):
    config = config_of(known_models.KNOWN[other], **changes)
    refused = pytest.raises(AssayError, match=message) if message else contextlib.nullcontext()
    with refused:
        convert.check_config("folder", config, known_models.KNOWN[slug])


def test_other_shapes_under_a_listed_hub_id_are_refused_before_weights_are_fetched(
    command, tmp_path, monkeypatch
):
    name = "Skywork/Skywork-Reward-Llama-3.1-8B-v0.2"
    with hub_server.running() as hub:
        hub.add(name, tiny.write_model(tmp_path / "hf"))
        hub_server.point(monkeypatch, hub, tmp_path / "cache")
        done = command("convert", f"--source={name}", f"--checkpoint={tmp_path / 'ck'}")
        assert hub.downloads("model.safetensors") == []
    assert re.match(rf"convert: {name}( at \w+)?: config.json has hidden_s", done.refusal())
