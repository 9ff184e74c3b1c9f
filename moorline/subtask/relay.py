"""Frames for later stages: the slot they go on to, and the checkpoints for which they do not wait for our own work.

Spark's exchange leads from one stage to the next only, so a frame for a stage further on passes through slots between.
"""

from __future__ import annotations

from moorline.model.graph import Plan
from moorline.model.ids import SubtaskId
from moorline.protocol.lowering import relay_slot, relays
from moorline.subtask.output import Output


class Relay:
    """One subtask as a place on the way of others' frames."""

    def __init__(self, plan: Plan, subtask: SubtaskId, output: Output) -> None:
        self.stage, self.slot = place = plan.slot(subtask)
        self._widths, self._output = plan.widths, output
        #: Do frames of others pass through here?
        self.is_used = place in relays(plan)
        #: The checkpoint whose barriers on their way to others must not wait; 0: none.
        self._urgent_checkpoint = 0

    def pass_on(self, target_slot: int, frame: bytes) -> None:
        """Pass a frame on towards its slot in a later stage, or a result towards the driver."""
        next_stage = self.stage + 1
        if next_stage == len(self._widths):  # a result, at the end of its way
            self._output.pass_on(0, frame)
            return
        next_is_target = frame[5] == next_stage
        slot = target_slot if next_is_target else relay_slot(self.slot, target_slot, self._widths[next_stage])
        self._output.pass_on(slot, frame)

    @property
    def is_urgent(self) -> bool:
        """Is input to be taken although our own backlog is not worked off?"""
        return self._urgent_checkpoint > 0

    def backlog_captured(self, checkpoint: int) -> None:
        """A snapshot has frames in flight: others' barriers must not wait here until those are worked off."""
        if self.is_used:
            self._urgent_checkpoint = checkpoint

    def confirmed(self, checkpoint: int) -> None:
        """A checkpoint is complete: its barriers are through."""
        if checkpoint >= self._urgent_checkpoint:
            self._urgent_checkpoint = 0

    def aborted(self) -> None:
        """The driver has given a checkpoint up."""
        self._urgent_checkpoint = 0
