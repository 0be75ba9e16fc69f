#!/usr/bin/env python3
"""Updates the built-in timezone data: `python3 crates/geo/timezones.py`.

It takes IANA's timezone data (in the public domain), compiled, out of the PyPI package tzdata: the rules of each timezone
and their version to data/timezones.tar.gz, the timezones of each country to data/zone.tab. Run the tests of this crate
before you commit the two files. With --check, it writes nothing and fails if the package has a newer version; a weekly
workflow runs it.

It needs pip, unless you give it the package as a file.
"""

import argparse
import gzip
import io
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

DATA = pathlib.Path(__file__).parent / "data"
ARCHIVE = DATA / "timezones.tar.gz"
FOLDER = "tzdata/zoneinfo/"


def download(directory):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", directory, "tzdata"]
    subprocess.run(command, check=True, timeout=600)
    return next(pathlib.Path(directory).iterdir())


def read_package(path):
    """Returns the version, the content of zone.tab, and the files of the timezones by name."""
    with zipfile.ZipFile(path) as package:
        names = [name.removeprefix(FOLDER) for name in package.namelist() if name.startswith(FOLDER)]
        files = {name: package.read(FOLDER + name) for name in names}
    version = files["tzdata.zi"].split(b"\n")[0].decode().removeprefix("# version ")
    return version, files["zone.tab"], {name: file for name, file in files.items() if file.startswith(b"TZif")}


def archive(version, timezones):
    """A compressed archive that depends on its content only: its headers have no time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, file in [("+VERSION", version.encode()), *sorted(timezones.items())]:
            entry = tarfile.TarInfo(name)
            entry.size = len(file)
            tar.addfile(entry, io.BytesIO(file))
    return gzip.compress(buffer.getvalue(), 9, mtime=0)


def built_in_version():
    with tarfile.open(ARCHIVE) as tar:
        return tar.extractfile("+VERSION").read().decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", nargs="?", help="a file made with `pip download --no-deps tzdata`; default: download it")
    parser.add_argument("--check", action="store_true", help="fail if there is a newer version; write nothing")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        version, zone_tab, timezones = read_package(args.package or download(directory))
    if args.check:
        if version != built_in_version():
            sys.exit(f"tzdata {version} is available, {built_in_version()} is built in: run crates/geo/timezones.py")
        return
    ARCHIVE.write_bytes(archive(version, timezones))
    (DATA / "zone.tab").write_bytes(zone_tab)
    print(f"tzdata {version}: {len(timezones)} timezones, {ARCHIVE.stat().st_size:,} bytes compressed")


if __name__ == "__main__":
    main()
