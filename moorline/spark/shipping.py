"""The way of a deployment, user code included, to the workers.

Functions and classes of the user's script are pickled by value: a worker cannot import the script. But records are
pickled by reference between workers, which is far quicker, and that needs a name. So the script's classes are put into
the worker's ``__main__`` under the names they have in the driver's.
"""

from __future__ import annotations

import sys

from cloudpickle import cloudpickle as internals

from moorline.model.wire import user_code
from moorline.model.wire.deployment import Deployment
from moorline.subtask.failure_report import advice_on_module


def pack(deployment: Deployment) -> bytes:
    """The deployment and the classes of the driver's script that it uses."""
    user_code.dumps(deployment)  # cloudpickle notes which classes it has to send by value
    by_value = internals._DYNAMIC_CLASS_TRACKER_BY_CLASS
    script = vars(sys.modules["__main__"])
    classes = {name: value for name, value in script.items() if isinstance(value, type) and value in by_value}
    return user_code.dumps((deployment, classes))


def unpack(data: bytes) -> Deployment:
    """The deployment, in the worker."""
    deployment: Deployment
    try:
        deployment, classes = user_code.loads(data)
    except ModuleNotFoundError as error:
        # One line: the driver shows the last line of what a worker died of before it could report.
        raise ModuleNotFoundError(f"{error}; {advice_on_module(error)}", name=error.name) from None
    # A worker may have served another version of the script before: ours counts now.
    vars(sys.modules["__main__"]).update(classes)
    return deployment
