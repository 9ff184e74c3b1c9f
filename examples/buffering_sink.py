"""A sink that sends its elements on in groups. It is the example of operator state in Flink's documentation.

State: the elements that are waiting for their group to be full, as a list that belongs to the subtask and not to a
key. After a restart at another parallelism the waiting elements are dealt out evenly to the subtasks there are then.
"""

import moorline as mo

WORDS = [("to", 1), ("be", 1), ("or", 1), ("not", 1), ("to", 2), ("be", 2), ("that", 1)]


def send(elements):
    """Stands for whatever takes a group of elements in one go."""
    print("sent", *(f"{word}:{count}" for word, count in elements))


class BufferingSink(mo.SinkFunction, mo.CheckpointedFunction):
    """Sends elements on in groups of ``threshold``."""

    def __init__(self, threshold, send=send):
        self.threshold = threshold
        self.send = send
        self.buffered_elements = []

    def invoke(self, value, context):
        self.buffered_elements.append(value)
        if len(self.buffered_elements) >= self.threshold:
            self.send(self.buffered_elements)
            self.buffered_elements = []

    def snapshot_state(self, ctx):
        self.checkpointed_state.update(self.buffered_elements)

    def initialize_state(self, ctx):
        descriptor = mo.ListStateDescriptor("buffered-elements", tuple[str, int])
        self.checkpointed_state = ctx.operator_state.list_state(descriptor)
        if ctx.is_restored:
            for element in self.checkpointed_state.get():
                self.buffered_elements.append(element)

    def finish(self):
        """The input has ended: no group will become full any more."""
        if self.buffered_elements:
            self.send(self.buffered_elements)
            self.buffered_elements = []


def build(words=WORDS, send=send) -> mo.Job:
    """Words with their counts in; groups of three out."""
    job = mo.Job("buffering", parallelism=1)
    job.source(mo.from_items(words), uid="words").sink(BufferingSink(3, send), uid="groups")
    return job


if __name__ == "__main__":
    mo.run(build())  # sent to:1 be:1 or:1 / sent not:1 to:2 be:2 / sent that:1
