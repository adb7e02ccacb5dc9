"""A WordPiece tokenizer as files that the Hugging Face libraries open: those of their `BertTokenizer`."""

from collections.abc import Sequence
from typing import Any

from albert.text.unigram.tokenizer_files import MAXIMUM_LENGTH, added_token, pair_template
from albert.text.wordpiece.wordpiece_matching import CONTINUES, LONGEST_WORD
from albert.text.wordpiece.wordpiece_normalization import WordPieceNormalization
from albert.text.wordpiece.wordpiece_vocabulary import CLS, MASK, PAD, SEP, SPECIAL_PIECES, UNKNOWN


def wordpiece_tokenizer_json(vocabulary: Sequence[str], normalization: WordPieceNormalization) -> dict[str, Any]:
    """The content of `tokenizer.json`: WordPiece model, BERT's normaliser, template with segment ids."""
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added_token(ids[piece], piece) for piece in sorted(SPECIAL_PIECES, key=ids.__getitem__)],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": normalization.space_ideographs,
            "strip_accents": _strip_accents(normalization),
            "lowercase": normalization.lower_case,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": pair_template({CLS: ids[CLS], SEP: ids[SEP]}),
        "decoder": {"type": "WordPiece", "prefix": CONTINUES, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": UNKNOWN,
            "continuing_subword_prefix": CONTINUES,
            "max_input_chars_per_word": LONGEST_WORD,
            "vocab": ids,
        },
    }


def wordpiece_tokenizer_config(normalization: WordPieceNormalization) -> dict[str, Any]:
    """The content of `tokenizer_config.json`; the class keeps transformers from taking a model of ALBERT's type for one
    with a SentencePiece vocabulary.
    """
    return {
        "tokenizer_class": "BertTokenizer",
        "model_max_length": MAXIMUM_LENGTH,
        "do_lower_case": normalization.lower_case,
        "strip_accents": _strip_accents(normalization),
        "tokenize_chinese_chars": normalization.space_ideographs,
        **wordpiece_special_tokens_map(),
    }


def wordpiece_special_tokens_map() -> dict[str, str]:
    """The content of `special_tokens_map.json`."""
    names = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
    return dict(zip(names, (UNKNOWN, SEP, PAD, CLS, MASK), strict=True))


def _strip_accents(normalization: WordPieceNormalization) -> bool | None:
    """None is BERT's rule: accents go where capitals go."""
    usual = not normalization.lower_case
    return None if normalization.keep_accents == usual else not normalization.keep_accents
