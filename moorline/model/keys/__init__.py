"""Keys: their encoding and key groups, their identity, their kinds."""

from moorline.model.keys.encoding import decode, encode, encoded_hash, key_group

__all__ = ["decode", "encode", "encoded_hash", "key_group"]
