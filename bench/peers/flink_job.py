"""A job of Flink's SQL in its local cluster, run by a Python that has Flink. Prints one JSON object last.

What to do is the first argument, as JSON:

    settings   of the cluster, by their names
    jars       URLs of jars that the job needs
    tables     statements that declare tables
    query      a SELECT, whose rows go to where ``what`` says

    what: "collect"    {"rows": [...]}: the rows that there are in the end, of a query that ends
    what: "drain"      {"seconds": ...}: from when all subtasks run until a query that ends has ended; rows are forgotten
    what: "rate"       {"per_second": ...}: rows that the last vertex takes in a second, for ``seconds`` from ``warm`` rows
    what: "savepoint"  {"savepoint_s": ..., "restore_s": ...}: after ``seconds``, and from it at ``parallelism``
"""

import json
import sys
import tempfile
import time
import urllib.request
from collections import Counter

from pyflink.common import Configuration, RowKind
from pyflink.table import EnvironmentSettings, TableEnvironment

asked = json.loads(sys.argv[1])
PORT = asked["settings"]["rest.port"]
ENDED = {"FINISHED", "FAILED", "CANCELED"}


def environment(**more):
    """Where statements are executed."""
    conf = Configuration()
    for name, value in {**asked["settings"], **more}.items():
        conf.set_string(name, value)
    if asked["jars"]:
        conf.set_string("pipeline.jars", ";".join(asked["jars"]))
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(conf).build()
    tables = TableEnvironment.create(settings)
    for statement in asked["tables"]:
        tables.execute_sql(statement)
    return tables


def status(client):
    """What the cluster says of the job."""
    try:
        answer = urllib.request.urlopen(f"http://localhost:{PORT}/jobs/{client.get_job_id()}", timeout=5)
        return json.load(answer)
    except OSError:  # it is not there yet
        return {"vertices": [], "state": ""}


def started(**more):
    """The client of the job, when all of its subtasks run, and how long that took. Its rows are forgotten."""
    tables = environment(**more)
    schema = tables.sql_query(asked["query"]).get_schema()
    names, types = schema.get_field_names(), schema.get_field_data_types()
    columns = ", ".join(f"`{name}` {str(kind_of(kind))}" for name, kind in zip(names, types))
    tables.execute_sql(f"CREATE TABLE forgotten ({columns}) WITH ('connector'='blackhole')")
    began = time.perf_counter()
    client = tables.execute_sql(f"INSERT INTO forgotten {asked['query']}").get_job_client()
    while True:
        now = status(client)
        if now["state"] in ENDED:
            return client, time.perf_counter() - began
        running = [v for v in now["vertices"] if v["tasks"]["RUNNING"] + v["tasks"]["FINISHED"] == v["parallelism"]]
        if now["vertices"] and len(running) == len(now["vertices"]):
            return client, time.perf_counter() - began
        time.sleep(0.02)


def kind_of(kind):
    """The type of a column of a sink: any that fits will do."""
    return kind._j_data_type.getLogicalType().asSerializableString().replace(" NOT NULL", "")


def collect():
    rows = Counter()
    with environment().sql_query(asked["query"]).execute().collect() as found:
        for row in found:
            is_gone = row.get_row_kind() in (RowKind.UPDATE_BEFORE, RowKind.DELETE)
            rows[tuple(value if isinstance(value, (int, float, str)) else str(value) for value in row)] += -1 if is_gone else 1
    return {"rows": [row for row, times in rows.items() for _ in range(times)]}


def drain():
    client, _ = started()
    began = time.perf_counter()
    client.get_job_execution_result().result()
    took = time.perf_counter() - began
    # The cluster of the client ends with the job, and knows its times no more.
    return {"seconds": took}


def rate():
    client, _ = started()

    def taken():
        return status(client)["vertices"][-1]["metrics"]["read-records"]

    def next_report():
        before = taken()
        while (now := taken()) == before:
            time.sleep(0.02)
        return now, time.perf_counter()

    while taken() < asked["warm"]:
        time.sleep(0.2)
    first, began = next_report()
    time.sleep(asked["seconds"])
    last, ended = next_report()
    client.cancel().result()
    return {"per_second": (last - first) / (ended - began)}


def savepoint():
    with tempfile.TemporaryDirectory() as folder:
        client, _ = started()
        time.sleep(asked["seconds"])
        began = time.perf_counter()
        path = client.trigger_savepoint(folder).result()
        saved = time.perf_counter() - began
        client.cancel().result()
        time.sleep(2)
        number = str(asked["parallelism"])
        wider = {"parallelism.default": number, "taskmanager.numberOfTaskSlots": number}
        client, restored = started(**wider, **{"execution.state-recovery.path": path})
        client.cancel().result()
    return {"savepoint_s": round(saved, 2), "restore_s": round(restored, 2)}


print(json.dumps({"collect": collect, "drain": drain, "rate": rate, "savepoint": savepoint}[asked["what"]]()))
