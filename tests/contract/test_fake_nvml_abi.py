# SPDX-License-Identifier: Apache-2.0
"""The fake's own declarations agree with pynvml's structures and with NVIDIA's header (of nvidia-nvml-dev)."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
from collections import ChainMap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pynvml

from tests.fakes.fake_nvml import SOURCES
from tests.support.need import need

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OWN_HEADER = SOURCES / "abi.h"


class Twin(NamedTuple):
    own: str
    header: str
    binding: str


STRUCTURES = (
    Twin("struct pci_info", "nvmlPciInfo_t", "nvmlPciInfo_t"),
    Twin("struct pci_info_ext", "nvmlPciInfoExt_v1_t", "nvmlPciInfoExt_v1_t"),
    Twin("struct memory", "nvmlMemory_t", "c_nvmlMemory_t"),
    Twin("struct memory_v2", "nvmlMemory_v2_t", "c_nvmlMemory_v2_t"),
    Twin("struct bar1_memory", "nvmlBAR1Memory_t", "c_nvmlBAR1Memory_t"),
    Twin("struct utilization", "nvmlUtilization_t", "c_nvmlUtilization_t"),
    Twin("union value", "nvmlValue_t", "c_nvmlValue_t"),
    Twin("struct sample", "nvmlSample_t", "c_nvmlSample_t"),
    Twin("struct process_info", "nvmlProcessInfo_t", "c_nvmlProcessInfo_v2_t"),
    Twin("struct process_utilization", "nvmlProcessUtilizationSample_t", "c_nvmlProcessUtilizationSample_t"),
    Twin(
        "struct process_utilization_info",
        "nvmlProcessUtilizationInfo_v1_t",
        "c_nvmlProcessUtilizationInfo_v1_t",
    ),
    Twin(
        "struct processes_utilization_info",
        "nvmlProcessesUtilizationInfo_v1_t",
        "c_nvmlProcessesUtilizationInfo_v1_t",
    ),
    Twin("struct device_attributes", "nvmlDeviceAttributes_t", "c_nvmlDeviceAttributes"),
    Twin("struct temperature", "nvmlTemperature_v1_t", "c_nvmlTemperature_v1_t"),
    Twin("struct gpm_support", "nvmlGpmSupport_t", "c_nvmlGpmSupport_t"),
    Twin("struct gpm_metric", "nvmlGpmMetric_t", "c_nvmlGpmMetric_t"),
    Twin("struct field_value", "nvmlFieldValue_t", "c_nvmlFieldValue_t"),
)

WITHOUT_AN_END = Twin("struct gpm_metrics", "nvmlGpmMetricsGet_t", "c_nvmlGpmMetricsGet_t")
"""Its array has another length in each version."""

VALUE_TYPES = (
    "DOUBLE",
    "UNSIGNED_INT",
    "UNSIGNED_LONG",
    "UNSIGNED_LONG_LONG",
    "SIGNED_LONG_LONG",
    "SIGNED_INT",
    "UNSIGNED_SHORT",
)

CONSTANTS = (
    Twin("VERSION_WORD(struct memory_v2, 2)", "nvmlMemory_v2", "nvmlMemory_v2"),
    Twin("VERSION_WORD(struct pci_info_ext, 1)", "nvmlPciInfoExt_v1", "nvmlPciInfoExt_v1"),
    Twin("VERSION_WORD(struct temperature, 1)", "nvmlTemperature_v1", "nvmlTemperature_v1"),
    Twin(
        "VERSION_WORD(struct processes_utilization_info, 1)",
        "nvmlProcessesUtilizationInfo_v1",
        "ProcessesUtilizationInfo_v1",
    ),
    Twin("SUCCESS", "NVML_SUCCESS", "NVML_SUCCESS"),
    *(
        Twin(name, f"NVML_ERROR_{name}", f"NVML_ERROR_{name}")
        for name in re.findall(r"^    ([A-Z_]+) = [1-9]\d*,$", OWN_HEADER.read_text(), re.MULTILINE)
    ),
    Twin("GPM_METRIC_GRAPHICS_UTIL", "NVML_GPM_METRIC_GRAPHICS_UTIL", "NVML_GPM_METRIC_GRAPHICS_UTIL"),
    *(Twin(name, f"NVML_VALUE_TYPE_{name}", f"NVML_VALUE_TYPE_{name}") for name in VALUE_TYPES),
)


def nvidia_header() -> Path:
    spec = importlib.util.find_spec("nvidia")
    folders = spec.submodule_search_locations if spec else None
    headers = [path for folder in folders or () for path in Path(folder).glob("*/include/nvml.h")]
    need(headers, "nvml.h is not installed: pip install nvidia-nvml-dev")
    return headers[0]


def in_binding(twins: Iterable[Twin]) -> list[Twin]:
    """The twins that this version of pynvml has: the oldest supported one has fewer."""
    return [twin for twin in twins if hasattr(pynvml, twin.binding)]


def fields(twin: Twin) -> list[str]:
    return [field[0] for field in getattr(pynvml, twin.binding)._fields_]


def layout_of_binding(twin: Twin) -> dict[str, int]:
    structure = getattr(pynvml, twin.binding)
    offsets = {f"{twin.own} {name}": getattr(structure, name).offset for name in fields(twin)}
    return {twin.own: ctypes.sizeof(structure), **offsets}


def layout_in_c(twin: Twin, c_type: str) -> dict[str, str]:
    offsets = {f"{twin.own} {name}": f"offsetof({c_type}, {name})" for name in fields(twin)}
    return {twin.own: f"sizeof({c_type})", **offsets}


def evaluate(expressions: Mapping[str, str], header: Path, scratch: Path) -> dict[str, int]:
    """The value of each C expression, as the compiler computes it after including one header."""
    need(shutil.which("gcc"), "gcc is not installed")
    source, program = scratch / f"{header.stem}.c", scratch / header.stem
    prints = [f'printf("%lld\\n", (long long)({expression}));' for expression in expressions.values()]
    includes = ["#include <stddef.h>", "#include <stdio.h>", f'#include "{header}"']
    source.write_text("\n".join([*includes, "int main(void) {", *prints, "}"]))
    subprocess.run(["gcc", "-o", program, source], check=True)
    numbers = map(int, subprocess.check_output([program], text=True).split())
    return dict(zip(expressions, numbers, strict=True))


def test_structures_are_laid_out_as_in_pynvml(tmp_path: Path) -> None:
    twins = in_binding(STRUCTURES)
    own = dict(ChainMap(*(layout_in_c(twin, twin.own) for twin in twins)))
    expected = dict(ChainMap(*(layout_of_binding(twin) for twin in twins)))
    assert evaluate(own, OWN_HEADER, tmp_path) == expected


def test_structures_are_laid_out_as_in_nvidias_header(tmp_path: Path) -> None:
    twins = in_binding(STRUCTURES)
    own = dict(ChainMap(*(layout_in_c(twin, twin.own) for twin in twins)))
    theirs = dict(ChainMap(*(layout_in_c(twin, twin.header) for twin in twins)))
    assert evaluate(own, OWN_HEADER, tmp_path) == evaluate(theirs, nvidia_header(), tmp_path)


def test_a_structure_that_ends_with_an_array_has_its_fields_where_they_should_be(tmp_path: Path) -> None:
    own = layout_in_c(WITHOUT_AN_END, WITHOUT_AN_END.own)
    theirs = layout_in_c(WITHOUT_AN_END, WITHOUT_AN_END.header)
    bindings = layout_of_binding(WITHOUT_AN_END)
    for layout in (own, theirs, bindings):
        del layout[WITHOUT_AN_END.own]
    measured = evaluate(own, OWN_HEADER, tmp_path)
    assert measured == bindings
    assert measured == evaluate(theirs, nvidia_header(), tmp_path)


def test_version_words_and_codes_are_pynvmls(tmp_path: Path) -> None:
    twins = in_binding(CONSTANTS)
    measured = evaluate({twin.own: twin.own for twin in twins}, OWN_HEADER, tmp_path)
    assert measured == {twin.own: getattr(pynvml, twin.binding) for twin in twins}


def test_version_words_and_codes_are_those_of_nvidias_header(tmp_path: Path) -> None:
    own = {twin.own: twin.own for twin in CONSTANTS}
    theirs = {twin.own: twin.header for twin in CONSTANTS}
    assert evaluate(own, OWN_HEADER, tmp_path) == evaluate(theirs, nvidia_header(), tmp_path)


def test_every_function_of_the_fake_is_nvidias() -> None:
    declared = set(re.findall(r"DECLDIR (?:char\s*\*\s*)?(nvml\w+)\(", nvidia_header().read_text()))
    served = re.findall(r"X\((nvml\w+)\)", (SOURCES / "functions.h").read_text())
    assert served
    assert set(served) - declared == set()
