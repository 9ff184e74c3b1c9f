"""Files of a disk of this machine, or of a folder that is mounted."""
