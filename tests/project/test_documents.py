# SPDX-License-Identifier: Apache-2.0
"""What the documents say is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from otel_gpu_cgroup.otel.instruments import (
    AGENT_INSTRUMENTS,
    CONTAINER_INSTRUMENTS,
    DEVICE_INSTRUMENTS,
    USAGE_INSTRUMENTS,
)
from otel_gpu_cgroup.settings import OPTIONS

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


def block(document: Path, name: str) -> list[str]:
    """The lines of a table between its two markers, without its heading."""
    match = re.search(rf"<!-- {name}:.*?-->\n(.*?)<!-- /{name} -->", document.read_text(), re.DOTALL)
    assert match is not None, f"{document.name} has no block {name}"
    return match[1].splitlines()[2:]


def test_readme_lists_every_metric_as_the_table_of_instruments_has_it() -> None:
    rows = (*CONTAINER_INSTRUMENTS, *DEVICE_INSTRUMENTS, *USAGE_INSTRUMENTS, *AGENT_INSTRUMENTS)
    expected = [f"| `{row.name}` | {row.kind.value} | {row.unit} | {row.description} |" for row in rows]
    assert block(README, "metrics") == expected


def test_readme_lists_every_option_as_the_settings_have_it() -> None:
    expected = [
        f"| `{option.flag}` | {', '.join(option.commands) or 'all'} | `{option.variable}` | {option.help} |"
        for option in OPTIONS
    ]
    assert block(README, "options") == expected


@pytest.mark.parametrize("document", ["README.md", "ARCHITECTURE.md", "collector-config/README.md"])
def test_every_file_and_name_that_a_document_quotes_exists(document: str) -> None:
    text = (ROOT / document).read_text()
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert ((ROOT / document).parent / link).exists(), link
    sources = "".join(
        path.read_text() for folder in ("otel_gpu_cgroup", "tests") for path in ROOT.glob(f"{folder}/**/*.py")
    )
    for name in re.findall(r"`(test_\w+|[A-Z][A-Za-z]+[a-z](?:\.\w+)?)`", text):
        if document == "ARCHITECTURE.md":
            for part in name.split("."):
                assert re.search(rf"\b{part}\b", sources), name


def test_nothing_that_only_one_machine_has_is_in_the_tree() -> None:
    """Paths of a developer's machine and registries' hosts do not belong into a project."""
    words = re.compile("/" + "work/|py" + "thonhosted|proxy." + "golang|deb." + "debian|registry." + "npmjs")
    for path in ROOT.rglob("*"):
        relative = path.relative_to(ROOT)
        made = relative.parts[0].startswith((".", "build", "dist")) or "__pycache__" in relative.parts
        if path.is_file() and not made:
            text = path.read_bytes().decode("utf-8", "replace")
            assert not words.search(text), relative
