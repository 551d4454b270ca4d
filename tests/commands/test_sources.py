"""Checkpoints, folders and hub ids where a command takes a model; the cache of converted ones."""

import io
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest

import assay
from engine.checkpoint.card import Checkpoint
from engine.convert import writer
from engine.errors import AssayError
from engine.sources import cache as models
from engine.sources import convert
from launch import sweep
from launch.common import sources
from tests.support import folders, hub_server, tiny


@pytest.fixture
def config(tmp_path):
    settings = sweep.COMMAND.settings.defaults()
    settings.cache = str(tmp_path / "cache")
    return settings


@pytest.fixture
def converted(config):
    """Names -> their checkpoints."""
    return lambda *names: sources.checkpoints([str(name) for name in names], config)


def made(config) -> list[str]:
    return sorted(path.name for path in Path(config.cache).glob("[!.]*"))


def test_a_folder_is_converted_once_by_what_is_in_it(converted, config, tmp_path, capsys):
    folder = tiny.write_model(tmp_path / "my-rm")
    [first] = converted(folder)
    assert (first.card.slug, first.card.source) == ("my-rm", str(folder))
    assert "converting into" in capsys.readouterr().err
    copy = Path(shutil.copytree(folder, tmp_path / "copy-rm"))
    [again], [copied] = converted(folder), converted(copy)
    printed = capsys.readouterr().err
    assert "converting into" not in printed and f"{copy}: " in printed
    assert again.path == copied.path == first.path
    assert (copied.card.slug, copied.card.source) == ("copy-rm", str(copy))
    folders.edit_json(copy / "config.json", rms_norm_eps=2e-5)
    shutil.rmtree(folder)
    tiny.write_model(folder, seed=1)
    hashes = {model.card.checkpoint_hash for model in (first, *converted(folder), *converted(copy))}
    assert len(hashes) == len(made(config)) == 3


def test_a_notebook_loads_what_commands_take(config, tmp_path):
    folder, how = tiny.write_model(tmp_path / "my-rm"), {"cache": config.cache, "step_size": 16}
    loaded = assay.load(str(folder), **how)
    assert (loaded.slug, len(made(config))) == ("my-rm", 1)
    raw = assay.load(folder, convert={"template": "raw"}, **how)
    assert raw.score("a", "b") != loaded.score("a", "b") and len(made(config)) == 2
    lm = tiny.write_model(tmp_path / "lm", head="lm")
    assert assay.reward_of(lm, lm, cache=config.cache) and len(made(config)) == 3
    for odd, given, why in (
        ("./no", {}, "./no: no such folder"),
        (tmp_path, {}, "no checkpoint"),
        (tmp_path / "own", {}, "own: no such folder"),
        (3, {}, "model=3"),
        (folder, {"convert": {"tempate": "raw"}}, "'tempate'"),
        (folder, {"convert": {"reward": 0}}, "reward=0"),
        (folder, {"base": "x"}, "adapter"),
        (folder, {"mesh": "x"}, "mesh='x'"),
        (folder, {"step_size": "8"}, "step_size='8'"),
    ):
        with pytest.raises(AssayError, match=why):
            assay.load(odd, cache=config.cache, **given)


def test_settings_of_convert_pass_through_and_are_another_entry(converted, config, tmp_path):
    folder = tiny.write_model(tmp_path / "my-rm")
    [plain] = converted(folder)
    template = tmp_path / "mine.jinja"
    config.convert.template = str(template)
    for text in (tiny.CHATML, tiny.TRIMMED):  # the file is another one, its name is the same
        template.write_text(text)
        [chosen] = converted(folder)
        assert chosen.tokenizer.chat_template == text
    assert len(made(config)) == 3
    with pytest.raises(AssayError, match=r"--config.convert.template"):
        converted(plain.path)


def test_models_of_one_name_are_called_by_their_folders(converted, checkpoint, tmp_path):
    first = tiny.write_model(tmp_path / "a" / "Final")
    second = tiny.write_model(tmp_path / "b" / "final", seed=1)
    assert [model.card.slug for model in converted(first, second)] == ["a-final", "b-final"]
    rm, other = (tmp_path / name / "rm" for name in "ab")
    tiny.write_model(rm, seed=2), tiny.write_model(other, seed=3)
    assert [model.card.slug for model in converted(rm)] == ["rm"]
    assert [model.card.slug for model in converted(rm, other)] == ["a-rm", "b-rm"]
    names = [model.card.slug for model in converted(rm, rm, checkpoint().path)]
    assert names == ["rm", "rm", "tiny"]  # one model twice is for the sweep to refuse


@pytest.mark.parametrize(
    "name", ["./no/rm", "/no/rm", "~/rm", "rm", "a/b/c", "here/typo", "owner/rm@", "own er/rm"]
)
def test_what_may_be_a_path_is_never_looked_up(converted, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    monkeypatch.setattr("engine.convert.downloads.snapshot", lambda *_, **__: pytest.fail("asked"))
    with pytest.raises(AssayError, match=f"^{name}: no such folder"):
        converted(name)


def test_a_hub_id_is_fetched_once_and_its_name_with_a_revision_is_never_a_folder(
    command, converted, config, tmp_path, monkeypatch
):
    with hub_server.running() as hub:
        commit = hub.add("here/tiny-rm", tiny.write_model(tmp_path / "first"), "v1")
        hub.add("here/tiny-rm", tiny.write_model(tmp_path / "second", seed=1))
        hub_server.point(monkeypatch, hub, tmp_path / "hub")
        monkeypatch.chdir(tmp_path)
        models = [*converted("here/tiny-rm@v1"), *converted("here/tiny-rm")]
        hub.add("there/tiny-rm", tiny.write_model(tmp_path / "third", seed=2))
        namesakes = converted("here/tiny-rm", "there/tiny-rm")
        assert [model.card.slug for model in namesakes] == ["here-tiny-rm", "there-tiny-rm"]
        flags = ["--source=here/tiny-rm", "--revision=v1", f"--checkpoint={tmp_path / 'ck'}"]
        command("convert", *flags).fine()
        card = Checkpoint.open(tmp_path / "ck").card
        assert (card.source, card.revision) == ("here/tiny-rm", commit)
        assert card.checkpoint_hash == models[0].card.checkpoint_hash
        (tmp_path / "here").mkdir()
        assert converted("here/tiny-rm@v1")[0].path == models[0].path
        assert [model.card.slug for model in models] == ["tiny-rm", "tiny-rm"]
        assert models[0].card.revision == commit != models[1].card.revision
        assert len(hub.downloads("model.safetensors")) == 3


def test_a_killed_conversion_leaves_no_entry_and_the_next_removes_its_rest(
    converted, config, tmp_path, monkeypatch
):
    folder, cache, killed = tiny.write_model(tmp_path / "my-rm"), Path(config.cache), tmp_path / "k"

    def finish(*arguments, **keywords):
        shutil.copytree(cache, killed)  # what there is when the process dies here
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(writer.Writer, "finish", finish)
        converted(folder)
    shutil.rmtree(cache)
    killed.rename(cache)
    assert len(list(cache.glob(".my-rm-*"))) == 1
    assert made(config) == [] and models.entries(cache) == []
    converted(folder)
    assert len(made(config)) == 1 and not list(cache.glob(".my-rm-*"))


def test_of_two_calls_at_once_one_converts(converted, config, tmp_path, monkeypatch):
    folder, opened, plain = tiny.write_model(tmp_path / "my-rm"), [], convert.convert
    started, go_on = threading.Event(), threading.Event()
    errors = io.StringIO()  # capsys may lose what a thread prints while it is read

    def slowly(*arguments, **keywords):
        started.set()
        assert go_on.wait(60)
        return plain(*arguments, **keywords)

    monkeypatch.setattr(convert, "convert", slowly)
    monkeypatch.setattr(sys, "stderr", errors)
    calls = [
        threading.Thread(target=lambda: opened.extend(converted(folder)), daemon=True)
        for _ in range(2)
    ]
    calls[0].start()
    assert started.wait(60)
    calls[1].start()
    began = time.monotonic()
    while "waiting for another command" not in errors.getvalue() and time.monotonic() - began < 60:
        time.sleep(0.05)
    go_on.set()
    for call in calls:
        call.join()
    printed = errors.getvalue()
    assert "waiting for another command" in printed
    assert printed.count("converting into") == 1 and "converted before" in printed
    assert opened[0].path == opened[1].path and len(made(config)) == 1


def test_the_cache_is_listed_and_cleared(command, converted, config, tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "home"))
    config.cache = str(tmp_path / "home" / "models")
    assert command("cache").out == [f"{config.cache}: empty"]
    converted(tiny.write_model(tmp_path / "a-rm"), tiny.write_model(tmp_path / "b-rm", seed=1))
    first, second = made(config)
    done = command("cache")
    assert done.out[0].split() == ["name", "source", "size", "last", "used"]
    assert {line.split()[0] for line in done.out[1:3]} == {first, second}
    assert done.out[-1].startswith(f"{config.cache}: 2 models, ")
    assert f"allowed: all, {', '.join(made(config))}" in command("cache", "--clear=c").refusal()
    assert command("cache", f"--clear={first}").code == 0 and made(config) == [second]
    assert command("cache", "--clear=all").code == 0 and made(config) == []
    assert not any(Path(config.cache).rglob("model.json"))


def test_a_cache_that_cannot_be_written_is_named(command, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "file"))
    model = tiny.write_model(tmp_path / "my-rm")
    refused = command("sweep", f"--checkpoint={model}", f"--run={tmp_path / 'run'}").refusal()
    why = "file/models: Not a directory; --config.cache or ASSAY_CACHE chooses another cache"
    assert refused.endswith(why)
