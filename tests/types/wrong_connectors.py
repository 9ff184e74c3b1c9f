"""Mistakes in the options of sources and sinks. Beside each: mypy's code and pyright's rule."""

from __future__ import annotations

import moorline as mo

FILES, BROKERS, DATABASE = "/data/orders", "broker:9092", "postgresql://shop"

mo.read_files(FILES, format="csvv")  # error: call-overload | reportArgumentType
mo.read_files(FILES, format="text").nonsense()  # error: attr-defined | reportAttributeAccessIssue
mo.write_files(FILES, format="parqet")  # error: arg-type | reportArgumentType
mo.write_files(FILES, compression="gz")  # error: arg-type | reportArgumentType
mo.write_files(FILES, partition_by=3)  # error: arg-type | reportArgumentType
mo.read_delta(FILES, start="frist")  # error: arg-type | reportArgumentType
mo.read_delta(FILES, folow=True)  # error: call-arg | reportCallIssue
mo.write_delta(FILES, partition_by=3)  # error: arg-type | reportArgumentType
mo.write_delta(FILES, shema=None)  # error: call-arg | reportCallIssue
mo.write_iceberg("shop.orders", catalogue="lake")  # error: call-arg | reportCallIssue
mo.write_iceberg(3)  # error: arg-type | reportArgumentType
mo.read_kafka(BROKERS, "orders", isolation="committed")  # error: call-overload | reportArgumentType
mo.read_kafka(BROKERS, "orders", on_error="skp")  # error: call-overload | reportArgumentType
mo.read_kafka(BROKERS, "orders", interval=[1])  # error: call-overload | reportArgumentType
mo.write_kafka(BROKERS)  # error: call-arg | reportCallIssue
mo.write_kafka(BROKERS, "totals", guarantee="exactly_once")  # error: arg-type | reportArgumentType
mo.write_kafka(BROKERS, "totals", keyy=lambda order: order[0])  # error: call-arg | reportCallIssue
mo.write_kafka(BROKERS, "totals", options={"acks": []})  # error: dict-item | reportArgumentType
mo.json_format(regstry=None)  # error: call-overload | reportCallIssue
mo.schema_registry("http://registry:8081", user="ada")  # error: call-arg | reportCallIssue
mo.read_postgres(DATABASE, tabel="orders")  # error: call-arg | reportCallIssue
mo.read_postgres(DATABASE, "orders", splits="four")  # error: arg-type | reportArgumentType
mo.read_postgres_changes(DATABASE, "orders")  # error: call-arg | reportCallIssue
mo.read_postgres_changes(DATABASE, "orders", slot="s", on_schema_change="skip")  # error: arg-type | reportArgumentType
mo.write_postgres(DATABASE, "orders", mode="insert")  # error: arg-type | reportArgumentType
mo.write_postgres(DATABASE, "orders", kee="id")  # error: call-arg | reportCallIssue
mo.write_sql("sqlite://", "orders")  # error: call-arg | reportCallIssue
mo.write_sql("sqlite://", "orders", key="id", on_roll_back="ignore")  # error: arg-type | reportArgumentType
mo.read_nats("nats:4222", "ORDERS", on_lost="ignore")  # error: call-overload | reportArgumentType
mo.write_nats("nats:4222", 3)  # error: arg-type | reportArgumentType
mo.write_nats("nats:4222", "orders", exactly_onec=True)  # error: call-arg | reportCallIssue
mo.read_redis_stream("redis://shop", "orders", on_lost="ignore")  # error: call-overload | reportArgumentType
mo.write_redis_stream("redis://shop", "orders", maxlen="many")  # error: arg-type | reportArgumentType
mo.hybrid(mo.from_items([1]))  # error: call-arg | reportCallIssue
mo.hybrid(mo.from_items([1]), 3)  # error: arg-type | reportArgumentType
mo.read_spark_source("orders", folow=True)  # error: call-arg | reportCallIssue
mo.generate(lambda number: number.nonsense())  # error: attr-defined | reportAttributeAccessIssue
mo.postgres_state(DATABASE, table=3)  # error: arg-type | reportArgumentType
mo.redis_state("redis://shop", prefx="orders")  # error: call-arg | reportCallIssue
mo.Checkpoints("file:///tmp", intervall="10s")  # error: call-arg | reportCallIssue
mo.Checkpoints("file:///tmp", mode="unalined")  # error: arg-type | reportArgumentType
mo.RocksDb(budgt=3)  # error: call-arg | reportCallIssue
mo.Autoscale(least="two")  # error: call-arg | reportCallIssue
