"""Options of Kafka clients: they go through, those that break the guarantee are refused, secrets are shown nowhere."""

from __future__ import annotations

import pickle

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from kafka_server import PASSWORD, KafkaServer

from moorline.connectors.kafka.client import BrokerErrors, KafkaCluster, is_lasting, is_transient
from moorline.connectors.kafka.topics import known_offset
from moorline.errors import InvalidArgument, StorageError


def test_options_are_taken_with_and_without_the_prefix():
    cluster = KafkaCluster.of(["a:1", "b:2,c:3"], {"kafka.fetch.min.bytes": 5, "client.id": "me"})
    settings = cluster.settings({"group.id": "g"})
    assert settings["bootstrap.servers"] == "a:1,b:2,c:3"
    assert (settings["fetch.min.bytes"], settings["client.id"], settings["group.id"]) == (5, "me", "g")


@pytest.mark.parametrize("brokers", ["", [], [""], ["a:1", 7], None, 7])
def test_brokers_that_are_none_are_refused(brokers):
    with pytest.raises((InvalidArgument, TypeError)):
        KafkaCluster.of(brokers, None)


@pytest.mark.parametrize(
    "options, advice",
    [
        ({"enable.auto.commit": True}, "kept in checkpoints"),
        ({"kafka.group.id": "g"}, "group="),
        ({"partition.assignment.strategy": "range"}, "not by a group"),
        ({"isolation.level": "read_uncommitted"}, "isolation="),
        ({"auto.offset.reset": "latest"}, "on_lost_offsets="),
        ({"transactional.id": "mine"}, "names its transactions"),
        ({"bootstrap.servers": "b:1"}, "`brokers`"),
        ({"client.id": "a", "kafka.client.id": "b"}, "given twice"),
        ({"client_id": "a"}, "'client.id'"),
        ({"client.id": None}, "Values are texts"),
        ({"oauth_cb": print}, "oidc"),
    ],
)
def test_options_that_break_something_are_refused_with_advice(options, advice):
    with pytest.raises(InvalidArgument, match=advice):
        KafkaCluster.of("a:1", options)


def test_a_secret_of_the_wrong_type_is_not_shown():
    with pytest.raises(InvalidArgument) as error:
        KafkaCluster.of("a:1", {"sasl.password": [PASSWORD]})
    assert PASSWORD not in str(error.value)


def test_secrets_are_in_no_text():
    secrets = {"sasl.password": PASSWORD, "ssl.key.pem": "-----BEGIN", "sasl.oauthbearer.client.secret": "client-word"}
    cluster = KafkaCluster.of("a:1", {**secrets, "sasl.username": "ada"})
    told = KafkaError(KafkaError._AUTHENTICATION, f"ada with {PASSWORD} and client-word")
    texts = [repr(cluster), str(cluster.failure("reach", told)), str(cluster.failure("reach", ValueError(PASSWORD)))]
    texts.append(str(cluster.wrong_options(KafkaException(told))))
    assert "ada with *** and ***" in texts[1]
    assert [word for word in secrets.values() for text in texts if word in text] == []
    assert pickle.loads(pickle.dumps(cluster)) == cluster


def test_errors_that_pass_are_told_from_those_that_do_not():
    passing = [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE]
    passing += [KafkaError.LEADER_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS]
    lasting = [KafkaError._AUTHENTICATION, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.MSG_SIZE_TOO_LARGE]
    assert [is_transient(KafkaException(KafkaError(code))) for code in passing] == [True] * len(passing)
    assert [is_lasting(KafkaError(code)) for code in lasting] == [True] * len(lasting)
    assert is_lasting(KafkaError(KafkaError._SSL, "certificate verify failed"))
    assert not is_lasting(KafkaError(KafkaError._SSL, "Disconnected while handshaking"))
    assert not is_transient(OSError("no error of the client"))


def test_a_number_that_stands_for_no_offset_is_asked_for_again():
    """The client gives it without an error while a partition has no leader."""
    assert [known_offset(offset) for offset in (0, 7, -1)] == [0, 7, -1]
    with pytest.raises(KafkaException, match="no broker has told the offset") as error:
        known_offset(OFFSET_INVALID)
    assert is_transient(error.value)


def test_that_all_brokers_are_down_does_not_hide_why():
    errors = BrokerErrors()
    errors.add(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    errors.add(KafkaError(KafkaError._TRANSPORT, "Connection refused"))
    errors.add(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert errors.latest is not None and errors.latest.str() == "Connection refused"
    errors.clear()
    assert errors.latest is None and errors.lasting is None


def test_topics_are_found_through_tls_and_with_a_password(kafka_server: KafkaServer):
    topic = kafka_server.new_topic(partitions=3)
    cluster = KafkaCluster.of(kafka_server.secure_brokers, kafka_server.secure_options)
    assert len(cluster.metadata(60).topics[topic].partitions) == 3


def test_a_wrong_password_is_refused_at_once_in_the_words_of_the_broker(kafka_server: KafkaServer):
    options = {**kafka_server.secure_options, "sasl.password": "wrong-" + PASSWORD}
    with pytest.raises(StorageError, match="Invalid username or password") as error:
        KafkaCluster.of(kafka_server.secure_brokers, options).metadata(seconds=600)
    assert error.value.can_pass is False and PASSWORD not in str(error.value)


def test_a_certificate_that_is_not_trusted_is_refused_at_once(kafka_server: KafkaServer):
    options = {n: v for n, v in kafka_server.secure_options.items() if n != "ssl.ca.location"}
    with pytest.raises(StorageError, match="certificate verify failed") as error:
        KafkaCluster.of(kafka_server.secure_brokers, options).metadata(seconds=600)
    assert error.value.can_pass is False


def test_a_broker_that_is_not_there_is_an_error_that_can_pass():
    with pytest.raises(StorageError, match=r"Kafka at 127\.0\.0\.1:9: .*Connection refused") as error:
        KafkaCluster.of("127.0.0.1:9", None).metadata(seconds=0.5)
    assert error.value.can_pass is True


@pytest.mark.parametrize("options", [{"no.such.option": 1}, {"socket.timeout.ms": "soon"}, {"security.protocol": "x"}])
def test_options_that_the_client_does_not_know_are_refused_in_its_words(options):
    with pytest.raises(InvalidArgument, match=next(iter(options))):
        KafkaCluster.of("127.0.0.1:9", options).metadata(seconds=0)
