"""Bounded jobs as DataFrame programs, and DataFrames as their input and output."""
