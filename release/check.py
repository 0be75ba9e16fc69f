#!/usr/bin/env python3
"""Checks that everything is ready for a release, and prints its notes: python3 release/check.py TAG [--repository URL]

TAG is v and the version. All files that name the version must agree, CHANGELOG.md must have a dated section for it, and
the repository in Cargo.toml must be URL.
"""

import argparse
import re
import sys

from project import REPOSITORY, ROOT, VERSION

# Semantic Versioning 2.0.0, without build metadata, which a tag of an image can't contain.
SEMVER = re.compile(r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?")


def problems(tag, repository):
    if not SEMVER.fullmatch(tag):
        yield f"the tag {tag} is not v and a semantic version, such as v1.2.3"
    if tag != f"v{VERSION}":
        yield f"the tag is {tag}, but the version in Cargo.toml is {VERSION}"
    for file, pattern in [
        ("helm/ip-lookup/Chart.yaml", r"^version: (.*)$"),
        ("helm/ip-lookup/Chart.yaml", r'^appVersion: "(.*)"$'),
        ("Dockerfile", r'org\.opencontainers\.image\.version="(.*)"'),
    ]:
        found = re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE)
        if not found or set(found) != {VERSION}:
            yield f"{file} has {', '.join(found) or 'no version'} where {VERSION} is expected ({pattern})"
    if repository is not None and REPOSITORY != repository:
        yield f"repository in Cargo.toml is {REPOSITORY!r}; set it to {repository!r} (see RELEASING.md)"
    if not notes():
        yield f"CHANGELOG.md has no section '## [{VERSION}] - YYYY-MM-DD', or it is empty"


def notes():
    """The section of this version in CHANGELOG.md."""
    heading = rf"^## \[{re.escape(VERSION)}\] - \d{{4}}-\d{{2}}-\d{{2}}\n(.*?)(?=^## |\Z)"
    found = re.search(heading, (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tag", metavar="TAG")
    parser.add_argument("--repository", metavar="URL")
    args = parser.parse_args()
    found = list(problems(args.tag, args.repository))
    if found:
        sys.exit("\n".join(f"error: {problem}" for problem in found))
    print(notes())


if __name__ == "__main__":
    main()
