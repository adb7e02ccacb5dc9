"""Published learning rates fit published widths; a narrower model that learns at them learns next to nothing."""

FULL_WIDTH = 768
"""H of ALBERT-base, the narrowest model that a recipe was published for."""


def rate_for_width(hidden_size: int) -> float:
    """By what a recipe's learning rate is multiplied for a model of this width: 768/H, and never less than 1.

    Under Adam the step of a weight matrix is to go with the inverse of its width (Yang et al., 2022, arXiv
    2203.03466), and small BERTs were fine-tuned best at rates of up to 3e-4 (Turc et al., 2019, arXiv 1908.08962).
    """
    return max(1.0, FULL_WIDTH / hidden_size)
