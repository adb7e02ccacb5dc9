"""ALBERT, whole: from a pile of text to a pre-trained, fine-tuned and measured encoder."""

__version__ = "0.1.0"
