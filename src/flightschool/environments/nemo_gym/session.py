"""One row of NeMo Gym at its resources server: seed a session, call tools, verify.

The server decides reward and mask: ``mask_sample`` is an infrastructure failure here, whatever number stands beside
it. Tool calls and the final message are handed to ``/verify`` as a Responses object, as NeMo Gym's own agents do.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

import msgspec

from flightschool.environments.foreign.content import ForeignContent
from flightschool.environments.foreign.world import LostSessionError, Observed
from flightschool.errors import InfrastructureError, InputError
from flightschool.records import Json, Task, ToolCall

__all__ = ["FINISH", "NemoGymSession", "connect_nemo_gym"]

FINISH = "final_answer"
"""Tool by which an attempt ends with its last message; the row is verified then."""
_OK = http.client.OK
_CLOSE_S = 5.0


class NemoGymSession:
    """Implements ``ForeignSession``.

    Args:
        url: the resources server.
        row: the row of its data file.
        timeout_s: longest time for an answer.
    """

    def __init__(self, url: str, row: Mapping[str, Json], timeout_s: float = 120.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"not a URL: {url!r}", where="SOURCE", expected="http://HOST:PORT", mend="correct it")
        self._parts = parts
        self._row = dict(row)
        self._timeout_s = timeout_s
        self._cookies: dict[str, str] = {}
        self._output: list[Json] = []

    def reset(self) -> Observed:
        """Seed the session."""
        status, body = self._post("seed_session", self._row)
        if status != _OK:
            raise self._lost(f"/seed_session: HTTP {status} {str(body)[:200]}")
        return Observed(value=None)

    def act(self, call: ToolCall) -> Observed:
        """One tool call, or the verification."""
        if call.name == FINISH:
            return self._verify(str(call.arguments.get("answer", "")))
        status, body = self._post(quote(call.name, safe=""), call.arguments)
        if status >= http.client.INTERNAL_SERVER_ERROR:
            raise self._lost(f"/{call.name}: HTTP {status} {str(body)[:200]}")
        told = msgspec.json.encode(body).decode()
        self._output += [
            {
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
                "arguments": msgspec.json.encode(call.arguments).decode(),
            },
            {"type": "function_call_output", "call_id": call.id, "output": told},
        ]
        failed = status != _OK or (isinstance(body, dict) and "error" in body)
        return Observed(value=body if status == _OK else {"error": body}, is_error=failed)

    def close(self) -> None:
        """End the session over there; never raises."""
        if self._cookies:
            self._timeout_s = min(self._timeout_s, _CLOSE_S)
            try:
                self._post("close_session", {})
            except InfrastructureError:
                return  # it will be forgotten over there

    def _verify(self, answer: str) -> Observed:
        part = {"type": "output_text", "text": answer, "annotations": []}
        message = {"id": "msg", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
        response = {
            "id": "resp",
            "object": "response",
            "created_at": 0,
            "model": "policy",
            "output": [*self._output, message],
            "parallel_tool_calls": False,
            "tool_choice": "auto",
            "tools": self._row["responses_create_params"].get("tools", []),
        }
        status, body = self._post("verify", {**self._row, "response": response})
        if status != _OK or not isinstance(body, dict):
            raise self._lost(f"/verify: HTTP {status} {str(body)[:200]}")
        reward = body.get("reward")
        if body.get("mask_sample") is True or isinstance(reward, bool) or not isinstance(reward, int | float):
            raise InfrastructureError(
                f"the row is not judged: {body.get('failure_kind')}: {body.get('failure_reason')}",
                where=self._parts.geturl(),
                expected="a reward that is not masked",
                mend="see the resources server's log",
            )
        return Observed(value={"accepted": True}, reward=float(reward), done=True)

    def _post(self, path: str, body: Json) -> tuple[int, Json]:
        parts = self._parts
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(str(parts.hostname), parts.port, timeout=self._timeout_s)
        headers = {"Content-Type": "application/json"}
        if self._cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        try:
            connection.request("POST", f"{parts.path.rstrip('/')}/{path}", msgspec.json.encode(body), headers)
            answer = connection.getresponse()
            data = answer.read()
            for cookie in answer.headers.get_all("Set-Cookie") or ():
                name, _, value = cookie.split(";")[0].partition("=")
                self._cookies[name.strip()] = value.strip()
            return answer.status, msgspec.json.decode(data or b"null")
        except (OSError, http.client.HTTPException, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._lost(f"/{path}: {type(error).__name__}: {error}") from error
        finally:
            connection.close()

    def _lost(self, what: str) -> LostSessionError:
        return LostSessionError(
            f"the resources server is lost: {what}",
            where=self._parts.geturl(),
            expected="an answer",
            mend="see that it runs",
        )


def connect_nemo_gym(content: ForeignContent, task: Task) -> NemoGymSession:
    """Open a row of an imported environment."""
    return NemoGymSession(content.address, content.starts[task.id].start)
