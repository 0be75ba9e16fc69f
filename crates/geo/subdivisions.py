#!/usr/bin/env python3
"""Writes data/subdivisions.tsv: codes and names of the first level of ISO 3166-2, for src/region_code.rs.

Run by hand: subdivisions.py CLDR_CORE CLDR_SUBDIVISIONS KESHVAR
  CLDR_CORE          unpacked npm package cldr-core (which codes exist, and which contain which)
  CLDR_SUBDIVISIONS  unpacked npm package cldr-subdivisions-full (English names)
  KESHVAR            source directory of the crate keshvar (local names, spellings, types)

Except in a few countries, only the first level has names, because that is the region in every provider's data. Where a
country's districts have the names of its regions (Olomouc in Czechia, Valencia in Spain), a name would otherwise lead
to the wrong level.
"""

import json
import pathlib
import re
import sys

# CLDR never changes the meaning of a code, but ISO has reused the codes of these countries. keshvar has the new ones.
REUSED_CODES = {"IR", "MA"}

# Countries whose English names in keshvar, which come from CLDR, are those of the former regions with these codes.
FORMER_ENGLISH_NAMES = {"MA"}

# Codes that neither source has yet, in CLDR's form. `SPELLINGS` has their names.
NEW_CODES = {"NO": ["no31", "no32", "no33", "no39", "no40", "no55", "no56"]}

# Countries whose regions are those of the second level in every provider's data.
SECOND_LEVEL = {"DO", "ID"}

# Subdivisions that are a city, so that "Moscow Oblast" is not Moscow. keshvar has the types of the other ones.
CITIES = {"BG-22", "HR-21", "KZ-71", "KZ-75", "KZ-79", "MD-CU", "MY-14", "RS-00"}

# Common spellings that neither source has. A name that two subdivisions have matches neither.
SPELLINGS = {
    "AE-SH": ["Emirate of Sharjah"],
    "AR-C": ["Buenos Aires F.D."],
    "AU-ACT": ["ACT"],
    "BA-BIH": ["Federation of B&H"],
    "BH-13": ["Manama"],
    "CH-BS": ["Basel-City"],
    "CH-SG": ["Saint Gall", "Saint Gallen"],
    "CI-AB": ["Abidjan Autonomous District"],
    "CL-LI": ["O'Higgins"],
    "CO-DC": ["Bogota", "Bogota D.C."],
    "CZ-20": ["Central Bohemia"],
    "CZ-31": ["South Bohemia", "South Bohemian"],
    "CZ-32": ["Plzen", "Pilsen"],
    "CZ-41": ["Karlovy Vary", "Carlsbad"],
    "CZ-42": ["Usti nad Labem"],
    "CZ-51": ["Liberec"],
    "CZ-52": ["Hradec Kralove"],
    "CZ-53": ["Pardubice"],
    "CZ-63": ["Vysocina"],
    "CZ-64": ["South Moravia", "South Moravian"],
    "CZ-71": ["Olomouc"],
    "CZ-72": ["Zlin"],
    "CZ-80": ["Moravia-Silesia", "Moravian-Silesian"],
    "DE-HH": ["Free and Hanseatic City of Hamburg"],
    "DO-01": ["Nacional"],
    "EG-BNS": ["Beni Suweif"],
    "EG-SHR": ["Sharqia"],
    "ES-AS": ["Asturias"],
    "ES-CL": ["Castille and Leon"],
    "ES-CM": ["Castille-La Mancha"],
    "ES-NC": ["Navarre"],
    "ES-VC": ["Valencia"],
    "FI-03": ["South Ostrobothnia"],
    "FI-14": ["North Ostrobothnia"],
    "FI-15": ["North Savo"],
    "FR-ARA": ["Rhone-Alpes", "Auvergne"],
    "FR-BFC": ["Bourgogne", "Franche-Comte"],
    "FR-NAQ": ["New Aquitaine", "Aquitaine"],
    "FR-NOR": ["Normandy"],
    "FR-PAC": ["Provence"],
    "IN-DL": ["National Capital Territory of Delhi"],
    "IS-1": ["Capital Region"],
    "IT-57": ["The Marches"],
    "IT-77": ["Basilicate"],
    "KR-43": ["Chungcheongbuk-do"],
    "KR-44": ["Chungcheongnam-do"],
    "KR-45": ["Jeollabuk-do"],
    "KR-46": ["Jeollanam-do"],
    "KR-47": ["Gyeongsangbuk-do"],
    "KR-48": ["Gyeongsangnam-do"],
    "KZ-15": ["Aktobe"],
    "KZ-27": ["West Kazakhstan"],
    "KZ-39": ["Kostanay"],
    "KZ-47": ["Mangystau"],
    "KZ-59": ["North Kazakhstan"],
    "KZ-61": ["Turkistan"],
    "KZ-63": ["East Kazakhstan"],
    # And the former regions that are part of one region as a whole.
    "MA-01": ["Tangier-Tétouan"],
    "MA-02": ["Oriental"],
    "MA-03": ["Fès-Boulemane"],
    "MA-04": ["Gharb-Chrarda-Béni Hssen", "Rabat-Salé-Zemmour-Zaer"],
    "MA-05": ["Tadla-Azilal"],
    "MA-06": ["Grand Casablanca"],
    "MA-07": ["Marrakesh-Safi", "Marrakesh-Tensift-El Haouz"],
    "MA-11": ["Laâyoune-Boujdour-Sakia El Hamra"],
    "MA-12": ["Oued Ed-Dahab-Lagouira"],
    "MX-CMX": ["Mexico City"],
    "MY-04": ["Melaka"],
    "MZ-MPM": ["Cidade de Maputo"],
    "NG-FC": ["FCT"],
    "NO-31": ["Østfold"],
    "NO-32": ["Akershus"],
    "NO-33": ["Buskerud"],
    "NO-39": ["Vestfold"],
    "NO-40": ["Telemark"],
    "NO-55": ["Troms", "Romsa", "Tromssa"],
    "NO-56": ["Finnmark", "Finnmárku", "Finmarkku"],
    "PE-LMA": ["Lima Province"],
    "PL-20": ["Podlasie"],
    "QA-DA": ["Baladiyat ad Dawhah"],
    "QA-RA": ["Baladiyat ar Rayyan"],
    "RU-ALT": ["Altay Kray"],
    "RU-KEM": ["Kuzbass"],
    "RU-KHM": ["Khanty-Mansia"],
    "RU-PRI": ["Primorye"],
    "RU-SPE": ["St. Petersburg"],
    "RU-UD": ["Udmurtiya"],
    "RU-ZAB": ["Transbaikal"],
    # "Chiayi" alone may be the city or the county.
    "TW-CYI": ["Chiayi"],
    "TW-CYQ": ["Chiayi"],
    "UA-05": ["Vinnytsia"],
    "UA-12": ["Dnipropetrovsk"],
    "UA-14": ["Donetsk"],
    "UA-18": ["Zhytomyr"],
    "UA-23": ["Zaporizhzhia"],
    "UA-26": ["Ivano-Frankivsk"],
    "UA-30": ["Kyiv City"],
    # "Kyiv" alone may be the city or the oblast.
    "UA-32": ["Kyiv", "Kyiv Oblast"],
    "UA-35": ["Kirovohrad"],
    "UA-46": ["Lviv"],
    "UA-48": ["Mykolaiv"],
    "UA-51": ["Odesa"],
    "UA-53": ["Poltava"],
    "UA-56": ["Rivne"],
    "UA-59": ["Sumy"],
    "UA-61": ["Ternopil"],
    "UA-63": ["Kharkiv"],
    "UA-65": ["Kherson"],
    "UA-68": ["Khmelnytskyi"],
    "UA-71": ["Cherkasy"],
    "UA-74": ["Chernihiv"],
    "UA-77": ["Chernivtsi"],
    "VN-SG": ["Ho Chi Minh City (HCMC)"],
}

LATIN = re.compile(r"[\x20-\u024f\u0300-\u036f\u1e00-\u1eff\u02b9-\u02bf\u2018\u2019]+")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def unescape(text):
    text = re.sub(r"\\u\{([0-9a-fA-F]+)\}", lambda m: chr(int(m[1], 16)), text)
    return text.replace('\\"', '"').replace("\\'", "'").replace("\\\\", "\\")


def split_variants(name):
    """"Gyeonggido [Kyonggi-do]" are two names; "Praha, Hlavní město" is also "Hlavní město Praha"."""
    for part in re.split(r"[\[\]()/|;]", name):
        part = part.strip(" ²³¹*,")
        # In brackets, some have a language (de) or a note (EH-partial).
        if len(part) < 2 or not LATIN.fullmatch(part) or re.fullmatch("[a-z]{2}|EH|EH-partial", part):
            continue
        if part.count(",") == 1:
            last, first = part.split(",")
            yield f"{first.strip()} {last.strip()}"
        yield part


def keshvar(directory):
    """The names and type of each subdivision, by ISO code."""
    found = {}
    pattern = re.compile(
        r'Subdivision\{\s*name: "((?:[^"\\]|\\.)*)",\s*country_alpha2: Alpha2::(\w\w),\s*code: "([^"]+)",(.*?)'
        r"unofficial_name_list: (.*?),\n\s*\}",
        re.S,
    )
    for file in sorted((directory / "src/countries").glob("??.rs")):
        for name, country, code, rest, unofficial in pattern.findall(file.read_text()):
            kind = re.search(r"SubdivisionType::(\w+)", rest)[1]
            english = re.search(r'\("en", "((?:[^"\\]|\\.)*)"\)', rest)
            is_former = country in FORMER_ENGLISH_NAMES
            names = [name] + ([english[1]] if english and not is_former else []) + STRING.findall(unofficial)
            found[f"{country}-{code}"] = [unescape(each) for each in names], kind
    return found


def main(core, subdivisions, keshvar_source):
    containment = json.loads((core / "supplemental/subdivisionContainment.json").read_text())
    containment = containment["supplemental"]["subdivisionContainment"]
    english = json.loads((subdivisions / "subdivisions/en/en.json").read_text())
    english = english["subdivisions"]["localeDisplayNames"]["subdivisions"]
    others = keshvar(keshvar_source)
    lines = []
    for country in sorted(key for key in containment if re.fullmatch("[A-Z]{2}", key)):
        codes = containment[country]["_contains"] + NEW_CODES.get(country, [])
        if country in SECOND_LEVEL:
            codes += [inner for code in codes for inner in containment.get(code, {}).get("_contains", [])]
        for cldr_code in sorted(codes):
            code = f"{country}-{cldr_code[2:].upper()}"
            names, kind = others.get(code, ([], ""))
            if country not in REUSED_CODES and cldr_code in english:
                names = [english[cldr_code], *names]
            names = [variant for name in names for variant in split_variants(name)]
            if country == "EE":
                names += [f"{name}maa" for name in names]
            names += SPELLINGS.get(code, [])
            is_city = code in CITIES or re.search("City|Municipality|CapitalDistrict|FederalDistrict|^Capital$", kind)
            if names:
                lines.append("\t".join([code, "city" if is_city else "area", *dict.fromkeys(names)]))
    output = pathlib.Path(__file__).parent / "data/subdivisions.tsv"
    header = [
        "# First-level subdivisions of ISO 3166-2: code, kind, names. Written by subdivisions.py.",
        "# From Unicode CLDR (Unicode-3.0, (c) Unicode, Inc.) and keshvar (BSD-3-Clause, (c) Pouriya Jahanbakhsh).",
    ]
    output.write_text("\n".join(header + lines) + "\n")
    print(f"{len(lines)} subdivisions in {output}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*map(pathlib.Path, sys.argv[1:]))
