"""The paper's tables and figures as experiments; sizes, layers and speed of models; the quickstart and its sample."""
