"""The pinned versions of constraints.txt: above the floors that advisories name, and asked after at the service.

The floors are checked here, without a network. The service is asked through `pip-audit`, where that is installed; where
it is not, or the service is out of reach, the report says so: an audit that did not happen is not a clean one.
"""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass

from packaging.version import Version

from reliability.promises import LOADING_RUNS_NOTHING
from reliability.report import CHECKOUT
from reliability.trial import FAILURES_TOLD, Asked, Outcome, Trial

CONSTRAINTS = CHECKOUT / "constraints.txt"
SECONDS = 240
NOT_ASKED = "not asked"


@dataclass(frozen=True)
class Floor:
    """A package, the lowest version without a known defect that matters here, and which defect that is."""

    name: str
    lowest: str
    because: str


FLOORS = (
    Floor("torch", "2.10.0", "CVE-2026-24747 corrupts memory before it, CVE-2025-32434 breaks weights_only to 2.5.1"),
    Floor("onnx", "1.21.0", "external data left their directory, through links too (CVE-2026-34446, -34447)"),
    Floor("sentencepiece", "0.2.3", "0.2.1 ends the process on a damaged model (sentencepiece#1263, #1269)"),
    Floor("starlette", "1.3.1", "bodies of forms without a bound (CVE-2024-47874)"),
)
EXPLAINED: dict[str, str] = {}
"""Findings that were looked into: the advisory's name -> why it does no harm here."""


def pinned() -> dict[str, str]:
    """Package -> version, as constraints.txt has them."""
    found = re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)$", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE)
    return {name.lower(): version for name, version in found}


def below_floors(versions: dict[str, str]) -> list[str]:
    """Each package that is absent or too old, with the reason."""
    return [
        f"{floor.name} {versions.get(floor.name, 'is not pinned')}: at least {floor.lowest}, {floor.because}"
        for floor in FLOORS
        if floor.name not in versions or Version(versions[floor.name]) < Version(floor.lowest)
    ]


def advisories() -> tuple[str, list[str]]:
    """What the service said ("asked", or why it was not), and each finding that nobody explained."""
    program = shutil.which("pip-audit")
    if program is None:
        return f"{NOT_ASKED}: pip-audit is not installed", []
    words = [program, "--requirement", str(CONSTRAINTS), "--no-deps", "--disable-pip", "--format", "json"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"{NOT_ASKED}: no answer within {SECONDS} s", []
    return understood(done.stdout, done.stderr)


def understood(answer: str, said: str) -> tuple[str, list[str]]:
    """`advisories`, of what pip-audit printed and said on stderr."""
    try:
        packages = json.loads(answer)["dependencies"]
    except (ValueError, KeyError, TypeError):
        reason = " ".join(said.split())[-120:] or "no answer"
        return f"{NOT_ASKED}: {reason}", []
    findings = [
        f"{package['name']} {package['version']}: {finding['id']}"
        for package in packages
        for finding in package.get("vulns", [])
        if not {finding["id"], *finding.get("aliases", [])} & set(EXPLAINED)
    ]
    return f"asked about {len(packages)}", findings


def run(asked: Asked) -> Outcome:
    """Floors first, then the service; findings that were explained are told beside."""
    versions = pinned()
    failures = below_floors(versions)
    service, findings = advisories()
    failures += findings
    asked.report(asked.count)
    return Outcome(
        tried=len(FLOORS) if service.startswith(NOT_ASKED) else len(versions),
        failed=len(failures),
        what="pinned versions held against floors" + ("" if service.startswith(NOT_ASKED) else " and advisories"),
        details={"pinned": len(versions), "advisory_service": service, "explained": len(EXPLAINED)},
        failures=tuple(failures[:FAILURES_TOLD]),
    )


TRIAL = Trial("dependencies", LOADING_RUNS_NOTHING, {"quick": 1, "full": 1, "soak": 1}, run)
