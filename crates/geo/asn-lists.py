#!/usr/bin/env python3
"""Checks the built-in lists of hosting networks and of VPN and proxy networks: `python3 crates/geo/asn-lists.py`.

It compares data/hosting-asns.txt and data/proxy-asns.txt with the npm package @ip-location-db/asn, which has every
announced network with its operator's name (CC BY 4.0, data by Route Views, NRO and DB-IP.com). It reports:

- networks that are no longer announced. With --write, they are removed, and the lists get the package's date.
- networks whose operator has another name than the list. Find out who runs the network now, then remove the line, or
  add the operator's name in parentheses: "RamNode (InMotion Hosting)".
- the addresses that each list covers.
- candidates, largest first (a /48 network of IPv6 counts as much as an IPv4 address): networks that are not listed, but
  have the same operator as a listed one or a name that suggests hosting or a VPN; networks that the crate cloudcheck
  (AGPL-3.0, only read here) has among those of an operator in the hosting list, from the records of the registries; and
  networks in the lists given with --compare. None of them proves anything: look at the operator's site before you add a
  line.

It fails while a line of a list needs attention. It needs npm and crates.io, unless you give it the packages as files. Since
June 2026, the npm package says that its data is incorrect and gets no updates. ip-location-db's new releases have two files
instead, with the license PDDL-1.0 (-R keeps their date):

  curl -RLO "https://github.com/sapics/ip-location-db/releases/download/latest/origin-asn-ipv{4,6}-num.csv"
  python3 crates/geo/asn-lists.py origin-asn-ipv4-num.csv origin-asn-ipv6-num.csv
"""

import argparse
import collections
import csv
import datetime
import io
import json
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import unicodedata
import urllib.request

PACKAGE = "@ip-location-db/asn"
CRATE = "cloudcheck"
DATA = pathlib.Path(__file__).parent / "data"
# Words of a name that suggest what the network is used for.
LISTS = {
    "hosting": r"host(ing|er|s)?\b|hosting|cloud|server|\bvps|data ?cent(er|re)|\bcolo(cation)?\b|dedicated|\bcdn\b",
    "proxy": r"\bvpn|vpn\b|prox(y|ies)\b|\btor\b|anonymi[sz]e|privacy",
}
LEGAL_FORMS = set(
    """ag as bv co company corp corporation gmbh inc jsc kg limited llc llp ltd ltda pte pty pvt sa sarl sas sia spa srl
    sro uab""".split()
)
# Words that many operators have in their names: they do not identify an operator.
COMMON_WORDS = LEGAL_FORMS | set(
    """asia center cloud com communications data datacenter des digital enterprises europe for global group holding
    holdings host hosting information international internet network networks of online private server servers service
    services solution solutions systems tech technologies technology telecom telecommunications the trading uk us usa
    web""".split()
)


class Network:
    """An announced network: its operator's name, its IPv4 addresses and its IPv6 networks of 48 bits."""

    def __init__(self):
        self.name, self.ipv4, self.ipv6 = "", 0, 0

    def __str__(self):
        return f"{self.ipv4:>11,} {self.ipv6:>11,}  {self.name}"


def download(directory):
    command = ["npm", "pack", "--silent", PACKAGE]
    result = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    return pathlib.Path(directory) / result.stdout.split()[-1]


def fetch(url):
    with urllib.request.urlopen(url, timeout=60) as response:
        return response.read()


def download_crate(directory):
    """Downloads the newest version with cargo, as a dependency of an empty package."""
    package = pathlib.Path(directory) / "empty"
    (package / "src").mkdir(parents=True)
    (package / "src/lib.rs").touch()
    manifest = f'[package]\nname = "empty"\nedition = "2021"\n[dependencies]\n{CRATE} = "*"\n'
    (package / "Cargo.toml").write_text(manifest)
    subprocess.run(["cargo", "vendor", "--quiet", "vendor"], cwd=package, stdout=subprocess.DEVNULL, check=True, timeout=600)
    path = pathlib.Path(directory) / f"{CRATE}.crate"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(package / "vendor" / CRATE, arcname=CRATE)
    return path


def read_crate(path):
    """Returns the AS numbers of each operator."""
    with tarfile.open(path) as archive:
        name = next(name for name in archive.getnames() if name.endswith("/cloud_providers_v3.json"))
        return [set(operator["asns"]) for operator in json.load(archive.extractfile(name)).values()]


def read_other_list(source):
    """Returns the AS numbers in a text, such as "AS64500 # name"."""
    text = fetch(source) if "://" in source else pathlib.Path(source).read_bytes()
    return {int(number) for number in re.findall(rb"\bAS(\d+)", text)}


def add_networks(networks, ipv4, ipv6):
    """Adds the rows of the two files, for each IP version one: first and last address, AS number, name."""
    for first, last, number, name in csv.reader(ipv4):
        network = networks[int(number)]
        network.name, network.ipv4 = name, network.ipv4 + int(last) - int(first) + 1
    for first, last, number, name in csv.reader(ipv6):
        network = networks[int(number)]
        network.name = network.name or name
        network.ipv6 += (int(last) - int(first) + 1) >> 80


def read_package(path):
    """Returns the package's name with its license, its date and its networks by AS number."""
    networks = collections.defaultdict(Network)
    with tarfile.open(path) as archive:
        text = lambda name: io.TextIOWrapper(archive.extractfile(f"package/{name}"), encoding="utf-8", newline="")
        version = json.load(text("package.json"))["version"]
        add_networks(networks, text("asn-ipv4-num.csv"), text("asn-ipv6-num.csv"))
    # The last part of the version is the time of the data: 2026061719 is 2026-06-17, 19 h.
    date = re.sub(r".*\.(\d{4})(\d\d)(\d\d)\d*$", r"\1-\2-\3", version)
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", date):
        sys.exit(f"{PACKAGE} {version}: the version does not end with a date; update this script")
    return f"{PACKAGE} {version} (CC BY 4.0, data by Route Views, NRO and DB-IP.com)", date, dict(networks)


def read_release(ipv4, ipv6):
    """The same of two files of a release."""
    networks = collections.defaultdict(Network)
    with open(ipv4, encoding="utf-8", newline="") as first, open(ipv6, encoding="utf-8", newline="") as second:
        add_networks(networks, first, second)
    date = datetime.datetime.fromtimestamp(pathlib.Path(ipv4).stat().st_mtime, datetime.timezone.utc).date().isoformat()
    return f"origin-asn of ip-location-db's release of {date} (PDDL-1.0)", date, dict(networks)


def read_list(name):
    """Returns the comment lines of a list, and its names by AS number."""
    lines = (DATA / f"{name}-asns.txt").read_text(encoding="utf-8").splitlines()
    entries = [line.split("\t") for line in lines if not line.startswith("#")]
    return [line for line in lines if line.startswith("#")], {int(number): label for number, label in entries}


def write_list(name, comments, entries, source, date):
    generated = ("# Date:", "# Checked with")
    comments = [line for line in comments if not line.startswith(generated)]
    comments += [
        f"# Date: {date}",
        f"# Checked with {source} by asn-lists.py.",
    ]
    lines = comments + [f"{number}\t{label}" for number, label in sorted(entries.items())]
    (DATA / f"{name}-asns.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def words(name):
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    without_dots = re.sub(r"\b([a-z])\.(?=[a-z]\b)", r"\1", plain)
    return re.findall("[a-z0-9]+", without_dots)


def operator(name):
    """A name without spaces and legal forms: "godaddycom" for "GoDaddy.com, LLC"."""
    return "".join(word for word in words(name) if word not in LEGAL_FORMS)


def contains_name(text, name):
    """Whether the text contains the whole name, or a word of it that identifies an operator."""
    joined = operator(text)
    if operator(name) and operator(name) in joined:
        return True
    identifying = [word for word in words(name) if word not in COMMON_WORDS and len(word) > 1]
    return any(word in words(text) or (len(word) > 3 and word in joined) for word in identifying)


def same_name(ours, theirs):
    return contains_name(ours, theirs) or contains_name(theirs, ours)


def check(name, entries, networks):
    """Prints the lines that need attention. Returns the networks to remove and the number of other names."""
    gone = [number for number in entries if number not in networks]
    for number in gone:
        print(f"{name}: {number} {entries[number]}: not announced")
    renamed = 0
    for number, label in entries.items():
        theirs = networks[number].name if number in networks else label
        if theirs in ("", f"AS{number}"):
            print(f"{name}: {number} {label}: the package does not have the operator's name; check it elsewhere")
        elif not same_name(label, theirs):
            print(f"{name}: {number} {label}: the operator is {theirs}")
            renamed += 1
    listed = [networks[number] for number in entries if number in networks]
    ipv4, ipv6 = sum(network.ipv4 for network in listed), sum(network.ipv6 for network in listed)
    print(f"{name}: {len(listed)} announced networks with {ipv4:,} IPv4 addresses and {ipv6:,} IPv6 /48 networks")
    return gone, renamed


def print_candidates(name, entries, all_listed, networks, sources, count):
    """Prints the candidates. Other sources have a title and AS numbers each."""
    operators = {operator(networks[number].name) for number in entries if number in networks} - {""}
    suggests = re.compile(LISTS[name], re.IGNORECASE)
    unlisted = [(number, network) for number, network in networks.items() if number not in all_listed]
    same = [item for item in unlisted if operator(item[1].name) in operators]
    others = [item for item in unlisted if operator(item[1].name) not in operators]
    similar = [item for item in others if suggests.search(item[1].name)]
    groups = [("the same operator as a listed network", same), ("a name that suggests it", similar)]
    groups += [(title, [item for item in unlisted if item[0] in numbers]) for title, numbers in sources]
    for title, found in groups:
        print(f"\n{name}: candidates with {title} ({len(found)}): AS number, IPv4 addresses, IPv6 /48 networks, name")
        for number, network in sorted(found, key=lambda item: -item[1].ipv4 - item[1].ipv6)[:count]:
            print(f"{number:>10} {network}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    help = f"a file made with `npm pack {PACKAGE}`, or the two files of a release; default: download the package"
    parser.add_argument("package", nargs="*", help=help)
    parser.add_argument("--crate", metavar="FILE", help=f"the crate {CRATE} as a file; default: download it")
    parser.add_argument(
        "--compare",
        action="append",
        default=[],
        metavar="LIST=SOURCE",
        help="a file or URL with AS numbers (AS64500) of hosting or proxy networks, as in hosting=asns.txt",
    )
    parser.add_argument("--write", action="store_true", help="remove networks that are not announced; set the date")
    parser.add_argument("--candidates", type=int, default=40, metavar="COUNT", help="how many to show of each kind")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        read = read_release if len(args.package) == 2 else read_package
        source, date, networks = read(*(args.package or [download(directory)]))
        operators = read_crate(args.crate or download_crate(directory))
    print(f"{source}: {len(networks):,} networks, announced on {date}")
    lists = {name: read_list(name) for name in LISTS}
    problems = 0
    for name, (comments, entries) in lists.items():
        gone, renamed = check(name, entries, networks)
        problems += renamed
        if args.write:
            for number in gone:
                del entries[number]
            write_list(name, comments, entries, source, date)
        else:
            problems += len(gone)
    all_listed = {number for _, entries in lists.values() for number in entries}
    sources = {name: [] for name in LISTS}
    listed_operators = [numbers for numbers in operators if numbers & lists["hosting"][1].keys()]
    sources["hosting"].append((f"an operator in the list, according to {CRATE}", set().union(*listed_operators)))
    for name, source in (item.split("=", 1) for item in args.compare):
        sources[name].append((f"a line in {source}", read_other_list(source)))
    for name, (_, entries) in lists.items():
        print_candidates(name, entries, all_listed, networks, sources[name], args.candidates)
    if problems:
        sys.exit(f"\n{problems} lines need attention: see above")


if __name__ == "__main__":
    main()
