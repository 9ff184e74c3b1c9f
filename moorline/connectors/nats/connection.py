"""Connections to NATS, requests to JetStream, and the meaning of errors. Source and sink share it.

The client library is made of coroutines, and answers the server's pings only while its loop runs. So the loop has a
thread of its own (:class:`LoopThread`), and those who may block wait for what they have asked it to do
(:class:`NatsSession`). The library's own reconnecting is switched off: after an error there is a new connection, and
the caller looks at how far it had come.

    error                                                   is_transient
    server away, time-out, no leader, no room               yes: tried again while there is patience
    password, permission, no such stream, not permitted     no
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import nats
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from moorline.connectors import retry
from moorline.connectors.nats.address import NatsAddress
from moorline.errors import MoorlineError, StorageError

T = TypeVar("T")

#: Numbers of JetStream's errors.
MESSAGE_NOT_FOUND, WRONG_LAST_SEQUENCE = 10037, 10071
#: A batch of which a message got lost, or for which there was no place: 50 of a stream can be under way at a time.
BATCH_INCOMPLETE = 10176
_LASTING_WORDS = ("authorization", "authentication", "permissions violation", "maximum payload", "certificate")
SHUTDOWN_SECONDS = 2.0


class JetStreamError(nats.errors.Error):
    """A refusal of JetStream, in its own words."""

    def __init__(self, code: int, number: int, description: str) -> None:
        super().__init__(description)
        self.code, self.number = code, number

    def __str__(self) -> str:
        return f"{self.args[0]} (JetStream error {self.number})"


#: What a call can raise that is the server's or the line's.
ERRORS = (nats.errors.Error, OSError, asyncio.TimeoutError, ValueError)


def is_transient(error: Exception) -> bool:
    """May the same call succeed later?

    >>> is_transient(nats.errors.NoServersError()), is_transient(JetStreamError(404, 10059, "stream not found"))
    (True, False)
    """
    if isinstance(error, JetStreamError):
        return error.code >= 500 or error.number == BATCH_INCOMPLETE
    if any(word in str(error).lower() for word in _LASTING_WORDS):
        return False
    return isinstance(error, (nats.errors.Error, OSError, asyncio.TimeoutError))


def words_of(address: NatsAddress, error: Exception) -> str:
    """The error in its own words, without secrets."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, nats.errors.NoRespondersError):
        text = f"{text}: JetStream is not enabled, or has no leader"
    return address.hidden(text)


def failure(address: NatsAddress, operation: str, error: Exception, what: str = "") -> StorageError:
    """The error that is raised, in the server's words. ``what``: a stream, if it is about one."""
    return StorageError(what or address.where, operation, words_of(address, error), is_transient(error))


class NatsConnection:
    """One connection, used on its loop."""

    def __init__(self, address: NatsAddress) -> None:
        self._address = address
        self._client: Client | None = None
        #: What the library has reported beside its calls: it does not say why a call failed.
        self._reported: Exception | None = None
        self.closed = asyncio.Event()

    @classmethod
    async def open(cls, address: NatsAddress) -> NatsConnection:
        """Connect to one of the servers."""
        connection = cls(address)
        try:
            connection._client = await nats.connect(
                list(address.servers),
                allow_reconnect=False,
                # One attempt for each server: the library would take two minutes.
                max_reconnect_attempts=1,
                reconnect_time_wait=0.01,
                connect_timeout=address.timeout,
                error_cb=connection._report,
                closed_cb=connection._close,
                **address.settings(),
            )
        except nats.errors.NoServersError:
            raise connection._reported or nats.errors.NoServersError() from None
        return connection

    async def _report(self, error: Exception) -> None:
        self._reported = error

    async def _close(self) -> None:
        self.closed.set()

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    @property
    def max_payload(self) -> int:
        """The largest message that the server takes, headers included."""
        return self.client.max_payload

    async def request(self, subject: str, payload: bytes, headers: dict[str, str] | None = None) -> Msg:
        """The answer to a message."""
        asked = asyncio.create_task(
            self.client.request(subject, payload, timeout=self._address.timeout, headers=headers)
        )
        closed = asyncio.create_task(self.closed.wait())
        try:
            # The library lets a request wait that will never be answered, because the line is gone.
            await asyncio.wait((asked, closed), return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise nats.errors.ConnectionClosedError
            return asked.result()
        except nats.errors.TimeoutError:
            self.raise_lasting()
            raise
        finally:
            asked.cancel()
            closed.cancel()

    def raise_lasting(self) -> None:
        """Raise what the library has reported and what will not pass: of a missing permission a call gets no answer."""
        if self._reported is not None and not is_transient(self._reported):
            raise self._reported from None

    async def api(self, subject: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
        """The answer of JetStream's API. Raises :class:`JetStreamError`."""
        payload = b"" if request is None else json.dumps(request).encode()
        answer: dict[str, Any] = json.loads((await self.request(f"$JS.API.{subject}", payload)).data)
        raise_error(answer)
        return answer

    async def stream_info(self, stream: str) -> dict[str, Any]:
        """Configuration and state of a stream."""
        return await self.api(f"STREAM.INFO.{stream}")

    async def message(self, stream: str, **which: Any) -> dict[str, Any] | None:
        """A stored message as the leader of the stream has it; None if there is none."""
        try:
            answer = await self.api(f"STREAM.MSG.GET.{stream}", which)
        except JetStreamError as error:
            if error.number == MESSAGE_NOT_FOUND:
                return None
            raise
        found: dict[str, Any] = answer["message"]
        return found

    async def close(self) -> None:
        """Hang up. A server that hangs is not waited for."""
        if self._client is not None:
            with contextlib.suppress(*ERRORS):
                await asyncio.wait_for(self._client.close(), SHUTDOWN_SECONDS)


def raise_error(answer: dict[str, Any]) -> None:
    """Raise the error in an answer of JetStream, if there is one."""
    if error := answer.get("error"):
        description = error.get("description", "no reason given")
        raise JetStreamError(error.get("code", 0), error.get("err_code", 0), description)


class LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._ending: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine; waits for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Have a coroutine run; its errors are its own affair."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def soon(self, call: Callable[[], object]) -> None:
        """Have the loop call something."""
        with contextlib.suppress(RuntimeError):  # it has stopped
            self._loop.call_soon_threadsafe(call)

    def close(self, last: Callable[[], Awaitable[None]] | None = None) -> None:
        """End all that runs on it, do one last thing, and stop. Not waited for."""

        async def end() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            give_up = self._loop.time() + SHUTDOWN_SECONDS
            while tasks and self._loop.time() < give_up:
                for task in tasks:
                    task.cancel()
                # The library takes some cancellations for errors of its own, and goes on.
                _, tasks = await asyncio.wait(tasks, timeout=0.1)
            if last is not None:
                with contextlib.suppress(*ERRORS):
                    await last()
            self._loop.call_soon(self._loop.stop)

        def begin() -> None:
            self._ending = self._loop.create_task(end())  # a loop forgets tasks that nobody has

        self.soon(begin)


class NatsSession:
    """A connection for callers that may block: kept while it works, and a new one after an error."""

    def __init__(
        self, address: NatsAddress, patience: float, outage: Callable[[str | None], None] = lambda cause: None
    ) -> None:
        self.address, self._patience = address, patience
        self._outage = lambda cause: outage(None if cause is None else address.hidden(cause))
        self._loop: LoopThread | None = None
        self._connection: NatsConnection | None = None
        self._opening = asyncio.Lock()

    def every(self, seconds: float, work: Callable[[NatsConnection], Awaitable[None]]) -> None:
        """Have something done again and again beside all else. If it cannot be done, the next time it may be."""

        async def repeat() -> None:
            while True:
                with contextlib.suppress(*ERRORS):
                    await work(await self._connected())
                await asyncio.sleep(seconds)

        self._started().begin(repeat())

    def _started(self) -> LoopThread:
        if self._loop is None:
            self._loop = LoopThread("moorline-nats")
        return self._loop

    def run(self, operation: str, work: Callable[[NatsConnection], Awaitable[T]], what: str = "") -> T:
        """The result of ``work``, which is repeated while the server is away."""
        loop = self._started()
        try:
            return retry.call(lambda: loop.call(self._once(work)), is_transient, self._patience, self._outage)
        except MoorlineError:
            raise
        except ERRORS as error:
            raise failure(self.address, operation, error, what) from None

    async def _once(self, work: Callable[[NatsConnection], Awaitable[T]]) -> T:
        try:
            return await work(await self._connected())
        except ERRORS:
            await self._hang_up()
            raise

    async def _connected(self) -> NatsConnection:
        async with self._opening:
            if self._connection is None or self._connection.closed.is_set():
                self._connection = await NatsConnection.open(self.address)
            return self._connection

    async def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def close(self) -> None:
        """Hang up and end the thread."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.close(self._hang_up)
