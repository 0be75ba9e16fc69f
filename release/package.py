#!/usr/bin/env python3
"""Packages built programs for a release: python3 release/package.py --to DIR ARCH=DIR...

ARCH is x86_64 or aarch64; its DIR has the four programs. Writes to --to, without network access if all crates are
downloaded:

  ip-lookup-VERSION-ARCH-linux.tar.gz  programs, man pages, completions, systemd unit, documents and the files that they
                                       link to, files for Prometheus and Grafana, licenses
  ip-lookup-chart-VERSION.tgz          the Helm chart
  ip-lookup-VERSION.cdx.json           the software bill of materials (CycloneDX)
  SHA256SUMS                           checksums of all of these

The same input gives the same bytes: all times are SOURCE_DATE_EPOCH or, without it, the time of the commit.
"""

import argparse
import fnmatch
import gzip
import hashlib
import io
import os
import pathlib
import platform
import re
import struct
import subprocess
import tarfile
import tempfile

import sbom
from project import ARCHITECTURES, PROGRAMS, REPOSITORY, ROOT, VERSION, fail, source_time

CHART = ROOT / "helm/ip-lookup"
# A link of a Markdown document to a file, without the section.
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#]+)")
# Where each shell looks for completions below /usr/local.
COMPLETIONS = {
    "bash": "share/bash-completion/completions/{}",
    "zsh": "share/zsh/site-functions/_{}",
    "fish": "share/fish/vendor_completions.d/{}.fish",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", required=True, type=pathlib.Path, help="directory for the packages; must not exist")
    parser.add_argument("--registry", default="", help="where the chart finds the images, such as ghcr.io/OWNER")
    parser.add_argument("--allow-dynamic", action="store_true", help="accept programs that need shared libraries")
    parser.add_argument("--compression", type=int, choices=range(1, 10), default=9, help="9, the default, is slowest")
    parser.add_argument("programs", nargs="+", metavar="ARCH=DIR")
    args = parser.parse_args()
    builds = parse_builds(parser, args.programs)
    for architecture, directory in builds.items():
        check_programs(architecture, directory, args.allow_dynamic)
    host = builds.get(platform.machine())
    if host is None:
        fail(f"the programs for this machine ({platform.machine()}) must be among the given ones: they print man pages")
    check_versions(host)

    seconds = source_time()
    crates = sbom.Crates(builds)
    common = documents(crates) | manuals(host)
    packages = {
        f"ip-lookup-chart-{VERSION}.tgz": archive("ip-lookup", chart(args.registry), seconds, args.compression),
        f"ip-lookup-{VERSION}.cdx.json": sbom.bom(builds, seconds, crates).encode(),
    }
    for architecture, directory in builds.items():
        programs = {f"bin/{name}": (directory / name).read_bytes() for name in PROGRAMS}
        folder = f"ip-lookup-{VERSION}-{architecture}-linux"
        packages[f"{folder}.tar.gz"] = archive(folder, common | programs, seconds, args.compression)
    sums = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(packages.items())]
    packages["SHA256SUMS"] = "".join(sums).encode()

    args.to.mkdir(parents=True)
    for name, content in packages.items():
        (args.to / name).write_bytes(content)
    print("".join(sums), end="")


def parse_builds(parser, pairs):
    builds = {}
    for pair in pairs:
        architecture, _, directory = pair.partition("=")
        if architecture not in ARCHITECTURES or not directory or architecture in builds:
            parser.error(f"{pair!r} is not ARCH=DIR with one of {', '.join(ARCHITECTURES)}, each once")
        builds[architecture] = pathlib.Path(directory)
    return builds


def check_programs(architecture, directory, allow_dynamic):
    for name in PROGRAMS:
        file = directory / name
        if not file.is_file():
            fail(f"{file} is missing")
        machine, is_dynamic = elf(file)
        if machine != ARCHITECTURES[architecture]:
            fail(f"{file} is not for {architecture}")
        if is_dynamic and not allow_dynamic:
            fail(f"{file} needs shared libraries; build it for {architecture}-unknown-linux-musl")


def elf(file):
    """The machine number of an ELF file (64 bits, little-endian), and whether it names a dynamic loader."""
    content = file.read_bytes()
    if content[:6] != b"\x7fELF\x02\x01":
        fail(f"{file} is not a 64-bit ELF file")
    (machine,) = struct.unpack_from("<H", content, 18)
    (offset,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    interpreter = 3
    kinds = [struct.unpack_from("<I", content, offset + index * size)[0] for index in range(count)]
    return machine, interpreter in kinds


def check_versions(directory):
    for name in PROGRAMS:
        printed = run(directory / name, "-V").decode().strip()
        if printed != f"{name} {VERSION}":
            fail(f"{directory / name} -V prints {printed!r}; Cargo.toml has {VERSION}")


def run(*command):
    # Without the environment: it must not change the man pages.
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, env={}).stdout


def manuals(directory):
    """Man pages and completions, printed by the programs themselves."""
    files = {}
    for name in PROGRAMS:
        for shell, path in COMPLETIONS.items():
            files[path.format(name)] = run(directory / name, "completions", shell)
        with tempfile.TemporaryDirectory() as pages:
            run(directory / name, "man", "--to", pages)
            for page in pathlib.Path(pages).iterdir():
                files[f"share/man/man1/{page.name}"] = page.read_bytes()
    return files


def documents(crates):
    paths = [ROOT / name for name in ["LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md"]]
    paths += [path for name in ["docs", "deploy/monitoring"] for path in (ROOT / name).rglob("*") if path.is_file()]
    # Symbolic links become files.
    files = {str(path.relative_to(ROOT)): path.read_bytes() for path in with_linked_files(paths)}
    unit = ROOT / "deploy/systemd/ip-lookup.service"
    files["lib/systemd/system/ip-lookup.service"] = unit.read_bytes()
    files["THIRD-PARTY-LICENSES.txt"] = sbom.licenses(crates).encode()
    return files


def with_linked_files(paths):
    """The given files, and all files that they link to, directly or through other documents."""
    found, waiting = set(), list(paths)
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        if path.suffix == ".md":
            links = LINK.findall(path.read_text())
            # Without following symbolic links: the name in the archive is that of the link.
            waiting += [pathlib.Path(os.path.normpath(path.parent / link)) for link in links]
    return sorted(found)


def chart(registry):
    """The files of the chart. The address of the repository, that of the runbooks and the registry of our images are filled
    in."""
    ignored = [line.rstrip("/") for line in (CHART / ".helmignore").read_text().split()]
    files = {}
    for path in sorted(CHART.rglob("*")):
        parts = path.relative_to(CHART).parts
        if path.is_file() and not any(fnmatch.fnmatch(part, pattern) for part in parts for pattern in ignored):
            files["/".join(parts)] = path.read_bytes()
    if REPOSITORY:
        files["Chart.yaml"] += f"home: {REPOSITORY}\nsources:\n  - {REPOSITORY}\n".encode()
        unset = b'    runbookUrl: ""\n'
        if files["values.yaml"].count(unset) != 1:
            fail(f"values.yaml has no line {unset.decode()!r}")
        # The runbooks of this version, so that a link from an older chart does not lead to newer alerts.
        runbooks = f"    runbookUrl: {REPOSITORY}/blob/v{VERSION}/docs/runbooks.md\n"
        files["values.yaml"] = files["values.yaml"].replace(unset, runbooks.encode())
    if registry:
        if not re.fullmatch(r"[a-z0-9][a-z0-9._:/-]*[a-z0-9]", registry):
            fail(f"--registry {registry!r} is not a registry in lower case, such as ghcr.io/owner")
        ours = re.compile(rb"^( +repository: )(ip-lookup/)", re.MULTILINE)
        files["values.yaml"], count = ours.subn(rb"\g<1>" + registry.encode() + rb"/\g<2>", files["values.yaml"])
        if count != 3:
            fail(f"values.yaml has {count} images of ip-lookup, not 3")
    return files


def archive(folder, files, seconds, compression):
    """A tar.gz of `files` in `folder`. Names are sorted, owners and modes fixed; programs are executable."""
    tar_bytes = io.BytesIO()
    with tarfile.open(fileobj=tar_bytes, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(files):
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mtime = len(files[name]), seconds
            entry.mode = 0o755 if name.startswith("bin/") else 0o644
            entry.uname = entry.gname = "root"
            tar.addfile(entry, io.BytesIO(files[name]))
    # Without a name and a time in the header.
    return gzip.compress(tar_bytes.getvalue(), compresslevel=compression, mtime=0)


if __name__ == "__main__":
    main()
