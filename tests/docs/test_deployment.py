"""The recipes in deploy/ name what the code has: settings with their values, options, ports, one image, one version."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
import yaml

import moorline as mo
from moorline.cli.main import cli
from moorline.spark.session import settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


def documents(kind: str) -> list[dict]:
    return [d for file in KUBERNETES for d in yaml.safe_load_all(file.read_text()) if d["kind"] == kind]


def one(kind: str) -> dict:
    (found,) = documents(kind)
    return found


def spark_defaults() -> dict[str, str]:
    lines = one("ConfigMap")["data"]["spark-defaults.conf"].splitlines()
    return dict(line.split(None, 1) for line in lines if line.strip())


def driver() -> dict:
    (container,) = one("Deployment")["spec"]["template"]["spec"]["containers"]
    return container


def check_call(words: list[str]) -> dict[str, object]:
    """The parameters of a call of ``moorline run``, as click understands it."""
    assert words[0] == "run"
    command = cli.get_command(None, "run")
    return command.make_context("run", words[1:]).params


def test_every_manifest_is_yaml_of_a_kind_with_a_name():
    assert KUBERNETES
    for file in KUBERNETES:
        for document in yaml.safe_load_all(file.read_text()):
            assert {"apiVersion", "kind", "metadata"} <= set(document)
            assert document["metadata"]["name"]


def test_the_settings_are_those_that_a_job_needs_and_no_other_of_ours():
    given, needed = spark_defaults(), mo.spark_config()
    assert {name: given.get(name) for name in needed} == {name: str(value) for name, value in needed.items()}
    assert (given["spark.dynamicAllocation.enabled"], given["spark.speculation"]) == ("false", "false")


def test_the_session_that_they_make_is_one_that_a_job_starts_on():
    class Spark:
        version = f"{settings.SUPPORTED}.0"

        @property
        def sparkContext(self):
            return self

        def getConf(self):
            return spark_defaults()

    settings.check(Spark())


def test_the_driver_is_called_as_the_command_line_understands():
    container = driver()
    command = container["command"]
    assert command[:3] == ["python3", "-m", "moorline.cli.main"]
    params = check_call([*command[3:], *container["args"]])
    assert (params["restore"], params["master"]) == ("latest", "k8s://https://kubernetes.default.svc")
    assert params["console"] and params["checkpoints"]


def test_ports_are_the_same_wherever_they_stand():
    container, given = driver(), spark_defaults()
    params = check_call([*container["command"][3:], *container["args"]])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {port["name"]: port["port"] for port in one("Service")["spec"]["ports"]}
    assert ports == {
        "spark": int(given["spark.driver.port"]),
        "blocks": int(given["spark.driver.blockManager.port"]),
        "control": params["control_port"],
        "console": int(str(params["console"]).rpartition(":")[2]),
    }
    opened = [p["port"] for rule in one("NetworkPolicy")["spec"]["ingress"] for p in rule.get("ports", [])]
    assert opened == [ports["console"]], "nobody but the job's own pods reaches any other port"


def test_names_are_the_same_wherever_they_stand():
    given, spec = spark_defaults(), one("Deployment")["spec"]["template"]["spec"]
    account = one("ServiceAccount")["metadata"]["name"]
    assert given["spark.driver.host"] == one("Service")["metadata"]["name"]
    assert given["spark.kubernetes.container.image"] == driver()["image"]
    assert account == spec["serviceAccountName"]
    assert account == given["spark.kubernetes.authenticate.driver.serviceAccountName"]
    assert [s["name"] for s in one("RoleBinding")["subjects"]] == [account]
    (mounted,) = [v["configMap"]["name"] for v in spec["volumes"] if "configMap" in v]
    assert mounted == one("ConfigMap")["metadata"]["name"]
    params = check_call([*driver()["command"][3:], *driver()["args"]])
    assert params["hosts"] == (one("Service")["metadata"]["name"],), "whoever asks the console asks for the service"
    mounts = {mount["name"]: mount["mountPath"] for mount in driver()["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in spec["volumes"]}
    (secret,) = [volume for volume in spec["volumes"] if "secret" in volume]
    assert params["token_from"] == f"{mounts[secret['name']]}/token"
    guide = (ROOT / "docs/guides/deploying.md").read_text()
    assert f"secret generic {secret['secret']['secretName']} --from-literal=token=" in guide
    assert f"--token-file {params['token_from']}" in guide
    labels = one("Deployment")["spec"]["template"]["metadata"]["labels"]
    for selector in (one("Service")["spec"]["selector"], one("Deployment")["spec"]["selector"]["matchLabels"]):
        assert selector.items() <= labels.items()
    executor = yaml.safe_load(one("ConfigMap")["data"]["executor.yaml"])
    policy = one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"]
    assert policy.items() <= labels.items() and policy.items() <= executor["metadata"]["labels"].items()
    # Spark keeps the name that it gives the container itself.
    assert [c["name"] for c in executor["spec"]["containers"]] == ["spark-kubernetes-executor"]


def test_the_image_has_a_spark_that_we_run_on_and_extras_that_exist():
    recipe = (DEPLOY / "Dockerfile").read_text()
    (version,) = re.findall(r"ARG SPARK_VERSION=(\S+)", recipe)
    assert version.startswith(settings.SUPPORTED + ".")
    (extras,) = re.findall(r"moorline-source\[([\w,-]+)\]", recipe)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    (python,) = re.findall(r"FROM python:3\.(\d+)-", recipe)
    assert any(kind.endswith(f":: 3.{python}") for kind in project["classifiers"])
    assert spark_defaults()["spark.kubernetes.container.image"] in recipe


@pytest.mark.parametrize("unit", sorted((DEPLOY / "systemd").glob("*.service")), ids=lambda path: path.name)
def test_a_unit_calls_the_command_as_it_is(unit):
    text = unit.read_text().replace("\\\n", " ")
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    words = shlex.split(line)
    assert words[0].endswith("/moorline")
    params = check_call(words[1:])
    assert params["restore"] == "latest"
    assert "Restart=always" in text


def test_a_misspelt_option_in_a_recipe_is_noticed():
    with pytest.raises(click.UsageError):
        check_call(["run", "job.py", "--contol-port=1"])
