"""The checkpoints of one attempt: started, published, kept and deleted. Begin with ``coordinator.py``."""
