"""Who is told of new incidents: what arrives, and that nothing that goes wrong with it ends a run or tells a secret."""

from __future__ import annotations

import argparse
import json
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from jobs import values
from jobs.watching import incident_hooks
from jobs.watching.incident_hooks import TOLD_AT_ONCE, message, post, run_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ABOUT = {"recording_id": "prod", "run_id": "a-run", "warehouse": "/lake"}
TOLD = message(ABOUT, [{"incident_id": "i1", "topic": 'it\'s "quoted" $(id)'}])


class Receiver(BaseHTTPRequestHandler):
    """Answers with the codes that the test has put up, and keeps what it was sent."""

    codes: list[int]
    got: list[dict[str, Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append({"path": self.path, "type": self.headers["Content-Type"], "told": json.loads(body)})
        self.send_response(self.codes.pop(0))
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[tuple[str, type[Receiver]]]:
    handler: type[Receiver] = type("OneReceiver", (Receiver,), {"codes": [], "got": []})
    server = HTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook?token=secret", handler
    server.shutdown()
    server.server_close()


def test_a_command_reads_the_incidents_and_knows_whose_they_are(tmp_path: Path) -> None:
    command = (
        f'cat > {tmp_path}/told; echo "$TIDEMARK_RUN_ID $TIDEMARK_RECORDING_ID $TIDEMARK_WAREHOUSE" > {tmp_path}/env'
    )
    assert run_command(f"{command}; echo noise; echo noise >&2", TOLD) is None
    assert json.loads((tmp_path / "told").read_text()) == TOLD
    assert (tmp_path / "env").read_text() == "a-run prod /lake\n"


def test_what_a_command_prints_is_no_part_of_our_output(capfd: pytest.CaptureFixture[str]) -> None:
    run_command("echo noise; echo noise >&2", TOLD)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("command", "said"), [("exit 7 # secret", "ended with 7"), ("sleep 30 # secret", "did not end within 0 seconds")]
)
def test_a_command_that_fails_is_a_warning_without_the_command(
    monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    monkeypatch.setattr(incident_hooks, "COMMAND_S", 60.0 if "exit" in command else 0.2)
    warning = run_command(command, TOLD)
    assert warning is not None
    assert said in warning
    assert "secret" not in warning


def test_a_command_need_not_read(tmp_path: Path) -> None:
    many = message(ABOUT, [{"incident_id": "i" * 1000}] * 900)
    assert run_command(f"touch {tmp_path}/done", many) is None
    assert (tmp_path / "done").exists()


def test_a_webhook_gets_the_incidents_as_json(receiver: tuple[str, type[Receiver]]) -> None:
    url, handler = receiver
    handler.codes = [204]
    assert post(url, TOLD) is None
    assert handler.got == [{"path": "/hook?token=secret", "type": "application/json", "told": TOLD}]


def test_a_webhook_that_is_busy_is_asked_again(receiver: tuple[str, type[Receiver]]) -> None:
    url, handler = receiver
    handler.codes = [503, 429, 200]
    slept: list[float] = []
    assert post(url, TOLD, slept.append) is None
    assert len(handler.got) == 3
    assert slept == [1.0, 4.0]


@pytest.mark.parametrize(("codes", "asked"), [([404, 200], 1), ([302, 200], 1), ([500, 500, 500, 200], 3)])
def test_a_webhook_that_refuses_is_a_warning_without_its_url(
    receiver: tuple[str, type[Receiver]], codes: list[int], asked: int
) -> None:
    url, handler = receiver
    handler.codes = [*codes]
    warning = post(url, TOLD, lambda _: None)
    assert warning is not None
    assert f"it answered {codes[0]}" in warning
    assert "secret" not in warning
    assert len(handler.got) == asked


def test_a_webhook_that_is_not_there_is_a_warning_without_its_url() -> None:
    for url in ("http://127.0.0.1:9/secret", "http://secret.invalid/"):
        warning = post(url, TOLD, lambda _: None)
        assert warning is not None
        assert "asked 3 times" in warning
        assert "secret" not in warning


@pytest.mark.parametrize("text", ["ftp://secret/x", "secret", "https://", "http://a b/secret", "http://x:secret/"])
def test_a_url_that_is_none_is_not_repeated(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        values.url(text)
    assert "secret" not in str(caught.value)


def test_who_was_told_of_an_incident_hears_what_became_of_it(tmp_path: Path) -> None:
    said = {"incident_id": "i1", "first_reported": datetime(2026, 11, 21, 3, tzinfo=UTC), "now": None}
    assert run_command(f"cat > {tmp_path}/told", message(ABOUT, [], [], [said])) is None
    told = json.loads((tmp_path / "told").read_text())
    assert (told["new_incidents"], told["incidents"], told["revised"]) == (0, [], [])
    assert told["withdrawn"] == [{**said, "first_reported": "2026-11-21T03:00:00+00:00"}]


def test_of_very_many_incidents_the_first_are_told_and_all_are_counted() -> None:
    told = message(ABOUT, [{"incident_id": str(k)} for k in range(TOLD_AT_ONCE + 5)])
    assert (told["new_incidents"], len(told["incidents"])) == (TOLD_AT_ONCE + 5, TOLD_AT_ONCE)
