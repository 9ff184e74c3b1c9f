"""One file for each command: ``moorline <name>`` is ``command`` in ``<name>.py``. ``cli/main.py`` finds them."""
