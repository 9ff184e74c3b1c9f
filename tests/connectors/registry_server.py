"""A schema registry in the test's own process: real HTTP, the paths that formats use, and faults on demand."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class RegistryServer:
    """What it knows, what it wants to hear, and what it was asked."""

    def __init__(self, port: int = 0) -> None:
        #: By number: what was posted.
        self.schemas: dict[int, dict[str, Any]] = {}
        #: By subject: the numbers of its versions.
        self.subjects: dict[str, list[int]] = {}
        #: The header that every request must have; a status that every request gets instead of an answer.
        self.authorization, self.refusal = "", 0
        self.asked: list[str] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.serve(self, None)

            def do_POST(self) -> None:
                registry.serve(self, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def register(
        self, subject: str, schema: Any, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return self._add(subject, {"schema": text, "schemaType": kind, "references": references or []})["id"]

    def serve(self, request: BaseHTTPRequestHandler, body: dict[str, Any] | None) -> None:
        self.asked.append(f"{request.command} {request.path}")
        if self.refusal:
            status, answer = self.refusal, {"message": "out of order"}
        elif self.authorization and request.headers.get("Authorization") != self.authorization:
            status, answer = 401, {"message": "who are you?"}
        else:
            parts = [unquote(part) for part in urlsplit(request.path).path.strip("/").split("/")]
            status, answer = self._answer(parts, body)
        content = json.dumps(answer).encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    def _answer(self, parts: list[str], body: dict[str, Any] | None) -> tuple[int, Any]:
        match parts:
            case ["subjects"]:
                return 200, sorted(self.subjects)
            case ["schemas", "ids", number] if int(number) in self.schemas:
                return 200, self.schemas[int(number)]
            case ["schemas", "ids", _]:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case ["subjects", subject, "versions", version] if body is None:
                number = self.subjects[subject][int(version) - 1]
                return 200, {"subject": subject, "id": number, "version": int(version), **self.schemas[number]}
            case ["subjects", subject, "versions"] if body is not None:
                return 200, self._add(subject, body)
            case ["subjects", subject] if body is not None:
                for version, number in enumerate(self.subjects.get(subject, []), 1):
                    if _same(self.schemas[number], body):
                        return 200, {"subject": subject, "id": number, "version": version}
                return 404, {"error_code": 40403, "message": f"Schema not found under {subject}"}
            case _:
                return 404, {"message": f"no such path: {parts}"}

    def _add(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        number = next((n for n, known in self.schemas.items() if _same(known, body)), len(self.schemas) + 1)
        self.schemas[number] = body
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return {"id": number, "version": versions.index(number) + 1}


def _same(known: dict[str, Any], asked: dict[str, Any]) -> bool:
    """Registries compare what schemas mean: the order of options in a descriptor and spaces in JSON do not count."""
    return known.get("schemaType", "AVRO") == asked.get("schemaType", "AVRO") and _plain(known) == _plain(asked)


def _plain(schema: dict[str, Any]) -> Any:
    if schema.get("schemaType", "AVRO") == "PROTOBUF":
        return base64.b64decode(schema["schema"])
    return json.loads(schema["schema"])


@contextmanager
def registry_server(port: int = 0) -> Iterator[RegistryServer]:
    server = RegistryServer(port)
    try:
        yield server
    finally:
        server.close()
