//! Checks that the country facts are complete and correct.

use super::*;

/// Every officially assigned ISO 3166-1 alpha-2 code, listed independently of keshvar, the source of the facts.
const ISO: &str = "AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL \
    BM BN BO BQ BR BS BT BV BW BY BZ CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE \
    DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM FO FR GA GB GD GE GF GG GH GI GL GM GN GP GQ \
    GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE JM JO JP KE KG KH KI KM \
    KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO MP MQ \
    MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN \
    PR PS PT PW PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY \
    SZ TC TD TF TG TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI VN VU WF \
    WS YE YT ZA ZM ZW";

/// The 27 member states and the territories with their own code to which the EU treaties apply.
const EU: &str = "AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IT LT LU LV MT NL PL PT RO SE SI SK \
    AX GF GP MF MQ RE YT";

#[test]
fn all_249_iso_countries_are_complete() {
    let codes: Vec<_> = ISO.split_whitespace().collect();
    assert_eq!(codes.len(), 249);
    for code in codes {
        let country = find(code).unwrap_or_else(|| panic!("{code} is missing"));
        assert_eq!(country.code, code);
        assert!(country.name.len() > 2 && country.name.trim() == country.name, "{country:?}");
        assert!(!country.name.contains(", State") && !country.name.contains("Republic of"), "{country:?}");
        assert!(["AF", "AN", "AS", "EU", "NA", "OC", "SA"].contains(&country.continent), "{country:?}");
        match country.currency {
            Some(currency) => assert!(
                currency.len() == 3 && currency.bytes().all(|b| b.is_ascii_uppercase()),
                "{country:?}"
            ),
            None => assert_eq!(code, "AQ", "only Antarctica has no currency"),
        }
    }
}

#[test]
fn eu_flag_matches_member_list() {
    for code in ISO.split_whitespace() {
        let expected = EU.split_whitespace().any(|member| member == code);
        assert_eq!(find(code).map(|country| country.eu), Some(expected), "{code}");
    }
}

#[test]
fn continents_match_the_databases() {
    for (code, continent) in [
        ("CY", "EU"),
        ("TR", "AS"),
        ("TL", "OC"),
        ("TF", "AN"),
        ("RU", "EU"),
        ("KZ", "AS"),
        ("EG", "AF"),
        ("MX", "NA"),
        ("BR", "SA"),
        ("FJ", "OC"),
        ("AQ", "AN"),
        ("XK", "EU"),
    ] {
        assert_eq!(find(code).map(|country| country.continent), Some(continent), "{code}");
    }
}

#[test]
fn currencies_and_names_are_current() {
    for (code, currency) in [
        ("BG", "EUR"),
        ("HR", "EUR"),
        ("CW", "XCG"),
        ("SX", "XCG"),
        ("SL", "SLE"),
        ("VE", "VES"),
        ("ZW", "ZWG"),
        ("MR", "MRU"),
        ("BY", "BYN"),
        ("TL", "USD"),
        ("US", "USD"),
        ("GB", "GBP"),
        ("CH", "CHF"),
        ("NA", "NAD"),
    ] {
        assert_eq!(find(code).and_then(|country| country.currency), Some(currency), "{code}");
    }
    for (code, name) in [
        ("US", "United States"),
        ("KR", "South Korea"),
        ("NL", "Netherlands"),
        ("TR", "Türkiye"),
        ("MK", "North Macedonia"),
        ("SZ", "Eswatini"),
        ("CZ", "Czechia"),
    ] {
        assert_eq!(find(code).map(|country| country.name), Some(name), "{code}");
    }
}

#[test]
fn find_rejects_anything_but_country_codes() {
    for code in ["", "D", "DEU", "ZZ", "EU", "AP", "-", "é", "1A"] {
        assert_eq!(find(code), None, "{code:?}");
    }
    assert_eq!(find("de").map(|country| country.code), Some("DE"));
    assert_eq!(find("XK").map(|country| country.name), Some("Kosovo"));
}

#[test]
fn coordinates_are_parsed_with_and_without_seconds() {
    assert_eq!(parse_point("+5230+01322"), Some((52.5, 13.0 + 22.0 / 60.0)));
    assert_eq!(parse_point("-690022+0393524"), Some((-(69.0 + 22.0 / 3600.0), 39.59)));
    for invalid in ["", "+", "+5230", "+52é0+01322", "+52+013"] {
        assert_eq!(parse_point(invalid), None, "{invalid}");
    }
}

#[test]
fn point_is_in_the_country() {
    for (country, latitudes, longitudes) in [
        ("DE", 47.0..55.0, 6.0..15.0),
        ("US", 30.0..49.0, -124.0..-70.0),
        ("RU", 50.0..60.0, 50.0..130.0),
        ("NZ", -47.0..-34.0, 166.0..179.0),
        ("CL", -54.0..-18.0, -75.0..-67.0),
    ] {
        let (latitude, longitude) = point(country).expect("a point");
        assert!(latitudes.contains(&latitude) && longitudes.contains(&longitude), "{country}");
    }
    assert_eq!(point("XX"), None);
}
