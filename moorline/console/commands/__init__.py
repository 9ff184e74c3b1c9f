"""One file for each command: ``moorline <name>`` is ``command`` in ``<name>.py``. ``console/main.py`` finds them."""
