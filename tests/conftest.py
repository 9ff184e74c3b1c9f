"""Property tests find the same cases on every run, so a red build stays red until it is mended."""

import pytest
from hypothesis import HealthCheck, settings

for suite in ("backend_contract", "external_contract", "external_runs"):
    pytest.register_assert_rewrite(f"moorline.testing.{suite}")

settings.register_profile(
    "moorline",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("moorline")


@pytest.fixture(scope="session")
def spark():
    """One Spark for all tests that need one; they never stop it."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    import moorline as mo  # noqa: PLC0415

    session = (
        SparkSession.builder.master("local[24]")
        .appName("moorline tests")
        .config(map=mo.spark_config())
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    yield session
    session.stop()
