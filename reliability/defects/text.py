"""Defects by which text would be lost, changed or cut up wrongly on its way to token ids."""

from reliability.defects.defect import Defect

_SHARDS, _DECODING = "text/shards.py", "text/readers.py"

TEXT = (
    Defect(
        name="bytes that are no UTF-8 are left out in silence",
        file=_DECODING,
        old='            return data.decode("utf-8")\n',
        new='            return data.decode("utf-8", errors="ignore")\n',
        tests=("text/test_corpus_text.py::test_invalid_utf8_names_file_and_byte",),
    ),
    Defect(
        name="documents that are skipped are not counted",
        file=_DECODING,
        old="        report.drop(NOT_UTF8, len(data))\n",
        new="",
        tests=("text/test_corpus_text.py::test_documents_with_bad_utf8_are_skipped_on_request",),
    ),
    Defect(
        name="token ids are kept in 16 bits whatever the vocabulary",
        file="text/shards.py",
        old="""return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")""",
        new="""return np.dtype("<u2")""",
        tests=("text/test_prepare.py::test_the_smallest_type_that_fits_is_used",),
    ),
    Defect(
        name="a corpus opens with a tokenizer that did not make it",
        file=_SHARDS,
        old="if not load_tokenizer(directory).answers_to(description.tokenizer_fingerprint):",
        new="if False:",
        tests=("text/test_prepare.py::test_a_foreign_tokenizer_is_found_even_without_hashes",),
    ),
    Defect(
        name="a cut shard is taken for a whole one",
        file=_SHARDS,
        old="        if size != expected:\n",
        new="        if size > expected:\n",
        tests=("text/test_prepare.py::test_a_cut_file_is_found_even_without_hashes",),
    ),
    Defect(
        name="a run of tokens ends where its shard does",
        file=_SHARDS,
        old="            self.copy_runs(out, *rest)\n",
        new="            del rest\n",
        tests=("text/test_copying_runs.py",),
    ),
    Defect(
        name="the places of normalised characters are those of the characters before them",
        file="text/normalization.py",
        old="    starts = np.repeat(np.arange(len(text), dtype=np.int64), lengths)\n",
        new="    starts = np.repeat(np.maximum(np.arange(len(text), dtype=np.int64) - 1, 0), lengths)\n",
        tests=("text/test_normalization.py",),
    ),
    Defect(
        name="a dropped accent is left out of the slice of its letter",
        file="text/normalization.py",
        old="        if place and unicodedata.combining(text[place]):",
        new="        if False and unicodedata.combining(text[place]):",
        tests=("text/test_tokenizer.py::test_an_accent_belongs_to_its_letter_in_the_slice",),
    ),
    Defect(
        name="another tokenizer has the same fingerprint when its pieces are as many",
        file="text/tokenizer.py",
        old="""        digest.update(struct.pack("<IfB", len(piece), entry.score, entry.type) + piece)\n""",
        new="""        digest.update(struct.pack("<IfB", 1, 0.0, 1))\n""",
        tests=("text/test_tokenizer_json.py::test_the_fingerprint_changes_with_every_piece_score_type_and_map",),
    ),
    Defect(
        name="a model is used with another tokenizer than it was trained with",
        file="checkpoints/model_directory.py",
        old="if trained_with is not None and not tokenizer.answers_to(str(trained_with)):",
        new="if False:",
        tests=("inference/test_predictor.py::test_a_foreign_tokenizer_is_refused",),
    ),
)
