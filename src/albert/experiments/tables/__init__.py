"""The paper's tables and figures, run again.

scales → arms → grids → plan → execution → outcomes → judgement → report, figure: data travel one way.
"""
