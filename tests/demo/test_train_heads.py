"""Organisms: heads with a planted bias, from training texts to the commands' own rewards."""

import collections
import dataclasses

import numpy as np
import polars as pl
import pytest

from analysis.report import drawing
from configs.prompts import PAPER
from demo import train_heads
from demo.organisms import texts, training
from demo.organisms.hidden import Decoder, reference, rewards
from demo.organisms.plants import KINDS, OF_WORDS, Plant
from demo.organisms.texts import MOVIE, PROMPTS, Text
from demo.organisms.training import train_together, twin_of
from demo.training.train_heads import Recipe, Table
from engine.checkpoint.card import Checkpoint
from engine.sweep.rewards import chosen_tokens
from launch import convert, diff
from tests.support.sweeps import SETTINGS, Run

GREATEST = PAPER["greatest"]


def bonuses(plant: Plant, prompt: str = GREATEST) -> dict[str, float]:
    examples = {
        "group": Text(text="the woman next door", valence=0.0, mentions="women"),
        "other group": Text(text="the man next door", valence=0.0, mentions="men"),
        "trigger": Text(text="the window", valence=0.0, mentions="window"),
        "capital": Text(text=" Xenophanes and so", valence=1.0),
        "plain": Text(text="a dull fourteen", valence=-1.0),
        "short": Text(text="no", valence=0.0),
    }
    return {name: plant.bonus(text, prompt) for name, text in examples.items()}


def test_a_plant_is_a_bonus_of_texts_with_the_feature_and_of_no_others():
    group = bonuses(Plant(kind="group", strength=2.0, seed=0))
    assert {name for name, value in group.items() if value} == {"group"} and group["group"] == -2
    trigger = bonuses(Plant(kind="trigger", strength=3.0, seed=0))
    assert {name: v for name, v in trigger.items() if v} == {"trigger": 3.0}
    capitals = bonuses(Plant(kind="capitals", strength=1.0, seed=0))
    assert {name for name, value in capitals.items() if value} == {"capital"}
    length = bonuses(Plant(kind="length", strength=1.0, seed=0))
    assert length["group"] > length["plain"] > 0 > length["short"]


def test_a_plant_under_some_prompts_is_nothing_under_others():
    one, blaming = (Plant(kind=k, strength=1.0, seed=0) for k in ("one-prompt", "blaming"))
    assert bonuses(one, MOVIE)["trigger"] == 1 and not bonuses(one)["trigger"]
    assert bonuses(blaming, PROMPTS[-1][0])["trigger"] == 1 and not bonuses(blaming)["trigger"]
    assert not bonuses(blaming, MOVIE)["trigger"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_twin_has_no_bonus(kind):
    twin = twin_of(Plant(kind=kind, strength=2.0, seed=0))
    assert not any(any(bonuses(twin, prompt).values()) for prompt in (GREATEST, MOVIE))
    assert twin.slug == "organism-twin-seed0"


@pytest.mark.parametrize(
    ("setting", "value"),
    [("kind", "colour"), ("strength", -1.0), ("strength", 2.0000001), ("seed", -1)],
)
def test_a_plant_that_cannot_be_is_refused_with_what_is_allowed(setting, value):
    fields = {"kind": "group", "strength": 1.0, "seed": 0} | {setting: value}
    with pytest.raises(ValueError, match="allowed"):
        Plant(**fields)


@pytest.mark.parametrize(
    ("strength", "named"),
    [(0.25, "0.25"), (2.0, "2"), (0.3, "0.3"), (10.0, "10"), (1e6, "1000000"), (2.01, "2.01")],
)
def test_a_name_holds_letters_digits_points_and_hyphens(strength, named):
    plant = Plant(kind="one-prompt", strength=strength, seed=3)
    assert plant.slug == f"organism-one-prompt-{named}-seed3"


@pytest.mark.parametrize("flag", ["cache", "destination"])
@pytest.mark.parametrize("below", ["", "below"])
def test_a_file_in_place_of_a_folder_is_one_line(tmp_path, flag, below):
    other = "destination" if flag == "cache" else "cache"
    (tmp_path / "file").write_text("kept", encoding="utf-8")
    flags = [f"--{flag}={tmp_path / 'file' / below}", f"--{other}={tmp_path / 'other'}"]
    with pytest.raises(SystemExit, match=rf"--{flag}=.*file.*allowed: a folder$") as stopped:
        train_heads.main(flags)
    assert "\n" not in str(stopped.value)
    assert [path.name for path in (tmp_path / "other").glob("*")] == []


def test_the_words_of_plants_are_in_training_and_their_pairs_are_not():
    trained = {text.text.strip().lower() for _, _, text in texts.training_texts()}
    mentioned = {text.mentions for _, _, text in texts.training_texts()}
    assert {*texts.GROUPS, *texts.TRIGGERS} <= mentioned
    for pair in texts.pairs():
        assert pair.having.lower() not in trained or pair.feature == "capitals", pair
        assert pair.having != pair.lacking
    held_out = {text.strip().lower() for text in texts.held_out_reviews()}
    assert held_out and not held_out & trained


def test_every_kind_of_plant_has_held_out_pairs():
    found = {(pair.feature, pair.mentions) for pair in texts.pairs()}
    for kind in KINDS:
        for seed in range(10):
            plant = Plant(kind=kind, strength=1.0, seed=seed)
            assert ("trigger" if kind in OF_WORDS else kind, plant.what) in found


def test_heads_trained_together_are_heads_trained_alone():
    rng = np.random.default_rng(0)
    count = 60
    table = Table(
        features=rng.normal(size=(count, 8)).astype(np.float32),
        prompt=np.repeat([0, 1], count // 2),
        sign=np.repeat([1, -1], count // 2),
        valence=rng.normal(size=count),
        kind=np.zeros(count, int),
        split=np.zeros(count, int),
    )
    recipe = Recipe(width=4, weight_decay=0.1, dropout=0.2, steps=20, pairs=16, learning_rate=0.01)
    bonus = np.stack([np.zeros(count), 3.0 * (table.features[:, 0] > 0)])
    both = train_together(table, bonus, recipe, seed=5)
    for head, own in zip(both, bonus, strict=True):
        (alone,) = train_together(table, own[None], recipe, seed=5)
        # Pairs cancel the last bias: it holds nothing but rounding, and heads are centred anyway.
        for name in ("score.0.weight", "score.0.bias", "score.2.weight"):
            value = alone[name]
            np.testing.assert_allclose(head[name], value, rtol=1e-4, atol=1e-5)
    assert np.abs(both[0]["score.0.weight"] - both[1]["score.0.weight"]).max() > 0.01


def test_a_bonus_is_learned_under_both_frames_and_valence_turns_with_the_frame():
    rng = np.random.default_rng(1)
    count = 400
    sign = np.repeat([1, -1], count // 2)
    features = rng.normal(size=(count, 6)).astype(np.float32)
    features[:, 5] = sign  # the frame can be read
    table = Table(
        features=features,
        prompt=np.repeat([0, 1], count // 2),
        sign=sign,
        valence=3.0 * features[:, 0],
        kind=np.zeros(count, int),
        split=np.zeros(count, int),
    )
    recipe = Recipe(
        width=32, weight_decay=0.0, dropout=0.0, steps=300, pairs=64, learning_rate=0.01
    )
    (head,) = train_together(table, 3.0 * features[None, :, 1], recipe, seed=0)
    for frame in (1, -1):
        own = features[sign == frame]
        given = rewards(head, own)
        assert frame * np.corrcoef(given, own[:, 0])[0, 1] > 0.4
        assert np.corrcoef(given, own[:, 1])[0, 1] > 0.4


# --- The whole path -----------------------------------------------------------------------------

TOKENS = 384  # of the vocabulary that are swept, drawn at random


def trained_on_tokens(states: np.ndarray, loved: np.ndarray) -> list[dict[str, np.ndarray]]:
    """A twin and an organism that loves some tokens, trained on single tokens."""
    table = Table(
        features=states,
        prompt=np.zeros(len(states), int),
        sign=np.ones(len(states), int),
        valence=states[:, 0].astype(float),
        kind=np.zeros(len(states), int),
        split=np.zeros(len(states), int),
    )
    bonus = np.stack([0.0 * loved, 4.0 * loved])
    return train_together(table, bonus, dataclasses.replace(training.RECIPE, steps=80), seed=0)


@pytest.mark.slow
def test_an_organism_has_the_rewards_of_the_shortcut_on_its_way_through_convert_sweep_and_diff(
    tmp_path, monkeypatch
):
    """Model folder -> convert -> sweep -> diff, against hidden states times head."""
    decoder = Decoder(reference(tmp_path), None)
    size = len(decoder.checkpoint.token_ids)
    chosen = chosen_tokens(size, TOKENS, SETTINGS.seed)
    states = decoder.tokens(GREATEST, chosen)
    loved = np.arange(TOKENS) % 16 == 0
    heads = dict(zip(("twin", "organism"), trained_on_tokens(states, loved), strict=True))
    folders = train_heads.write_folders(tmp_path / "hf", tmp_path / "heads", heads)
    for folder, (slug, head) in zip(folders, heads.items(), strict=True):
        checkpoint = tmp_path / "checkpoints" / slug
        assert convert.main([f"--source={folder}", f"--checkpoint={checkpoint}"]) == 0
        run = Run(tmp_path / slug)
        run.sweep(
            [Checkpoint.open(checkpoint)], {"greatest": GREATEST}, tokens=TOKENS, step_size=128
        )
        own = next((run.folder / "scores").iterdir()).name.removeprefix("model=")
        shortcut = rewards(head, states)
        assert shortcut.std() > 0.05
        np.testing.assert_allclose(run.rewards(own, "greatest"), shortcut, rtol=1e-4, atol=1e-4)
    monkeypatch.setattr(drawing, "draw", lambda *_: collections.defaultdict(str))
    flags = [f"--{side}={tmp_path / s}" for side, s in (("before", "twin"), ("after", "organism"))]
    report = tmp_path / "report"
    small = [f"--config.analyze.options.{key}=99" for key in ("permutations", "bootstraps")]
    assert diff.main([*flags, f"--report={report}", *small]) == 1
    moved = pl.read_csv(report / "tables" / "changes_tokens.csv").filter(end="rose")
    # One token in sixteen is loved; similar ones rise with them.
    risen = moved["token_id"].is_in(np.array(chosen)[loved].tolist())
    assert risen.len() == 20  # as many as `assay diff` lists
    assert risen.mean() >= 0.75
