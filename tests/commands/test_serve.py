"""The page of `assay serve` over HTTP: a real server in a thread, on tiny models."""

import base64
import contextlib
import dataclasses
import http.client
import json
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest

import assay
import engine
from engine.errors import AssayError
from engine.text.chat_template import with_reply_start, with_system
from launch.common.scoring import prompt_id
from launch.serving.app import TOKEN
from launch.serving.server import bind
from tests.support.sweeps import SIZE

QUESTION = "What is the greatest thing?"
ASKED = {"model": 0, "question": QUESTION}


@contextlib.contextmanager
def sent(server, method, path, body=None, **headers):
    """A request, and its response before it is read; None leaves a header out."""
    headers = {TOKEN: server.token, **{k.replace("_", "-"): v for k, v in headers.items()}}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    try:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        kept = {name: value for name, value in headers.items() if value is not None}
        connection.request(method, path, data, kept)
        yield connection.getresponse()
    finally:
        connection.close()


def events(response):
    """(name, data) of each event as it comes."""
    assert response.status == 200, response.read()
    name = ""
    while line := response.readline().decode().rstrip("\n"):
        name = line.removeprefix("event: ")
        data = json.loads(response.readline().decode().removeprefix("data: "))
        response.readline()
        yield name, data


def asked(server, path, body):
    with sent(server, "POST", f"/api/{path}", body) as response:
        return list(events(response))


def data_of(stream, name):
    [data] = [data for event, data in stream if event == name]
    return data


def rewards(stream):
    """Rewards by row, as the page has them at the end."""
    numbers = np.full(SIZE, np.nan, np.float32)
    for event, data in stream:
        if event == "rows":
            rows = np.frombuffer(base64.b64decode(data["rows"]), "<u4")
            numbers[rows] = np.frombuffer(base64.b64decode(data["rewards"]), "<f4")
    return numbers


def test_a_ranking_streams_common_words_first_and_ends_as_a_sweep(server, run, checkpoint):
    stream = asked(server, "rank", ASKED)
    names = [event for event, _ in stream]
    assert names[-2:] == ["done", "end"]
    assert names.count("rows") > 4  # steps, not parts
    first = rewards(stream[: names.index("rows") + 1])
    tokens = list(checkpoint().tokens.values())
    assert np.isfinite(first[tokens.index("love")])
    assert np.isnan(first[tokens.index("\n")])
    run.sweep([checkpoint()], {"greatest": QUESTION})
    np.testing.assert_array_equal(rewards(stream), run.rewards("tiny", "greatest"))


def test_what_is_kept_has_the_bytes_of_a_sweep_and_is_not_computed_again(
    server, explorer, run, checkpoint, monkeypatch
):
    answer = data_of(asked(server, "rank", ASKED), "done")
    with monkeypatch.context() as patch:
        patch.setattr(type(explorer.models[0].scorer), "score", None)
        assert "288 rewards" in data_of(asked(server, "keep", answer), "kept")["line"]
    prompts = {prompt_id(QUESTION): QUESTION}
    run.sweep([checkpoint()], prompts)
    kept = dataclasses.replace(run, folder=type(run.folder)(explorer.run))
    assert run.hashes() == kept.hashes()
    [(path, ours)], [(same, theirs)] = (folder.results().items() for folder in (kept, run))
    assert path == same
    assert ours.complete and ours.identity == theirs.identity
    assert run.sweep([checkpoint()], prompts) == 0
    assert "there already" in data_of(asked(server, "keep", answer), "kept")["line"]


def test_a_ranking_that_the_plain_pass_does_not_confirm_is_not_kept(server, explorer):
    answer = data_of(asked(server, "rank", {**ASKED, "question": "Why?"}), "done")
    explorer._answers[answer["answer"]][1][:] += 1
    assert "self-check" in data_of(asked(server, "keep", answer), "error")["line"]
    assert "no such ranking" in data_of(asked(server, "keep", {"answer": 999}), "error")["line"]


def test_replies_have_their_rewards_objectives_and_the_reward_at_each_token(server, checkpoint):
    replies = ["love", "the war of love", "<img src=x onerror=alert(1)>"]
    answer = data_of(asked(server, "reply", {**ASKED, "model": 1, "replies": replies}), "replies")
    model = engine.load(checkpoint("several", head="urm").path, step_size=16)
    expected = model.objectives(QUESTION, replies, mode="ids").drop("response")
    assert answer["columns"] == expected.columns
    assert len(answer["columns"]) > 1
    np.testing.assert_allclose(answer["numbers"], expected.to_numpy(), rtol=1e-5, atol=1e-6)
    text = "the war of <b>love</b>"
    answer = data_of(asked(server, "running", {**ASKED, "model": 1, "reply": text}), "running")
    expected = model.running(QUESTION, text)
    assert answer["tokens"] == expected["token"].to_list() and "".join(answer["tokens"]) == text
    np.testing.assert_allclose(answer["rewards"], expected["reward"], rtol=1e-5, atol=1e-6)


def test_a_system_turn_and_a_reply_start_are_ranked_and_kept_as_by_a_sweep(server, run, checkpoint):
    stream = asked(server, "rank", {**ASKED, "system": "Be brief.", "after": "the war "})
    run.sweep(
        [checkpoint()], {"x": with_reply_start(with_system("Be brief.", QUESTION), "the war ")}
    )
    np.testing.assert_array_equal(rewards(stream), run.rewards("tiny", "x"))
    kept = data_of(asked(server, "keep", {"answer": data_of(stream, "done")["answer"]}), "kept")
    assert "after" in kept["line"]


def test_a_search_tells_the_best_reply_after_each_step(server):
    stream = asked(server, "search", {**ASKED, "length": 2, "steps": 3, "direction": "min"})
    rewards = [data["reward"] for event, data in stream if event == "step"]
    assert len(rewards) == 3 and rewards == sorted(rewards, reverse=True)
    [last] = [data for event, data in stream if event == "step"][-1:]
    replied = data_of(asked(server, "reply", {**ASKED, "replies": [last["text"]]}), "replies")
    assert replied["numbers"][0][0] == pytest.approx(last["reward"], abs=1e-4)
    assert [event for event, _ in stream][-2:] == ["done", "end"]


def until(response, *names):
    """Reads events until those of the names have come, in their order; returns the last one's."""
    stream = events(response)
    for name in names:
        data = next(data for event, data in stream if event == name)
    return data


BEHIND = ("rows", "rows")  # of the first words, then of a step of all


def test_a_second_window_waits_but_has_its_first_words_and_replies(server, held):
    with sent(server, "POST", "/api/rank", ASKED) as first:
        until(first, *BEHIND)
        with sent(server, "POST", "/api/rank", ASKED) as second:
            assert until(second, "waiting") == {"before": 1}
            until(second, "rows")
            assert data_of(asked(server, "reply", {**ASKED, "replies": ["love"]}), "replies")
            held.set()
            until(first, "done", "end")
            until(second, "done", "end")


def test_connections_that_are_dropped_free_the_queue(server, explorer, held):
    with sent(server, "POST", "/api/rank", ASKED) as computed:
        until(computed, *BEHIND)
        with sent(server, "POST", "/api/rank", ASKED) as waiting:
            until(waiting, "rows")
    with sent(server, "POST", "/api/rank", ASKED) as third:
        until(third, *BEHIND)  # so the one that was computed has ended before its end
        assert not explorer.desk._waiting
        held.set()
        until(third, "done")


def test_a_full_queue_refuses_and_empties(server, held):
    with contextlib.ExitStack() as stack:
        for awaited in (BEHIND, *[["waiting"]] * 8):
            response = stack.enter_context(sent(server, "POST", "/api/rank", ASKED))
            until(response, *awaited)
        with sent(server, "POST", "/api/rank", ASKED) as refused:
            assert (refused.status, "8 computations" in refused.read().decode()) == (400, True)
    held.set()
    assert "done" in [name for name, _ in asked(server, "rank", ASKED)]


def test_a_computation_that_fails_is_one_line_and_the_next_one_is_done(
    server, explorer, monkeypatch
):
    def fail(*_, **__):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 9 GB\nat")

    with monkeypatch.context() as patch:
        patch.setattr(type(explorer.models[0].scorer), "score", fail)
        message = data_of(asked(server, "rank", ASKED), "error")["line"]
    assert message.startswith("tiny: a device ") and "\n" not in message
    assert "done" in [name for name, _ in asked(server, "rank", ASKED)]


@pytest.mark.parametrize(
    ("path", "body", "line"),
    [
        ("rank", b"[" * 100_000, "no JSON"),
        ("rank", {"question": "x" * 8001}, "8,001 characters; allowed: 8,000"),
        ("running", {**ASKED, "reply": 3}, "reply: allowed: a text"),
        ("rank", {**ASKED, "model": 2}, "model: allowed: integers from 0 to 1"),
        ("rank", b" " * 300_000, "262,144 bytes"),
        ("rank", {**ASKED, "run": "/etc"}, "'run': no such field"),
        ("rank", {**ASKED, "question": "\ud800"}, "half of a character"),
        ("rank", {**ASKED, "question": "a␞b"}, "holds the character '␞'"),
        ("reply", {**ASKED, "replies": ["x"] * 33}, "a list of 1 to 32 texts"),
        ("search", {**ASKED, "steps": 10**9}, "steps: allowed: integers from 1 to 500"),
        ("search", {**ASKED, "direction": "both"}, "allowed: 'max', 'min'"),
    ],
)
def test_what_is_no_question_is_refused_before_anything_is_computed(server, path, body, line):
    with sent(server, "POST", f"/api/{path}", body) as response:
        assert response.status == 400
        assert line in json.loads(response.read())["error"]


def test_an_error_of_the_page_itself_is_one_line(server, explorer, capsys, caplog, monkeypatch):
    monkeypatch.setattr(type(explorer), "tokens", lambda *_: 1 / 0)
    for path, status in (("api/tokens/0", 500), ("static/serve.js", 200)):  # it lives on
        with sent(server, "GET", f"/{path}") as response:
            assert response.status == status
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("serve: ZeroDivisionError (test_serve.py:")
    assert caplog.records == []


@pytest.mark.parametrize(
    ("path", "headers", "line"),
    [
        ("/api/about", {TOKEN: None}, "token"),
        ("/?token=guess", {}, "token"),
        ("/api/about", {"host": "127.0.0.1.attacker.example:80"}, "Host"),
        ("/api/about", {"origin": "http://attacker.example"}, "Origin"),
        ("/static/serve.js", {"host": "attacker.example"}, "Host"),
    ],
)
def test_other_pages_and_guesses_are_refused(server, path, headers, line):
    with sent(server, "GET", path, **headers) as response:
        assert response.status == 403
        assert json.loads(response.read())["error"].startswith(line)


def test_the_page_runs_its_own_scripts_alone(server):
    with sent(server, "GET", f"/?token={server.token}", **{TOKEN: None}) as response:
        policy, page = response.headers["content-security-policy"], response.read().decode()
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "<script>" not in page and "<style" not in page and "style=" not in page
    for name in ("serve.js", "explorer-text.js", "explorer-table.js", "style.css", "serve.css"):
        with sent(server, "GET", f"/static/{name}") as response:
            assert response.status == 200
    tokens = [f"/api/tokens/{number}" for number in ("2", "x", "9" * 5000)]
    for path in ("/static/..%2fserve.py", "/static/app.py", *tokens):
        with sent(server, "GET", path) as response:
            assert response.status == 404


def test_a_port_that_is_taken_is_one_line(server):
    with pytest.raises(AssayError, match=f"={server.port}: Address already in use.*; allowed"):
        bind("127.0.0.1", server.port)


def test_python_goes_on_when_the_page_is_ready(checkpoint):
    returned = assay.serve(checkpoint().path, port=0, config={"step_size": 16})
    with contextlib.closing(returned["server"]) as page:
        assert returned["address"] == page.address
        with sent(page, "GET", f"/?token={page.token}") as response:
            assert response.status == 200


@pytest.mark.slow
def test_ctrl_c_ends_in_one_line(checkpoint):
    command = [sys.executable, "-m", "launch.serve", checkpoint().path, "--port=0"]
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        line = process.stdout.readline()
        assert line.startswith("ready in") and "http://127.0.0.1:" in line
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
    assert (process.returncode, out, err.splitlines()[-1]) == (130, "", "serve: interrupted")
    assert "Traceback" not in err
