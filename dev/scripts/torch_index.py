"""Print the option with which pip takes the wheel of torch that fits this machine; `make quickstart` uses it.

    .venv/bin/python -m pip install $(python dev/scripts/torch_index.py) torch

On Linux without a GPU that is PyTorch's index of wheels for CPUs, which are some 200 MB instead of some 2.5 GB with the
CUDA libraries. Nothing is printed where a GPU is found, with CUDA=1, on macOS, and where that index cannot be reached.
What was chosen is said on standard error. It needs nothing but Python.
"""

import argparse
import os
import subprocess
import sys
import urllib.request

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
SECONDS = 5.0
"""How long the index may take to answer."""


def has_gpu() -> bool:
    """Whether `nvidia-smi` runs and lists a GPU."""
    try:
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and "GPU" in listed.stdout


def is_reachable(address: str) -> bool:
    """Whether an index answers; proxies are those of the environment."""
    try:
        with urllib.request.urlopen(f"{address}/torch/", timeout=SECONDS):
            return True
    except OSError:
        return False


def choose() -> tuple[str, str]:
    """The option for pip, which may be empty, and a line that says why."""
    if sys.platform != "linux":
        return "", "torch comes from the package index"
    if os.environ.get("CUDA") == "1":
        return "", "CUDA=1: torch comes with its CUDA libraries"
    if has_gpu():
        return "", "a GPU was found: torch comes with its CUDA libraries"
    if is_reachable(CPU_INDEX):
        return f"--extra-index-url {CPU_INDEX}", "no GPU was found: torch for CPUs (CUDA=1 takes the one for GPUs)"
    host = CPU_INDEX.split("/")[2]
    why = f"no GPU was found, but {host} cannot be reached: torch comes from the package index, where it usually needs"
    return "", f"{why} CUDA libraries (some 5.8 GB in all)"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    option, why = choose()
    print(why, file=sys.stderr)
    if option:
        print(option)
