"""Jobs of Flink's SQL in its local cluster, one after the other, run by a Python that has Flink.

What to do is the first argument, as JSON. One JSON object is printed last: what was found, by the names of queries; a
query that could not be run has its ``error``.

    settings   of the cluster, by their names
    jars       URLs of jars that the jobs need
    tables     statements that declare tables
    queries    SELECTs by their names; their rows are forgotten, or returned by "collect"

    what: "collect"    {"columns": [...], "rows": [...]}: the rows that there are in the end, of a query that ends
    what: "drain"      {"seconds": ...}: from when the job is there until it has ended, of a query that ends
    what: "rate"       {"per_second": ...}: rows that the last vertex takes, for ``seconds``, after ``warm`` rows
    what: "memory"     {"used_bytes": ...}: the heap of the JVM after a garbage collection, after ``warm`` rows
    what: "savepoint"  {"savepoint_s": ..., "restore_s": ...}: after ``seconds``, and from it at ``parallelism``
"""

import json
import os
import re
import subprocess
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


def started(query, **more):
    """The client of a job, when all of its subtasks run, and how long that took."""
    tables = environment(**more)
    # What Python has of a schema does not say its types as a declaration wants them.
    schema = tables.sql_query(query)._j_table.getResolvedSchema()
    kinds = zip(schema.getColumnNames(), schema.getColumnDataTypes())
    columns = ", ".join(f"`{name}` {ddl(kind)}" for name, kind in kinds)
    tables.execute_sql(f"CREATE TABLE forgotten ({columns}) WITH ('connector'='blackhole')")
    began = time.perf_counter()
    client = tables.execute_sql(f"INSERT INTO forgotten {query}").get_job_client()
    ended = client.get_job_execution_result()
    while not ended.done():  # a cluster is gone with its job
        now = status(client)
        runs = [v["tasks"]["RUNNING"] + v["tasks"]["FINISHED"] == v["parallelism"] for v in now["vertices"]]
        if now["state"] in ENDED or (runs and all(runs)):
            break
        time.sleep(0.02)
    return client, time.perf_counter() - began


def ddl(kind):
    """The type of a column as a declaration has it."""
    return kind.getLogicalType().asSerializableString().replace(" NOT NULL", "")


def plain(value):
    return value if value is None or isinstance(value, (int, float, str)) else str(value)


def collect(query):
    rows = Counter()
    result = environment().sql_query(query).execute()
    with result.collect() as found:
        for row in found:
            is_gone = row.get_row_kind() in (RowKind.UPDATE_BEFORE, RowKind.DELETE)
            rows[tuple(map(plain, row))] += -1 if is_gone else 1
    columns = result.get_table_schema().get_field_names()
    return {"columns": columns, "rows": [row for row, times in rows.items() for _ in range(times)]}


def drain(query):
    client, _ = started(query)
    return {"seconds": client.get_job_execution_result().result().get_net_runtime() / 1000}


def rate(query):
    client, _ = started(query)

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


def memory(query):
    client, _ = started(query)
    while status(client)["vertices"][-1]["metrics"]["read-records"] < asked["warm"]:
        time.sleep(0.2)
    (jvm,) = [pid for pid in (int(line.split()[0]) for line in told("jcmd", "-l")) if is_ours(pid)]
    for _ in range(2):
        told("jcmd", str(jvm), "GC.run")
    heap = " ".join(told("jcmd", str(jvm), "GC.heap_info"))
    client.cancel().result()
    return {"used_bytes": int(re.search(r"used (\d+)K", heap)[1]) * 1024}


def told(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def is_ours(pid):
    """Is the process a child of this one?"""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1]) == os.getpid()
    except OSError:
        return False


def savepoint(query):
    with tempfile.TemporaryDirectory() as folder:
        client, _ = started(query)
        time.sleep(asked["seconds"])
        began = time.perf_counter()
        path = client.trigger_savepoint(folder).result()
        saved = time.perf_counter() - began
        client.cancel().result()
        time.sleep(2)
        number = str(asked["parallelism"])
        wider = {"parallelism.default": number, "taskmanager.numberOfTaskSlots": number}
        client, restored = started(query, **wider, **{"execution.state-recovery.path": path})
        client.cancel().result()
    return {"savepoint_s": round(saved, 2), "restore_s": round(restored, 2)}


def main():
    do = {"collect": collect, "drain": drain, "rate": rate, "memory": memory, "savepoint": savepoint}[asked["what"]]
    found = {}
    for name, query in asked["queries"].items():
        try:
            found[name] = do(query)
        except Exception as error:  # of Flink: what it says of one query is no reason to leave out the others
            found[name] = {"error": " ".join(str(error).split())[:800]}
        print(name, str(found[name])[:200], file=sys.stderr, flush=True)
    print(json.dumps(found))


main()
