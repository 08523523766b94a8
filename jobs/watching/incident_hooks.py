"""Tells people of incidents that are new, or revised or withdrawn: by a command of theirs, and a webhook.

What goes wrong with it is a warning.

Neither the command nor the URL is ever printed or logged, as both may hold secrets; nor is what the receiver answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from datetime import datetime
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

TOLD_AT_ONCE: Final = 1000  # incidents in one message, the worst
COMMAND_S: Final = 60.0
REQUEST_S: Final = 10.0
PAUSES_S: Final = (1.0, 4.0)  # before the second and the third attempt
_TRY_AGAIN: Final = frozenset({408, 425, 429, *range(500, 600)})


def message(
    about: Mapping[str, str],
    incidents: Sequence[Mapping[str, Any]],
    revised: Sequence[Mapping[str, Any]] = (),
    withdrawn: Sequence[Mapping[str, Any]] = (),
    not_listed: int = 0,
) -> dict[str, Any]:
    """Return what is told: whose run it was, how many incidents are new, and these, worst first.

    And which incidents of earlier runs say something else now, or were withdrawn; `not_listed`: how many more did that
    nobody wants to be told of.
    """
    return {
        **about,
        "new_incidents": len(incidents),
        "incidents": [*incidents[:TOLD_AT_ONCE]],
        "revised": [*revised[:TOLD_AT_ONCE]],
        "withdrawn": [*withdrawn[:TOLD_AT_ONCE]],
        "not_listed": not_listed,
    }


def _body(told: Mapping[str, Any]) -> bytes:
    return json.dumps(told, default=datetime.isoformat).encode()


def run_command(command: str, told: Mapping[str, Any]) -> str | None:
    """Give the message to a shell command on its standard input; return a warning if it failed.

    Its output is no part of ours: standard output may have to be one JSON document.
    """
    environment = {
        **os.environ,
        "TIDEMARK_RUN_ID": str(told["run_id"]),
        "TIDEMARK_RECORDING_ID": str(told["recording_id"]),
        "TIDEMARK_WAREHOUSE": str(told["warehouse"]),
        "TIDEMARK_NEW_INCIDENTS": str(told["new_incidents"]),
    }
    try:
        done = subprocess.run(  # noqa: S603 - the user's own command
            ["/bin/sh", "-c", command],
            input=_body(told),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=COMMAND_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the command of --on-incident did not end within {COMMAND_S:.0f} seconds, and was stopped"
    except OSError as error:
        return f"the command of --on-incident could not be started: {error.strerror}"
    if done.returncode:
        return f"the command of --on-incident ended with {done.returncode}"
    return None


def post(url: str, told: Mapping[str, Any], sleep: Callable[[float], None] = time.sleep) -> str | None:
    """Send the message to a webhook, at most three times; return a warning if none arrived."""
    opener = urllib.request.build_opener(_NoRedirect)
    body = _body(told)
    said = ""
    for pause in (0.0, *PAUSES_S):
        if pause:
            sleep(pause)
        try:
            request = urllib.request.Request(  # noqa: S310 - values.url lets only http and https pass
                url, body, {"Content-Type": "application/json", "User-Agent": "tidemark"}, method="POST"
            )
            with opener.open(request, timeout=REQUEST_S):
                return None
        except urllib.error.HTTPError as error:
            said = f"it answered {error.code}"
            if error.code not in _TRY_AGAIN:
                return f"the webhook took no notice of the incidents: {said}"
        except (OSError, HTTPException, ValueError) as error:  # its words could hold the URL
            reason = getattr(error, "reason", error)
            said = getattr(reason, "strerror", None) or type(reason).__name__
    return f"the webhook took no notice of the incidents, asked {len(PAUSES_S) + 1} times: {said}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Does not follow a redirect: the message would be sent as a GET, without its body."""

    def redirect_request(self, *_: object) -> None:
        """Take it as an answer that is no success."""
