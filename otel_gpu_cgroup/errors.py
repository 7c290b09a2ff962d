# SPDX-License-Identifier: Apache-2.0
"""Every error that this package raises on purpose.

GpuCgroupError
├── SettingsError        a wrong option or environment value
├── HostUnreadable       a file of the host that cannot be read
│   └── Gone             ... because it is not there (any more)
├── ParseError           a file of the host whose content is not what the kernel writes
├── PolicyUnreadable     nobody can say what a cgroup allows
├── UnsupportedProgram   a device program that cannot be decoded or run
│   └── ProgramTooLong   ... because it takes too many steps
├── NvmlUnavailable      no NVML on this host, or none that answers
├── NvmlQueryFailed      one NVML query of one device failed
│   ├── NvmlUnsupported  ... because the device does not have what was asked
│   ├── NvmlRefused      ... because this process may not ask
│   └── NvmlDeviceLost   ... because the device answers nothing any more
├── NoSuchContainer      a word that names no container here, or several
└── MissingExtra         a command needs a package that is not installed
"""

from __future__ import annotations

from otel_gpu_cgroup.printable import printable


class GpuCgroupError(Exception):
    """What a person may have to act on; its text is one line: what, where, what to do."""


class SettingsError(GpuCgroupError):
    """An option or environment variable holds a value that is not allowed."""

    def __init__(self, name: str, value: str, allowed: str) -> None:
        super().__init__(f"{name}: {value!r} is not allowed; use {allowed}")


class HostUnreadable(GpuCgroupError):
    """A file or folder of the host cannot be read."""


class Gone(HostUnreadable):
    """A file or folder is not there: its container, process or device has ended, or never was."""


class ParseError(GpuCgroupError):
    """A text is not in the form that its writer (the kernel, the driver) uses."""

    def __init__(self, text: str, expected: str) -> None:
        super().__init__(f"'{printable(text, limit=120)}' is not {expected}")


class PolicyUnreadable(GpuCgroupError):
    """What a cgroup allows cannot be found out; the answer is unknown, never "none"."""

    def __init__(self, message: str, subject: str | None = None) -> None:
        """Name a subject for what concerns more than one cgroup, such as a missing privilege."""
        super().__init__(message)
        self.subject = subject


class UnsupportedProgram(GpuCgroupError):
    """A device program whose answer cannot be computed; it is unknown, never "none"."""


class ProgramTooLong(UnsupportedProgram):
    """A device program that does not end within the steps that are given to it."""


class NvmlUnavailable(GpuCgroupError):
    """NVML cannot be used now; it may be usable later."""


class NvmlQueryFailed(GpuCgroupError):
    """One NVML query of one device failed."""


class NvmlUnsupported(NvmlQueryFailed):
    """The device (or its driver) does not offer what one query asks for."""


class NvmlRefused(NvmlQueryFailed):
    """The driver does not answer one query to a process without more privilege."""


class NvmlDeviceLost(NvmlQueryFailed):
    """The device has fallen off the bus or needs a reset; no query of it will be answered."""


class NoSuchContainer(GpuCgroupError):
    """What a person named is no container of this host, or more than one."""


class MissingExtra(GpuCgroupError):
    """A command needs packages that an extra of this distribution brings."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs more packages: pip install 'otel-gpu-cgroup[{extra}]'")
