# SPDX-License-Identifier: Apache-2.0
"""What an OCI bundle's config.json says of devices."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from otel_gpu_cgroup.cgroup.fallback.oci import parse_bundle
from otel_gpu_cgroup.cgroup.policy import classify
from otel_gpu_cgroup.errors import ParseError
from otel_gpu_cgroup.model import READ_WRITE, AccessClass, Permission, PolicySource, Verdict, gpu_node

DENY_ALL: Final = {"allow": False, "access": "rwm"}
GPUS: Final = [gpu_node(minor) for minor in range(4)]


def _gpu(minor: int, access: str = "rw", *, allow: bool = True) -> dict[str, Any]:
    return {"allow": allow, "type": "c", "major": 195, "minor": minor, "access": access}


def _bundle(*devices: object) -> str:
    return json.dumps({"ociVersion": "1.0.2", "linux": {"resources": {"devices": list(devices)}}})


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([DENY_ALL, _gpu(1), _gpu(255)], [1]),
        ([DENY_ALL, _gpu(1, "rwm"), _gpu(3, "rwm")], [1, 3]),
        ([DENY_ALL, {"allow": True, "type": "c", "access": "m"}], []),
        ([DENY_ALL, {"allow": True, "type": "c", "major": 195, "minor": -1, "access": "rw"}], [0, 1, 2, 3]),
        ([DENY_ALL, {"allow": True, "type": "c", "major": 195, "access": "rw"}], [0, 1, 2, 3]),
        ([DENY_ALL, {"allow": True, "type": "b", "major": 195, "access": "rw"}], []),
        ([DENY_ALL, _gpu(0), _gpu(1), _gpu(0, allow=False)], [1]),
        ([{"allow": True, "access": "rwm"}, _gpu(2, "w", allow=False)], [0, 1, 3]),
        ([{"allow": True, "access": "rwm"}, _gpu(2, "m", allow=False)], [0, 1, 2, 3]),
        ([_gpu(0), DENY_ALL], []),
        ([_gpu(0), {"allow": False, "type": "a", "major": -1, "minor": -1, "access": "rwm"}, _gpu(1)], [1]),
        ([DENY_ALL, {"allow": True, "type": "c", "major": 195, "minor": 2}], [2]),
    ],
)
def test_rules_are_applied_in_their_order(devices: list[object], expected: list[int]) -> None:
    policy = parse_bundle(_bundle(*devices))
    assert policy is not None
    assert policy.source is PolicySource.OCI
    assert [node.minor for node in GPUS if policy.allows(node, READ_WRITE) is Verdict.ALLOW] == expected


def test_reading_and_writing_are_told_apart() -> None:
    policy = parse_bundle(_bundle(DENY_ALL, _gpu(0, "r")))
    assert policy is not None
    assert policy.allows(GPUS[0], Permission.READ) is Verdict.ALLOW
    assert policy.allows(GPUS[0], READ_WRITE) is Verdict.DENY


def test_a_privileged_container_is_unrestricted() -> None:
    policy = parse_bundle(_bundle({"allow": True, "access": "rwm"}))
    assert policy is not None
    assert classify(policy, GPUS) is AccessClass.UNRESTRICTED


@pytest.mark.parametrize(
    "text", ["{}", '{"linux": null}', '{"linux": {"resources": {}}}', '{"linux": {"resources": {"devices": []}}}']
)
def test_a_bundle_without_rules_does_not_answer(text: str) -> None:
    assert parse_bundle(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "nonsense",
        "[" * 100_000,
        '{"linux": {"resources": {"devices": 1}}}',
        _bundle("c 195:0 rw"),
        _bundle({"type": "c", "major": 195, "minor": 0, "access": "rw"}),
        _bundle({"allow": True, "type": "q"}),
        _bundle({"allow": True, "type": "c", "major": "195"}),
        _bundle({"allow": True, "type": "c", "access": "rwx"}),
        _bundle({"allow": True, "type": ["c"]}),
    ],
)
def test_what_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_bundle(text)


def test_gpus_that_are_named() -> None:
    policy = parse_bundle(_bundle(DENY_ALL, _gpu(7), _gpu(8), _gpu(8, allow=False), _gpu(9, "m")))
    assert policy is not None
    assert policy.named_minors(195) == {7}
