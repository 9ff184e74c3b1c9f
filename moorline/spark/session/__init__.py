"""The Spark that a job runs on: settings, the embedded one, its log, and what a machine offers."""
