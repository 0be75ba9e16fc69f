"""What the release scripts know about the project: its version, its programs, and the time of the commit."""

import os
import pathlib
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Each program and the package that contains it.
PROGRAMS = {
    "ip-lookup": "standalone",
    "lookup-svc": "lookup-svc",
    "quota-svc": "quota-svc",
    "dashboard-api": "dashboard-api",
}
# Each architecture and its number in the header of an ELF file.
ARCHITECTURES = {"x86_64": 62, "aarch64": 183}

_PACKAGE = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
VERSION = _PACKAGE["version"]
LICENSE = _PACKAGE["license"]
# Empty if the owner has not set it: see RELEASING.md.
REPOSITORY = _PACKAGE["repository"]


def fail(message):
    sys.exit(f"error: {message}")


def output(*command):
    """The output of a command, run in the project's directory. Its errors are shown, and end this script."""
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        fail(f"{' '.join(map(str, command))} exited with {result.returncode}")
    return result.stdout


def source_time():
    """Seconds since 1970: SOURCE_DATE_EPOCH, or the time of the commit. Packages have no other time in them."""
    given = os.environ.get("SOURCE_DATE_EPOCH") or output("git", "show", "--no-patch", "--format=%ct", "HEAD")
    if not given.strip().isdecimal():
        fail(f"SOURCE_DATE_EPOCH must be a number of seconds since 1970, not {given!r}")
    return int(given)
