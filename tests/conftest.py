"""What all tests share: one Spark, and thousands of simulated jobs that run beside everything else.

Property tests find the same cases on every run, so a red build stays red until it is mended.
"""

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("moorline.testing.contracts")

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
        # On two cores a compiler that optimises for hours to come costs more than it brings.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    yield session
    session.stop()


_seeds = pytest.StashKey()


def wants_seeds(item):
    return "seeds" in getattr(item, "fixturenames", ())


def pytest_collection_modifyitems(items):
    """Who asks for the simulated jobs comes last: by then most of them are done."""
    items.sort(key=wants_seeds)


def pytest_collection_finish(session):
    if not session.config.option.collectonly and any(map(wants_seeds, session.items)):
        from seeds import Seeds  # noqa: PLC0415

        session.config.stash[_seeds] = Seeds()


def pytest_sessionfinish(session):
    if _seeds in session.config.stash:
        session.config.stash[_seeds].stop()


@pytest.fixture
def seeds(request):
    """The simulated jobs, which have been running since the tests began."""
    return request.config.stash[_seeds]
