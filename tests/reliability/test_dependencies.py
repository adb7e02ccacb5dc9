"""Pinned versions and advisories; a missing audit is not reported as a passed one."""

import json

from dev.reliability import hostile_files as dependencies
from dev.reliability.trials import Tries


def test_pinned_versions_are_not_below_the_minimum():
    versions = dependencies.pinned()
    assert len(versions) > 50
    assert dependencies.below_minimum(versions) == []


def test_old_and_missing_versions_are_reported():
    found = dependencies.below_minimum({**dependencies.pinned(), "torch": "2.9.1"} | {"onnx": "1.20.5"})
    assert [each.split()[0] for each in found] == ["torch", "onnx"]
    assert len(dependencies.below_minimum({})) == len(dependencies.MINIMUM_VERSIONS)


def test_a_finding_is_a_failure():
    finding = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": []}
    answer = json.dumps({"dependencies": [{"name": "a", "version": "1", "vulns": [finding]}], "fixes": []})
    assert dependencies.parse_audit(answer, "") == ("asked about 1", ["a 1: PYSEC-1"])


def test_an_unreachable_service_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(dependencies, "advisories", lambda: dependencies.parse_audit("", "ConnectionError: no route"))
    outcome = Tries(1, 0, tmp_path)
    dependencies.dependencies.run(outcome)
    assert outcome.failures == [] and outcome.tried == len(dependencies.MINIMUM_VERSIONS)
    assert outcome.details["advisory_service"] == "not asked: ConnectionError: no route"
