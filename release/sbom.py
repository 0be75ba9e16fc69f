"""The software bill of materials (SBOM), in the format CycloneDX 1.6, and the licenses of the crates in the programs."""

import collections
import datetime
import hashlib
import json
import os
import pathlib
import re
import tarfile
import tomllib
import uuid

from project import LICENSE, PROGRAMS, REPOSITORY, ROOT, VERSION, fail, output

CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"
LICENSE_FILE = re.compile(r"(licen[sc]e|copying|copyright|notice|unlicense)", re.IGNORECASE)


class Crates:
    """The crates that the programs are made of, for all given architectures.

    `shipped` are part of a program. `build_only` only run while it is compiled: procedural macros, build scripts, and
    what only these need.
    """

    def __init__(self, architectures):
        self.packages, self.dependencies = {}, collections.defaultdict(set)
        self.shipped, self.build_only = set(), set()
        for architecture in architectures:
            self._add(f"{architecture}-unknown-linux-musl")
        self.build_only -= self.shipped

    def _add(self, target):
        cargo = os.environ.get("CARGO", "cargo")
        metadata = json.loads(
            output(cargo, "metadata", "--locked", "--format-version", "1", "--filter-platform", target)
        )
        packages = {package["id"]: package for package in metadata["packages"]}
        # `cargo metadata` also enables the features that only tests need. `cargo tree` does not, but has no details.
        used = self._used(cargo, target)
        nodes = {
            node["id"]: [
                (dep["pkg"], {kind["kind"] for kind in dep["dep_kinds"]})
                for dep in node["deps"]
                if name_of(packages[dep["pkg"]]) in used
            ]
            for node in metadata["resolve"]["nodes"]
        }
        roots = [package["id"] for package in packages.values() if package["name"] in PROGRAMS.values()]
        if len(roots) != len(PROGRAMS):
            fail(f"cargo metadata has {len(roots)} of the {len(PROGRAMS)} packages with programs")
        shipped = reachable(
            roots, lambda id: [dep for dep, kinds in nodes[id] if None in kinds and not is_macro(packages[dep])]
        )
        everything = reachable(roots, lambda id: [dep for dep, kinds in nodes[id] if kinds != {"dev"}])
        self.shipped |= {name_of(packages[id]) for id in shipped}
        self.build_only |= {name_of(packages[id]) for id in everything}
        for id in everything:
            name = name_of(packages[id])
            self.packages[name] = packages[id]
            self.dependencies[name] |= {name_of(packages[dep]) for dep, kinds in nodes[id] if kinds != {"dev"}}

    @staticmethod
    def _used(cargo, target):
        selected = [argument for package in PROGRAMS.values() for argument in ("--package", package)]
        lines = output(
            cargo, "tree", "--locked", *selected, "--target", target, "--edges", "no-dev", "--prefix", "none"
        )
        # serde v1.0.228 (proc-macro) (*)
        return {tuple(line.replace(" v", " ", 1).split()[:2]) for line in lines.splitlines() if line}


def name_of(package):
    return package["name"], package["version"]


def is_macro(package):
    return any("proc-macro" in target["kind"] for target in package["targets"])


def reachable(roots, neighbors):
    found, waiting = set(roots), list(roots)
    while waiting:
        for neighbor in neighbors(waiting.pop()):
            if neighbor not in found:
                found.add(neighbor)
                waiting.append(neighbor)
    return found


def checksums():
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {name_of(package): package.get("checksum") for package in lock["package"]}


def reference(name):
    return f"pkg:cargo/{name[0]}@{name[1]}"


def component(name, crates, hashes):
    package = crates.packages[name]
    entry = {"type": "library", "bom-ref": reference(name), "name": name[0], "version": name[1]}
    if package.get("description"):
        entry["description"] = " ".join(package["description"].split())
    entry["scope"] = "required" if name in crates.shipped else "excluded"
    if hashes.get(name):
        entry["hashes"] = [{"alg": "SHA-256", "content": hashes[name]}]
    if package.get("license"):
        entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    # The crates of this workspace are not on crates.io, where another crate may have the same name.
    if package["source"] == CRATES_IO:
        entry["purl"] = reference(name)
        entry["externalReferences"] = links(package)
    elif package["source"]:
        fail(f"{name[0]} is not from crates.io: {package['source']}")
    return {key: value for key, value in entry.items() if value}


def links(package):
    found = [("vcs", package.get("repository")), ("website", package.get("homepage"))]
    return [{"type": kind, "url": url.strip()} for kind, url in found if url]


def built_in_geo():
    """The country data that lookup-svc contains, made of two packages."""
    facts = json.loads((ROOT / "crates/geo/data/built-in-geo.json").read_text())
    return {
        "type": "data",
        "bom-ref": facts["package"],
        "name": facts["package"],
        "version": facts["version"],
        "description": f"with {facts['operators_package']} {facts['operators_version']}",
        "hashes": [{"alg": "SHA-256", "content": facts["sha256"]}],
        "licenses": [{"expression": f"{facts['license']} AND {facts['source_license']}"}],
        "copyright": facts["attribution"],
    }


def built_in_timezones():
    """The timezone data that lookup-svc contains. It is in the public domain; the package that it is from is not."""
    path = ROOT / "crates/geo/data/timezones.tar.gz"
    with tarfile.open(path) as archive:
        version = archive.extractfile("+VERSION").read().decode()
    return {
        "type": "data",
        "bom-ref": "tzdata",
        "name": "tzdata",
        "version": version,
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}],
        "licenses": [{"expression": "Apache-2.0"}],
    }


def bom(architectures, seconds, crates):
    """The SBOM as JSON text. The same input gives the same bytes."""
    hashes = checksums()
    names = sorted(crates.shipped | crates.build_only)
    project = {
        "type": "application",
        "bom-ref": "ip-lookup",
        "name": "ip-lookup",
        "version": VERSION,
        "licenses": [{"expression": LICENSE}],
    }
    if REPOSITORY:
        project["externalReferences"] = [{"type": "vcs", "url": REPOSITORY}]
    time = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    programs = sorted(reference((package, VERSION)) for package in PROGRAMS.values())
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "tools": {"components": [{"type": "application", "name": "release/sbom.py", "version": VERSION}]},
            "component": project,
            "properties": [{"name": "ip-lookup:architecture", "value": name} for name in sorted(architectures)],
        },
        "components": [component(name, crates, hashes) for name in names] + [built_in_geo(), built_in_timezones()],
        "dependencies": [{"ref": "ip-lookup", "dependsOn": programs}]
        + [
            {"ref": reference(name), "dependsOn": sorted(map(reference, crates.dependencies[name]))}
            for name in names
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True))
    document["serialNumber"] = f"urn:uuid:{serial}"
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def licenses(crates):
    """The license texts of all crates in the programs, each text once, with the names of its crates."""
    texts, without = collections.defaultdict(list), []
    for name in sorted(crates.shipped):
        package = crates.packages[name]
        if not package["source"]:
            continue
        directory = pathlib.Path(package["manifest_path"]).parent
        files = [file for file in sorted(directory.iterdir()) if file.is_file() and LICENSE_FILE.match(file.name)]
        for file in files:
            text = file.read_text(errors="replace").replace("\r\n", "\n").strip()
            texts[text].append(f"{name[0]} {name[1]}")
        if not files:
            without.append(f"{name[0]} {name[1]}: {package['license']}, {package.get('repository') or ''}")
    parts = [
        "The programs contain the crates below, under their own licenses. The SBOM of the release lists them with\n"
        "version, license and checksum.\n\n"
        "The programs also contain parts of Rust's standard library (MIT OR Apache-2.0), of the C library musl (MIT,\n"
        "Copyright 2005-2020 Rich Felker and others), of LLVM's libunwind and, if they were built on x86_64 for x86_64,\n"
        "of LLVM's C library (both Apache-2.0 WITH LLVM-exception). The texts of these licenses are below, with the\n"
        "crates that have the same license."
    ]
    if without:
        parts.append("These crates come without a license text:\n\n" + "\n".join(without))
    for text, names in sorted(texts.items(), key=lambda entry: entry[1]):
        parts.append("\n".join(dict.fromkeys(names)) + "\n\n" + text)
    return f"\n\n{'-' * 80}\n\n".join(parts) + "\n"
