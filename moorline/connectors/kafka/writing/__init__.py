"""Into Kafka: messages that wait in a checkpoint, and transactions that hold them with a marker of their own."""
