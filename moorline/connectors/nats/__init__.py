"""NATS JetStream as a source and as a sink."""
