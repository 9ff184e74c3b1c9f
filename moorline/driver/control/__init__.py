"""The driver's end of the control lines to its subtasks."""
