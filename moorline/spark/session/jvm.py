"""The JVM of an embedded Spark, started without the scripts and the second JVM that ``spark-submit`` needs for it.

``spark-submit`` starts a shell, a small JVM that works out a command line, and then the JVM that is wanted. Of a local
Spark with settings of ours alone the command line is known: it is below, as Spark 4.3 makes it. Whoever has settings
of their own for that, in files or in the environment, gets ``spark-submit``: see :func:`is_plain`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from moorline.errors import SparkUnsuitable

#: What Java lets Spark reach into (``org.apache.spark.launcher.JavaModuleOptions``). Its vector module is left out: it
#: is for linear algebra, and Java prints a warning about it.
OPENED = """java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.util java.util.concurrent
    java.util.concurrent.atomic jdk.internal.ref sun.nio.ch sun.nio.cs sun.security.action sun.util.calendar"""
OPTIONS = (
    "-Xmx1g",
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED.split()),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
#: Names that begin like Spark's settings and change nothing about the command line: Spark reads them itself, or
#: PySpark has set them, or they are options for Java, which are handed on.
HARMLESS = {
    "SPARK_LOCAL_DIRS",
    "SPARK_LOCAL_IP",
    "SPARK_PUBLIC_DNS",
    "SPARK_USER",
    "SPARK_SUBMIT_OPTS",
    "SPARK_LAUNCHER_OPTS",
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
}
ELSEWHERE = ("PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "HADOOP_CONF_DIR", "YARN_CONF_DIR")


def is_plain(environment: Mapping[str, str], home: Path) -> bool:
    """Is there nothing that ``spark-submit`` would look at, neither in the environment nor in Spark's folder?"""
    named = any(name.startswith("SPARK_") and name not in HARMLESS for name in environment)
    elsewhere = any(name in environment for name in ELSEWHERE)
    files = any((home / "conf" / name).exists() for name in ("spark-defaults.conf", "spark-env.sh"))
    return os.name == "posix" and not named and not elsewhere and not files


def spark_home() -> Path:
    """The folder of the Spark that PySpark would start."""
    return Path(_find_spark_home())


def class_path(home: Path) -> list[Path]:
    """Spark's jars, always in the same order."""
    jars = sorted((home / "jars").glob("*.jar"))
    return sorted(jars, key=lambda jar: not jar.name.startswith("slf4j-api"))  # first, as Spark has it


def launch(java: str, home: Path, options: list[str]) -> Any:
    """A JVM that waits for PySpark's orders, and the line to it, as PySpark would have made them."""
    command = [java, "-cp", ":".join(map(str, class_path(home))), *OPTIONS, *options]
    command += shlex.split(os.environ.get("SPARK_SUBMIT_OPTS", ""))
    command.append("org.apache.spark.api.python.PythonGatewayServer")
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "connection"
        environment = {
            **os.environ,
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told),
            "PYTHONHASHSEED": "0",
            "SPARK_CONNECT_MODE": "0",
            "SPARK_HOME": str(home),
        }
        # It ends when its standard input does, so with this process. An interrupt is for us alone.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, preexec_fn=_ignore_interrupts)
        while not told.exists():
            if process.poll() is not None:
                raise SparkUnsuitable([f"{java} ended with {process.returncode} before Spark had started in it"])
            time.sleep(0.005)
        with told.open("rb") as file:
            port, secret = read_int(file), UTF8Deserializer().loads(file)
    try:
        os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = str(port), secret
        gateway: Any = launch_gateway()
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    gateway.proc = process
    return gateway


def find_java() -> str | None:
    """The Java that Spark would start, if there is one."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    return java if java and os.path.exists(java) else None


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
