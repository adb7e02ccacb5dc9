"""dev/oracle.py finds one changed weight, one changed label and one changed word."""

import subprocess
import sys
from pathlib import Path

import pytest

ORACLE = Path(__file__).parents[1] / "dev" / "oracle.py"


@pytest.mark.long
def test_the_oracle_finds_a_weight_a_label_and_a_word():
    command = [sys.executable, str(ORACLE), "--prove"]
    proof = subprocess.run(command, capture_output=True, text=True)
    assert proof.returncode == 0, proof.stdout + proof.stderr
    for change in ("change_a_weight", "change_a_label", "change_a_word"):
        assert f"{change}: found" in proof.stdout


def test_an_unknown_case_is_refused():
    command = [sys.executable, str(ORACLE), "--cases", "nothing"]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "no case 'nothing'" in refused.stderr
