"""From Kafka: partitions that the driver finds, and one consumer per subtask that reads those it was given."""
