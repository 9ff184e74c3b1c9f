"""A Kafka cluster, the client options for it, and the meaning of the client's errors. Source and sink share it.

Options of librdkafka go through as they are, with or without ``kafka.`` in front. Those that would take away what the
connector promises are refused, each with the option to use instead. Secrets among them are shown nowhere.

librdkafka does not raise what goes wrong on its lines to brokers: a wrong password makes every call time out, and the
reason comes by a callback, which is called while the client is polled. :class:`BrokerErrors` takes it.

    error                                   is_transient
    broker away, no leader, time-out        yes: tried again while there is patience
    password, certificate, permission       no
    no such topic, a record too large       no
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from moorline.errors import InvalidArgument, StorageError

ClientOption = str | int | float | bool

#: Options that the connectors set themselves, and what to use instead.
_OWN = {
    "bootstrap.servers": "Give the brokers as `brokers`.",
    "metadata.broker.list": "Give the brokers as `brokers`.",
    "group.id": "Offsets are kept in checkpoints; group= names a group that shows them to others.",
    "group.instance.id": "Partitions are assigned by Moorline and not by a group.",
    "group.protocol": "Partitions are assigned by Moorline and not by a group.",
    "group.remote.assignor": "Partitions are assigned by Moorline and not by a group.",
    "partition.assignment.strategy": "Partitions are assigned by Moorline and not by a group.",
    "enable.auto.commit": "Offsets are kept in checkpoints; group= names a group that shows them to others.",
    "auto.commit.enable": "Offsets are kept in checkpoints; group= names a group that shows them to others.",
    "auto.commit.interval.ms": "Offsets are kept in checkpoints; group= names a group that shows them to others.",
    "enable.auto.offset.store": "Offsets are kept in checkpoints; group= names a group that shows them to others.",
    "offset.store.method": "Offsets are kept in checkpoints; group= names a group that shows them to others.",
    "auto.offset.reset": "Say start= for the first start, and on_lost_offsets= for offsets that are gone.",
    "isolation.level": "Say isolation=.",
    "enable.partition.eof": "The source depends on it.",
    "transactional.id": "The sink names its transactions itself; after a restart it must find them again.",
    "enable.idempotence": "The sink depends on it.",
    "enable.gapless.guarantee": "The sink depends on it.",
    "acks": "The sink waits for all replicas that are in sync.",
    "request.required.acks": "The sink waits for all replicas that are in sync.",
    "error_cb": "Errors of the client are reported by the job.",
    "stats_cb": "It is a function, and options are plain values.",
    "oauth_cb": 'It is a function, and options are plain values: use "sasl.oauthbearer.method": "oidc".',
}
_SECRET_WORDS = ("password", "secret", "passphrase", "token", "pem", "jaas", "sasl.oauthbearer.config")
#: Secrets that are shorter are no secrets, and would be found in every other word.
_SHORTEST_SECRET = 4

#: Errors that stay until someone changes something. All others are tried again, for as long as there is patience.
_LASTING = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._INVALID_ARG,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError._FATAL,
        KafkaError._FENCED,
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.SECURITY_DISABLED,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.POLICY_VIOLATION,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)


def kafka_error(error: Exception) -> KafkaError | None:
    """The error of the client in an exception of it, if that is what it is."""
    inner = error.args[0] if isinstance(error, KafkaException) and error.args else None
    return inner if isinstance(inner, KafkaError) else None


def is_lasting(error: KafkaError) -> bool:
    """Will it be the same however often it is tried?"""
    if error.code() == KafkaError._SSL:
        # A broker that goes down in the middle of a handshake is an error of TLS too.
        return "certificate" in error.str()
    return bool(error.fatal()) or error.code() in _LASTING


def is_transient(error: Exception) -> bool:
    """May the same call succeed later?

    >>> is_transient(KafkaException(KafkaError(KafkaError._TRANSPORT))), is_transient(ValueError("no"))
    (True, False)
    """
    found = kafka_error(error)
    return found is not None and not is_lasting(found)


@dataclass(frozen=True)
class KafkaCluster:
    """The brokers of a cluster, and the options of clients for it.

    >>> cluster = KafkaCluster.of("k1:9092", {"kafka.sasl.password": "hush-hush"})
    >>> cluster
    KafkaCluster(brokers='k1:9092')
    >>> cluster.hidden("no hush-hush here")
    'no *** here'
    """

    brokers: str
    options: Mapping[str, ClientOption] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        brokers: str | Sequence[str],
        options: Mapping[str, ClientOption] | None,
        also: Mapping[str, str] | None = None,
    ) -> KafkaCluster:
        """Check what a user has given. ``also``: further options that are the connector's own, with advice."""
        named = [brokers] if isinstance(brokers, str) else list(brokers)
        addresses = [a.strip() for text in named if isinstance(text, str) for a in text.split(",") if a.strip()]
        if not addresses or len([text for text in named if isinstance(text, str)]) < len(named):
            raise InvalidArgument("brokers", brokers, 'Give "host:port" of one broker or of several.')
        return cls(",".join(addresses), _checked(options or {}, {**_OWN, **(also or {})}))

    def settings(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration of a client: the options of the user, then those of the connector."""
        # Its own log would repeat each second what errors say once; whoever debugs it wants to see it.
        quiet = {} if "debug" in self.options else {"log_level": 2}
        return {"bootstrap.servers": self.brokers, **quiet, **self.options, **own}

    def hidden(self, text: str) -> str:
        """A text of the client without the secrets that may be in it."""
        for name, value in self.options.items():
            if is_secret(name) and len(str(value)) >= _SHORTEST_SECRET:
                text = text.replace(str(value), "***")
        return text

    def failure(self, operation: str, error: Exception | KafkaError) -> StorageError:
        """The error that is raised, in the words of the client or of the broker: ``operation`` is what failed."""
        found = error if isinstance(error, KafkaError) else kafka_error(error)
        if found is None:
            return StorageError(
                self.address, operation, self.hidden(f"{type(error).__name__}: {error}"), can_pass=False
            )
        cause = self.hidden(f"{found.name()}: {found.str()}")
        return StorageError(self.address, operation, cause, can_pass=not is_lasting(found))

    def wrong_options(self, error: Exception) -> InvalidArgument:
        """The error for options that no client can be made with, as the client says."""
        found = kafka_error(error)
        cause = self.hidden(found.str() if found is not None else str(error))
        return InvalidArgument("options", sorted(self.options), f"librdkafka refuses them: {cause}.")

    @property
    def address(self) -> str:
        """The cluster in messages."""
        return f"Kafka at {self.brokers}"

    def metadata(self, seconds: float, topic: str | None = None) -> Any:
        """Topics and brokers, by a client of its own. A password that is refused ends it at once, and with a reason.

        Raises StorageError, or InvalidArgument for options that no client can be made with.
        """
        errors = BrokerErrors()
        try:
            admin = AdminClient(self.settings({"error_cb": errors.add}))
        except (KafkaException, ValueError, TypeError) as error:
            raise self.wrong_options(error) from None
        deadline = time.monotonic() + seconds
        while True:
            try:
                return admin.list_topics(topic, timeout=0.5) if topic else admin.list_topics(timeout=0.5)
            except KafkaException as error:
                admin.poll(0)
                cause = errors.lasting or errors.latest or kafka_error(error)
                if errors.lasting or not is_transient(error) or time.monotonic() > deadline:
                    raise self.failure("reach", cause or error) from None


class BrokerErrors:
    """Errors that a client reports beside its calls: give :meth:`add` to it as ``error_cb``."""

    def __init__(self) -> None:
        #: The last one that says something. That all brokers are down follows from those that say why.
        self.latest: KafkaError | None = None
        #: The first one that will not pass.
        self.lasting: KafkaError | None = None

    def add(self, error: KafkaError) -> None:
        if self.latest is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.latest = error
        if self.lasting is None and is_lasting(error):
            self.lasting = error

    def clear(self) -> None:
        """Forget errors that are over."""
        self.latest = None


def is_secret(option: str) -> bool:
    """Must the value of a client option not be shown?

    >>> [name for name in ("sasl.password", "ssl.key.pem", "sasl.username") if is_secret(name)]
    ['sasl.password', 'ssl.key.pem']
    """
    return any(word in option for word in _SECRET_WORDS)


def _checked(options: Mapping[str, Any], own: Mapping[str, str]) -> dict[str, ClientOption]:
    checked: dict[str, ClientOption] = {}
    for given, value in options.items():
        name = given.removeprefix("kafka.") if isinstance(given, str) else given
        if not isinstance(name, str) or not name:
            raise InvalidArgument("options", given, "Names of librdkafka's options are texts.")
        if name in own:
            raise InvalidArgument("options", given, own[name])
        if name in checked:
            raise InvalidArgument("options", given, f"{name!r} is given twice, with and without 'kafka.'.")
        if "_" in name and name != "log_level":
            raise InvalidArgument("options", given, f"librdkafka writes it {name.replace('_', '.')!r}.")
        if not isinstance(value, (str, int, float)):
            shown = "***" if is_secret(name) else f"{value!r:.80}"
            raise InvalidArgument("options", f"{given}: {shown}", "Values are texts, numbers, or True and False.")
        checked[name] = value
    return checked
