"""The paper's tables and figures as experiments, which are not part of the package: see docs/tables.md."""
