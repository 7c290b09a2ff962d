# SPDX-License-Identifier: Apache-2.0
"""Any information file of the driver is a GPU or refused; any PCI address is spelled in one way."""

from __future__ import annotations

import string

from hypothesis import example, given
from hypothesis import strategies as st

from otel_gpu_cgroup.nvidia.devices.nodes import parse_gpu_information, parse_pci_address
from tests.property.refusal import parsed_or_refused

keys = st.sampled_from(["Model", "GPU UUID", "Bus Location", "Device Minor", "IRQ", "Video BIOS"])
lines = st.builds(
    "{}: \t {}".format, keys, st.text(max_size=30) | st.sampled_from(["0", "7", "0000:3b:00.0", "GPU-??"])
)


@given(st.text() | st.lists(lines, max_size=8).map("\n".join))
@example("Device Minor: " + "9" * 5000)
@example("Device Minor: \u0661")
def test_any_file_is_a_gpu_or_refused_in_one_printable_line(text: str) -> None:
    gpu = parsed_or_refused(parse_gpu_information, text)
    if gpu is not None:
        assert gpu.minor >= 0
        assert gpu.uuid is None or "?" not in gpu.uuid
        assert gpu.index is None


hexadecimal = st.integers(0, 255).map("{:02x}".format)


@given(st.integers(0, 0xFFFF), hexadecimal, hexadecimal, st.integers(0, 7))
def test_an_address_is_spelled_as_the_kernel_does(domain: int, bus: str, device: str, function: int) -> None:
    rest = f":{bus}:{device}.{function}"
    for written in (f"{domain:04x}{rest}", f"{domain:08x}{rest}", f"{domain:08X}{rest.upper()}"):
        assert parse_pci_address(written) == f"{domain:04x}{rest}"


@given(st.text() | st.text(string.hexdigits + ":.", max_size=20))
def test_any_other_text_is_no_address(text: str) -> None:
    address = parsed_or_refused(parse_pci_address, text)
    if address is not None:
        assert parse_pci_address(address) == address
