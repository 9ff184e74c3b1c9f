"""The test kit that ships: a clock, scripted sources, a harness, a simulator, contract suites."""
