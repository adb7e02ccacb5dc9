"""Pinned versions stand above what advisories name, and an audit that did not happen is not called a clean one."""

import json

from reliability.trials import Tries

from reliability import hostile_files as dependencies


def test_what_is_pinned_is_above_every_floor():
    versions = dependencies.pinned()
    assert len(versions) > 50
    assert dependencies.below_floors(versions) == []


def test_a_version_below_a_floor_or_none_at_all_is_told():
    found = dependencies.below_floors({**dependencies.pinned(), "torch": "2.9.1"} | {"onnx": "1.20.5"})
    assert [each.split()[0] for each in found] == ["torch", "onnx"]
    assert len(dependencies.below_floors({})) == len(dependencies.FLOORS)


def test_a_finding_is_a_failure():
    finding = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": []}
    answer = json.dumps({"dependencies": [{"name": "a", "version": "1", "vulns": [finding]}], "fixes": []})
    assert dependencies.understood(answer, "") == ("asked about 1", ["a 1: PYSEC-1"])


def test_a_service_out_of_reach_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(dependencies, "advisories", lambda: dependencies.understood("", "ConnectionError: no route"))
    outcome = Tries(1, 0, tmp_path)
    dependencies.dependencies.run(outcome)
    assert outcome.failures == [] and outcome.tried == len(dependencies.FLOORS)
    assert outcome.details["advisory_service"] == "not asked: ConnectionError: no route"
