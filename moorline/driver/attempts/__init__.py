"""The attempts of one job: how each is made, what its subtasks report, whether they still answer."""
