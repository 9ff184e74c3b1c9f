"""Sources, sinks and outside stores that come with Moorline.

``mo.connectors.read_files`` and ``mo.read_files`` are the same; the short names stay.

>>> import moorline as mo
>>> mo.connectors.from_items is mo.from_items
True
"""

from moorline.connectors.broken import BrokenRecord
from moorline.connectors.collect import collect
from moorline.connectors.delta.read import read_delta
from moorline.connectors.delta.write import write_delta
from moorline.connectors.files.sink import write_files
from moorline.connectors.files.source import read_files
from moorline.connectors.formats.avro import avro_format
from moorline.connectors.formats.base import Format
from moorline.connectors.formats.json import json_format
from moorline.connectors.formats.protobuf import protobuf_format
from moorline.connectors.formats.registry import SchemaRegistry, schema_registry
from moorline.connectors.generator import generate
from moorline.connectors.hybrid.parts import SourceEnd
from moorline.connectors.hybrid.source import hybrid
from moorline.connectors.iceberg.write import write_iceberg
from moorline.connectors.items import from_items
from moorline.connectors.kafka.read import read_kafka
from moorline.connectors.kafka.record import KafkaRecord
from moorline.connectors.kafka.write import write_kafka
from moorline.connectors.memory_state import memory_state
from moorline.connectors.nats.read import read_nats
from moorline.connectors.nats.records import NatsMessage
from moorline.connectors.nats.write import write_nats
from moorline.connectors.postgres.read import read_postgres, read_postgres_changes
from moorline.connectors.postgres.state import postgres_state
from moorline.connectors.postgres.write import write_postgres
from moorline.connectors.printing import discard
from moorline.connectors.printing import print_ as print
from moorline.connectors.redis.read import read_redis_stream
from moorline.connectors.redis.records import RedisEntry
from moorline.connectors.redis.state import redis_state
from moorline.connectors.redis.write import write_redis_stream
from moorline.connectors.row_changes import UNCHANGED, Change, Delete
from moorline.connectors.sql.write import write_sql

__all__ = [
    "UNCHANGED",
    "BrokenRecord",
    "Change",
    "Delete",
    "Format",
    "KafkaRecord",
    "NatsMessage",
    "RedisEntry",
    "SchemaRegistry",
    "SourceEnd",
    "avro_format",
    "collect",
    "discard",
    "from_items",
    "generate",
    "hybrid",
    "json_format",
    "memory_state",
    "postgres_state",
    "print",
    "protobuf_format",
    "read_delta",
    "read_files",
    "read_kafka",
    "read_nats",
    "read_postgres",
    "read_postgres_changes",
    "read_redis_stream",
    "redis_state",
    "schema_registry",
    "write_delta",
    "write_files",
    "write_iceberg",
    "write_kafka",
    "write_nats",
    "write_postgres",
    "write_redis_stream",
    "write_sql",
]
