"""The vocabulary of a job: functions, states, streams, jobs, sources and sinks. Building a job runs nothing."""
