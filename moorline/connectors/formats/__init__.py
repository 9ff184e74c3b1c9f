"""Formats of messages: bytes to records and back, for Kafka, NATS, Redis streams and whatever carries bytes."""
