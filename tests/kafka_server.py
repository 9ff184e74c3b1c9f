"""A real Kafka broker for tests: one process that is broker and controller, in a folder and on ports of its own.

Its jars come from Maven Central, once per machine (``server_files.py``). A machine without Maven or Java skips the
tests that need a broker and says so; ``.ci/run`` installs both. Topics are cheap and brokers are not: there is one
broker, and each test makes topics of its own.

    PLAINTEXT    for most tests
    SASL_SSL     with a password, and a certificate that the server has signed itself
"""

from __future__ import annotations

import base64
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
import server_files
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from real_servers import Server, free_port
from waiting import PATIENCE, eventually

T = TypeVar("T")

#: The word that must never turn up in a log, and whose word it is.
USER, PASSWORD = "moorline", "s3cret-kafka-word"
#: What an answer says while the only broker has been too slow to say that it is alive, and is fenced for a moment.
_PASSING = frozenset(
    {
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
    }
)
#: On two cores a compiler that optimises for hours to come costs more than it brings.
_JVM = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]


class KafkaServer(Server):
    """The broker, and what tests do to it beside the connector under test."""

    start_seconds = 240.0

    def __init__(self, folder: Path) -> None:
        port, secure, controller = free_port(), free_port(), free_port()
        self.brokers, self.secure_brokers = f"127.0.0.1:{port}", f"127.0.0.1:{secure}"
        self._jars = f"{_jars()}/*"
        certificate, store = _certificate(folder)
        #: Client options for :attr:`secure_brokers`.
        self.secure_options: dict[str, str] = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(certificate),
        }
        login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.brokers},SASL_SSL://{self.secure_brokers},CONTROLLER://127.0.0.1:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{login} user_{USER}="{PASSWORD}";',
            # Everyone may do everything, unless a test forbids it.
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": store,
            "ssl.keystore.password": PASSWORD,
            "log.dirs": folder / "data",
            "auto.create.topics.enable": "false",
            # Messages are as old as their timestamps say, and tests choose those.
            "log.retention.ms": -1,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 2,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 2,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            # By default this is half of the memory that the broker gets here.
            "log.cleaner.dedupe.buffer.size": 4 << 20,
            "num.network.threads": 2,
            "num.io.threads": 2,
            # A broker that was killed is there again in the eyes of the controller as soon as it is.
            "broker.heartbeat.interval.ms": 200,
            # So long a start after a kill takes, too; and a busy machine keeps it from its heartbeats for seconds.
            "broker.session.timeout.ms": 6000,
            "initial.broker.registration.timeout.ms": 60000,
        }
        properties = folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._java("kafka.tools.StorageTool", "format", "--standalone", "-t", _cluster_id(), "-c", str(properties))
        command = ["java", *_JVM, "-cp", self._jars, "kafka.Kafka", str(properties)]
        self._admin: AdminClient | None = None
        #: Made once: a new one takes half a second until the broker has given it an id.
        self._producer: Producer | None = None
        super().__init__(command, port, folder, self._answers)

    def kill(self) -> None:
        """End it with kill -9. :meth:`start` starts it again, on its data and its port."""
        self.stop(signal.SIGKILL)

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(
                {"bootstrap.servers": self.brokers, "log_level": 0, "reconnect.backoff.max.ms": 200}
            )
        return self._admin

    def new_topic(self, partitions: int = 1, name: str = "", exact: str = "", **settings: Any) -> str:
        """A topic with a name of its own, which begins with ``name``, or with the name ``exact``.

        ``settings``: of the topic, ``_`` for ``.``.
        """
        topic = exact or f"{name or 'topic'}-{uuid.uuid4().hex[:12]}"
        config = {setting.replace("_", "."): str(value) for setting, value in settings.items()}
        new = NewTopic(topic, partitions, 1, config=config)
        self._done(lambda: self.admin.create_topics([new]), KafkaError.TOPIC_ALREADY_EXISTS)
        self._has_leaders(topic, partitions)
        return topic

    def delete_topic(self, topic: str) -> None:
        self._done(lambda: self.admin.delete_topics([topic], operation_timeout=30), KafkaError.UNKNOWN_TOPIC_OR_PART)

    def recreate_topic(self, topic: str, partitions: int) -> None:
        """Delete a topic, and create one of the same name as soon as the broker lets us."""
        self.delete_topic(topic)
        self._producer = None  # it counts its messages, and the new topic knows of none
        known = lambda: topic in self._metadata().topics  # noqa: E731
        eventually(lambda: not known(), f"the topic {topic} is gone")
        self.new_topic(partitions, exact=topic)

    def grow_topic(self, topic: str, partitions: int) -> None:
        """Have a topic this many partitions, which are more than it has."""
        more = [NewPartitions(topic, partitions)]
        self._done(lambda: self.admin.create_partitions(more), KafkaError.INVALID_PARTITIONS)
        self._has_leaders(topic, partitions)
        self._producer = None  # it asks for the partitions of a topic every few minutes

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records below an offset, as retention does."""
        self._done(lambda: self.admin.delete_records([TopicPartition(topic, partition, before)]))

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | str | None],
        partition: int = 0,
        *,
        key: bytes | str | None = None,
        timestamp: int = 0,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Write to one partition, and return when all is there."""
        if self._producer is None:
            self._producer = self.producer()
        for value in values:
            while True:
                try:
                    self._producer.produce(
                        topic, value, partition=partition, key=key, timestamp=timestamp, headers=list(headers)
                    )
                    break
                except BufferError:  # its queue is full
                    self._producer.poll(0.1)
            self._producer.poll(0)
        assert self._producer.flush(60) == 0, "the broker did not take what was produced"

    def producer(self, **options: Any) -> Producer:
        """A producer; options with ``_`` for ``.``, as in ``transactional_id="a"``."""
        named = {name.replace("_", "."): value for name, value in options.items()}
        # Idempotent: on a busy machine a request that timed out is repeated, and must neither double nor reorder.
        own = {"bootstrap.servers": self.brokers, "linger.ms": 5, "log_level": 0, "enable.idempotence": True}
        return Producer({**own, **named})

    def read_all(self, topic: str, isolation: str = "read_committed") -> list[Message]:
        """All messages of a topic that are there now, partition by partition."""
        settings = {
            "bootstrap.servers": self.brokers,
            "group.id": "moorline-tests",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "log_level": 0,
        }
        consumer = Consumer(settings)
        try:
            partitions = sorted(self._metadata().topics[topic].partitions)
            consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
            found: list[Message] = []
            ends: set[int | None] = set()
            while len(ends) < len(partitions):
                for message in consumer.consume(10_000, 0.2):
                    error = message.error()
                    if error is None:
                        found.append(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        ends.add(message.partition())
                    elif error.fatal() or not error.retriable():
                        raise KafkaException(error)
        finally:
            consumer.close()
        return sorted(found, key=lambda message: (message.partition() or 0, message.offset() or 0))

    def values(self, topic: str) -> list[bytes | None]:
        """The values of all committed messages of a topic, partition by partition."""
        return [message.value() for message in self.read_all(topic)]

    def forbid(self, kind: ResourceType, name: str) -> None:
        """Forbid a topic or a group to the user of the secure port."""
        acl = (f"User:{USER}", "*", AclOperation.ALL, AclPermissionType.DENY)
        rule = AclBinding(kind, name, ResourcePatternType.LITERAL, *acl)
        self._done(lambda: self.admin.create_acls([rule]))

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        """The offsets that were committed to a group, by partition."""
        consumer = Consumer({"bootstrap.servers": self.brokers, "group.id": group, "log_level": 0})
        try:
            places = [TopicPartition(topic, partition) for partition in self._metadata().topics[topic].partitions]
            committed = _in_the_end(lambda: consumer.committed(places, timeout=30), f"the offsets of {group}")
            return {place.partition: place.offset for place in committed if place.offset >= 0}
        finally:
            consumer.close()

    def _answers(self) -> None:
        """Both ports answer, and the broker is one in the eyes of the controller."""
        socket.create_connection(("127.0.0.1", self.port), timeout=2).close()
        if not self.admin.list_topics(timeout=2).brokers:
            raise ConnectionError("it has no broker yet")
        trusting = ssl.create_default_context(cafile=self.secure_options["ssl.ca.location"])
        host, _, port = self.secure_brokers.partition(":")
        with socket.create_connection((host, int(port)), timeout=10) as line:
            trusting.wrap_socket(line, server_hostname=host).close()

    def _metadata(self) -> Any:
        """Topics and brokers, however long it takes."""
        return _in_the_end(lambda: self.admin.list_topics(timeout=30), "an answer of the broker")

    def _has_leaders(self, topic: str, partitions: int) -> None:
        """Wait until a topic can be written to and read."""

        def has_leaders() -> bool:
            found = self._metadata().topics.get(topic)
            return found is not None and [p.leader for p in found.partitions.values()] == [1] * partitions

        eventually(has_leaders, f"{partitions} partitions of {topic}")

    def _java(self, *arguments: str) -> None:
        done = subprocess.run(
            ["java", *_JVM, "-cp", self._jars, *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.fail(f"{' '.join(arguments)}: {done.stdout}{done.stderr}")

    def _done(self, ask: Callable[[], Mapping[Any, Any]], done_before: int | None = None) -> None:
        """Ask for a change. ``done_before``: what one is told who asks again after it was done without a word."""
        asked = 0

        def obey() -> bool:
            nonlocal asked
            asked += 1
            try:
                for future in ask().values():
                    future.result(PATIENCE)
            except KafkaException as error:
                if asked == 1 or error.args[0].code() != done_before:
                    raise
            return True

        _in_the_end(obey, "the broker obeys")


def _in_the_end(ask: Callable[[], T], what: str) -> T:
    """An answer of a broker that may have no time just now."""

    def answer() -> list[T]:
        try:
            return [ask()]
        except KafkaException as error:
            if error.args[0].code() not in _PASSING:
                raise
            return []

    return eventually(answer, what)[0]


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[KafkaServer]:
    if missing := [command for command in ("java", "mvn", "keytool") if shutil.which(command) is None]:
        pytest.skip(
            f"no Kafka broker: {' and '.join(missing)} is not there (apt-get install maven default-jre-headless)"
        )
    with tempfile.TemporaryDirectory(prefix="moorline-kafka-", ignore_cleanup_errors=True) as folder:
        server = KafkaServer(Path(folder))
        yield server
        server.stop(signal.SIGTERM)


def _jars() -> Path:
    """The folder with the broker's jars, fetched if it is not there."""
    try:
        return server_files.kafka_jars()
    except server_files.NotFetched as error:
        pytest.fail(f"these tests need a Kafka broker: {error}")


def _certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for this host that the broker has signed itself, and the store with its key."""
    store, certificate = folder / "broker.p12", folder / "broker.pem"
    opened = ["-keystore", str(store), "-storetype", "PKCS12", "-storepass", PASSWORD, "-alias", "broker"]
    names = ["-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1,dns:localhost", "-ext", "bc:c"]
    commands = [
        ["keytool", "-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "3", *names, *opened],
        ["keytool", "-exportcert", "-rfc", "-file", str(certificate), *opened],
    ]
    for command in commands:
        subprocess.run(command, check=True, capture_output=True)
    return certificate, store


def _cluster_id() -> str:
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text
