"""What the functions and commands are asked."""

import subprocess
import sys

CODE = """
import sys
import albert.api.options
sys.exit(any(name in sys.modules for name in ("torch", "pandas", "matplotlib")))
"""


def test_what_is_asked_is_known_without_torch():
    assert subprocess.run([sys.executable, "-c", CODE], check=False).returncode == 0
