"""What users write: functions, states, streams, jobs, sources and sinks. Building a job runs nothing."""
