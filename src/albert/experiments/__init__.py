"""Whole stories from corpus to score: the quickstart and the sample it runs on."""
