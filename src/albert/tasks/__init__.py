"""Tasks as declarations: sources, features, answers, metrics. Numpy only, no torch."""
