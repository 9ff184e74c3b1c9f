"""Other systems beside which benchmarks run, each in an environment of its own."""
