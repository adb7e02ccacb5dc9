"""The curves of a run; the scores of a model at several depths and precisions; pictures of both."""
