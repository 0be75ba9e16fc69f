#!/usr/bin/env python3
"""Updates the built-in country data: `python3 crates/geo/built-in-geo.py`.

It takes the database for both IP versions out of the npm package @ip-location-db/geo-whois-asn-country-mmdb. That
database places many IPv6 networks of Asia in Australia, the country of the region's Internet registry. So each IPv6
network in Australia gets the country of its operator, from the npm package @ip-location-db/asn-country, if that has one.
(The same for IPv4 would make the data worse.) The result is compressed to data/built-in-geo.mmdb.gz;
data/built-in-geo.json has its versions, date, licenses and checksums, which a test compares with the file. Run the
tests of this crate before you commit the two files.

The packages have the license CC0-1.0; the data that they were made from has CC BY 4.0, by the NRO (their file
NRO_LICENSE). lookup-svc complies with both: /docs shows the attribution to the NRO. The script fails if a package has
other licenses: find out first whether the service can comply with them.

It needs npm, unless you give it the packages as files. Since June 2026, the packages say that their data is incorrect and
get no updates. ip-location-db's new releases have the file user-country.mmdb instead, with the license PDDL-1.0 and without
records of registries, so it needs no corrections:

  curl -LO https://github.com/sapics/ip-location-db/releases/download/latest/user-country.mmdb
  python3 crates/geo/built-in-geo.py user-country.mmdb

Then change the attribution in src/provider.rs and the test of the built-in data, which names the package and its licenses.
"""

import argparse
import bisect
import csv
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
OPERATORS_PACKAGE = "@ip-location-db/asn-country"
OPERATORS = "asn-country-ipv6-num.csv"
# A file of ip-location-db's new releases, which have no package.
RELEASE_FILE = "user-country.mmdb"
RELEASE_LICENSE = "PDDL-1.0"
LICENSE = "CC0-1.0"
# The license of the data in a package: the name of its file, and what the file must contain.
SOURCE_LICENSE = "CC-BY-4.0"
LICENSE_FILE = "NRO_LICENSE"
LICENSE_TEXT = "Creative Commons Attribution 4.0 International License"
ATTRIBUTION = "Number Resource Organization (NRO), nro.net"
DATA = pathlib.Path(__file__).parent / "data"


def download(package, directory):
    command = ["npm", "pack", "--silent", package]
    result = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    return pathlib.Path(directory) / result.stdout.split()[-1]


def read_package(package, path, file):
    """Returns the package's version and checksum, and the content of one of its files, after a check of its licenses."""
    with tarfile.open(path) as archive:
        names = {name.removeprefix("package/") for name in archive.getnames()}
        read = lambda name: archive.extractfile(f"package/{name}").read()
        text = read(LICENSE_FILE).decode() if LICENSE_FILE in names else ""
        description, content = json.loads(read("package.json")), read(file)
    licenses = {name for name in names if "LICENSE" in name.upper() or "EULA" in name.upper()}
    if description["license"] != LICENSE or licenses != {LICENSE_FILE} or LICENSE_TEXT not in text:
        sys.exit(f"{package} has other licenses than before: {description['license']}, {sorted(licenses)}")
    return description["version"], hashlib.sha256(path.read_bytes()).hexdigest(), content


def metadata_number(database, key):
    """The position and size of a number in the metadata of an MMDB file. Its first byte has the type and the size; for
    64 bits, the type is in a second byte."""
    control = database.rindex(key) + len(key)
    kind, size = database[control] >> 5, database[control] & 31
    is_64_bit = kind == 0 and database[control + 1] == 2
    if kind not in (5, 6) and not is_64_bit:
        sys.exit(f"{DATABASE}: {key.decode()} is not a number; update this script")
    return control + 1 + is_64_bit, size


def read_number(database, key):
    start, size = metadata_number(database, key)
    return int.from_bytes(database[start : start + size], "big")


def country_of(database, start):
    """The country of the record at this position: a map with one entry, whose value is a string of two letters."""
    key = start + 1
    # A key is a string or, in all records but the first, a pointer to it.
    is_pointer = database[key] >> 5 == 1
    value = key + (2 + (database[key] >> 3 & 3) if is_pointer else 1 + (database[key] & 31))
    if database[start] != 0xE1 or database[value] != 0x42:
        sys.exit(f"{DATABASE}: a record has more than a country; update this script")
    return database[value + 1 : value + 3].decode()


def replace_australia(database, operators):
    """Replaces Australia as the country of IPv6 networks by the operators' countries: rows of first and last address and
    country, in order. Networks with several operators are split."""
    count = read_number(database, b"node_count")
    if read_number(database, b"record_size") != 24:
        sys.exit(f"{DATABASE}: the search tree has another format than before; update this script")
    # The children of node N are at 2 * N and 2 * N + 1. A child is the number of a node, or `count` if there is no data,
    # or above that: the record at this position behind the tree. The children of added nodes are in another list; the
    # number of an added node is negative.
    tree = [int.from_bytes(database[at : at + 3], "big") for at in range(0, 6 * count, 3)]
    added = []
    countries = {child: country_of(database, 6 * count + child - count) for child in set(tree) if child > count}
    records = {country: child for child, country in countries.items()}
    firsts = [first for first, _, _ in operators]

    def replacement(record, network, length):
        last_of_network = network + (1 << 128 - length) - 1
        position = bisect.bisect_right(firsts, last_of_network) - 1
        first, last, country = operators[position] if position >= 0 else (0, -1, "")
        if last < network:
            return record
        if first <= network and last >= last_of_network:
            return records.get(country, record)
        halves = [replacement(record, network | half << 127 - length, length + 1) for half in (0, 1)]
        if halves[0] == halves[1]:
            return halves[0]
        added.extend(halves)
        return -len(added) // 2

    nodes = [(0, 0, 0)]
    while nodes:
        node, network, length = nodes.pop()
        for half in (0, 1):
            child, child_network = tree[2 * node + half], network | half << 127 - length
            if child < count:
                nodes.append((child, child_network, length + 1))
            # Public IPv6 addresses: 2000::/3.
            elif countries.get(child) == "AU" and child_network >> 125 == 1:
                tree[2 * node + half] = replacement(child, child_network, length + 1)

    new_count = count + len(added) // 2
    number = lambda child: count - 1 - child if child < 0 else child if child < count else child + new_count - count
    result = bytearray(b"".join(number(child).to_bytes(3, "big") for child in tree + added) + database[6 * count :])
    start, size = metadata_number(result, b"node_count")
    new_size = (new_count.bit_length() + 7) // 8
    result[start - 1 : start + size] = bytes([6 << 5 | new_size]) + new_count.to_bytes(new_size, "big")
    return bytes(result)


def build(args):
    """Returns the corrected database of the packages, and their versions, licenses and checksums."""
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(args.package or download(PACKAGE, directory))
        version, package_sha256, database = read_package(PACKAGE, path, DATABASE)
        path = pathlib.Path(args.operators or download(OPERATORS_PACKAGE, directory))
        operators_version, operators_sha256, operators = read_package(OPERATORS_PACKAGE, path, OPERATORS)
    rows = csv.reader(operators.decode().splitlines())
    database = replace_australia(database, [(int(first), int(last), country) for first, last, country in rows])
    return database, {
        "package": PACKAGE,
        "version": version,
        "file": DATABASE,
        "operators_package": OPERATORS_PACKAGE,
        "operators_version": operators_version,
        "license": LICENSE,
        "source_license": SOURCE_LICENSE,
        "attribution": ATTRIBUTION,
        "package_sha256": package_sha256,
        "operators_package_sha256": operators_sha256,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    files = (("package", PACKAGE, f", or {RELEASE_FILE} of a release"), ("operators", OPERATORS_PACKAGE, ""))
    for name, package, other in files:
        help = f"a file made with `npm pack {package}`{other}; default: download the package"
        parser.add_argument(name, nargs="?", help=help)
    args = parser.parse_args()
    built_on = lambda database: datetime.datetime.fromtimestamp(read_number(database, b"build_epoch"), datetime.timezone.utc)
    if args.package and pathlib.Path(args.package).suffix == ".mmdb":
        if pathlib.Path(args.package).name != RELEASE_FILE or args.operators:
            sys.exit(f"of a release, only {RELEASE_FILE} is used: others have other licenses")
        database = pathlib.Path(args.package).read_bytes()
        record = {"file": RELEASE_FILE, "license": RELEASE_LICENSE, "date": built_on(database).date().isoformat()}
    else:
        database, record = build(args)
        record["date"] = built_on(database).date().isoformat()
    record["sha256"] = hashlib.sha256(database).hexdigest()
    # Without a time and a file name in its header, the result depends on the database only.
    compressed = gzip.compress(database, 9, mtime=0)
    (DATA / "built-in-geo.mmdb.gz").write_bytes(compressed)
    (DATA / "built-in-geo.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(f"{record['file']} of {record['date']}")
    print(f"{len(database):,} bytes, {len(compressed):,} compressed")


if __name__ == "__main__":
    main()
