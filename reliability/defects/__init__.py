"""Deliberate defects of this project's own code, by what they would cost a user."""

from reliability.defects.defect import Defect
from reliability.defects.files import FILES
from reliability.defects.model import MODEL
from reliability.defects.samples import SAMPLES
from reliability.defects.scores import SCORES
from reliability.defects.server import SERVER
from reliability.defects.text import TEXT
from reliability.defects.training import TRAINING

DEFECTS: tuple[Defect, ...] = (*FILES, *TEXT, *SAMPLES, *MODEL, *TRAINING, *SCORES, *SERVER)
"""All of them; the first ones are the quickest to try."""
