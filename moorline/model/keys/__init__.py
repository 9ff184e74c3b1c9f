"""Keys: their encoding and its hash, their identity, their kinds."""

from moorline.model.keys.decoding import (
    Classes,
    ClassKey,
    UnknownClass,
    class_of,
    decode,
    decode_identity,
    items_of,
    key_classes,
)
from moorline.model.keys.encoding import Encoded, encode, encode_map_key, has_own_equality
from moorline.model.keys.hashing import encoded_hash, encoded_key_group, int_key_groups, key_group, str_key_groups
from moorline.model.keys.leaves import MOST_DIGITS, NotAKey

__all__ = [
    "MOST_DIGITS",
    "ClassKey",
    "Classes",
    "Encoded",
    "NotAKey",
    "UnknownClass",
    "class_of",
    "decode",
    "decode_identity",
    "encode",
    "encode_map_key",
    "encoded_hash",
    "encoded_key_group",
    "has_own_equality",
    "int_key_groups",
    "items_of",
    "key_classes",
    "key_group",
    "str_key_groups",
]
