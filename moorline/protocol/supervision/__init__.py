"""Decisions around ``protocol/job.py``: its events, requests to it, its status, its leader, its parallelism."""
