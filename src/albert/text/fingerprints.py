"""What a tokenizer is known by: a hash of everything that decides its ids, in whichever file it stands.

Corpora and models record it. Those made before it was over contents have one over the bytes of `spiece.model`, which
stays known here, so that they go on opening.
"""

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

CONTENT_PREFIX = "v2:"


def content_fingerprint(proto: Any, lower_case: bool, keep_accents: bool, reference: bool = False) -> str:
    """SHA-256 over pieces, scores, types, and normalisation of a SentencePiece `ModelProto`, after a prefix.

    Where and how the model was trained, which its file also tells, is left out: it changes no id.
    """
    normalizer, trainer = proto.normalizer_spec, proto.trainer_spec
    settings = {
        "lower_case": lower_case,
        "keep_accents": keep_accents,
        "character_map": hashlib.sha256(normalizer.precompiled_charsmap).hexdigest(),
        "add_dummy_prefix": normalizer.add_dummy_prefix,
        "remove_extra_whitespaces": normalizer.remove_extra_whitespaces,
        "escape_whitespaces": normalizer.escape_whitespaces,
        "treat_whitespace_as_suffix": trainer.treat_whitespace_as_suffix,
        "byte_fallback": trainer.byte_fallback,
        **({"reference": True} if reference else {}),
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode("ascii"))
    for entry in proto.pieces:
        piece = entry.piece.encode("utf-8")
        digest.update(struct.pack("<IfB", len(piece), entry.score, entry.type) + piece)
    return CONTENT_PREFIX + digest.hexdigest()


def wordpiece_fingerprint(vocabulary: Sequence[str], settings: Mapping[str, bool]) -> str:
    """SHA-256 over the pieces in the order of their ids and the settings of the normalisation, after a prefix."""
    digest = hashlib.sha256(json.dumps({"wordpiece": dict(settings)}, sort_keys=True).encode("ascii"))
    for piece in vocabulary:
        digest.update(piece.encode("utf-8") + b"\0")
    return CONTENT_PREFIX + digest.hexdigest()


def byte_fingerprint(model: bytes, lower_case: bool, keep_accents: bool) -> str:
    """The fingerprint of before: SHA-256 over the bytes of `spiece.model` and the flags."""
    flags = json.dumps({"lower_case": lower_case, "keep_accents": keep_accents}, sort_keys=True)
    return hashlib.sha256(model + flags.encode("ascii")).hexdigest()
