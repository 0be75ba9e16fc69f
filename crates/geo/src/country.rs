//! Facts derived from a country code: English name, continent, currency, EU membership.

use std::sync::LazyLock;

use keshvar::{Continent, CountryIterator};

/// The facts about one country.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Country {
    /// ISO 3166-1 alpha-2.
    pub code: &'static str,
    /// The common English name ("South Korea", not "Korea (Republic of)").
    pub name: &'static str,
    /// Two-letter continent code.
    pub continent: &'static str,
    /// ISO 4217. `None` only for Antarctica.
    pub currency: Option<&'static str>,
    /// Whether it is part of the European Union. Also true for territories with their own code to which the EU treaties
    /// apply, such as Réunion and Åland.
    pub eu: bool,
}

/// Finds a country by its ISO code, in upper or lower case. Also finds XK (Kosovo), which is not an ISO code
/// but is used by every provider.
pub fn find(code: &str) -> Option<&'static Country> {
    static TABLE: LazyLock<Vec<Option<Country>>> = LazyLock::new(build);
    TABLE.get(index(code)?)?.as_ref()
}

/// Returns the two-letter code of a continent, given its code or English name.
pub fn continent(text: &str) -> Option<&'static str> {
    const CONTINENTS: [(&str, &str); 7] = [
        ("AF", "Africa"),
        ("AN", "Antarctica"),
        ("AS", "Asia"),
        ("EU", "Europe"),
        ("NA", "North America"),
        ("OC", "Oceania"),
        ("SA", "South America"),
    ];
    CONTINENTS
        .into_iter()
        .find(|(code, name)| text == *code || text.eq_ignore_ascii_case(name))
        .map(|(code, _)| code)
}

fn index(code: &str) -> Option<usize> {
    let letter = |byte: u8| {
        let upper = byte.to_ascii_uppercase();
        upper.is_ascii_uppercase().then(|| usize::from(upper - b'A'))
    };
    let [first, second] = code.as_bytes() else {
        return None;
    };
    Some(letter(*first)? * 26 + letter(*second)?)
}

fn build() -> Vec<Option<Country>> {
    let mut table = vec![None; 26 * 26];
    let kosovo = Country { code: "XK", name: "Kosovo", continent: "EU", currency: Some("EUR"), eu: false };
    for country in CountryIterator::new().map(|source| facts(&source)).chain([kosovo]) {
        if let Some(slot) = index(country.code).and_then(|index| table.get_mut(index)) {
            *slot = Some(country);
        }
    }
    table
}

fn facts(source: &keshvar::Country) -> Country {
    // Leaked, but only once per process: lookups can then return `&'static str`.
    let code: &'static str = source.alpha2().to_string().leak();
    Country {
        code,
        name: common_name(code).unwrap_or(source.iso_short_name()),
        continent: corrected_continent(code).unwrap_or(continent_code(source.continent())),
        currency: match code {
            "AQ" => None,
            "TL" => Some("USD"),
            "ZW" => Some("ZWG"),
            _ => Some(source.currency_code().to_string().leak()),
        },
        eu: source.eu_member(),
    }
}

fn continent_code(continent: Continent) -> &'static str {
    match continent {
        Continent::Africa => "AF",
        Continent::Antarctica => "AN",
        Continent::Asia => "AS",
        Continent::Australia => "OC",
        Continent::Europe => "EU",
        Continent::NorthAmerica => "NA",
        Continent::SouthAmerica => "SA",
    }
}

/// Overrides the continent where keshvar differs from GeoNames, which MaxMind and DB-IP follow. The continent of an
/// address must not depend on which database is loaded.
fn corrected_continent(code: &str) -> Option<&'static str> {
    match code {
        "CY" => Some("EU"),
        "TR" => Some("AS"),
        "TL" => Some("OC"),
        "TF" => Some("AN"),
        _ => None,
    }
}

/// Common names for countries whose ISO short name is formal, such as "Moldova (Republic of)".
fn common_name(code: &str) -> Option<&'static str> {
    Some(match code {
        "BN" => "Brunei",
        "BO" => "Bolivia",
        "CD" => "DR Congo",
        "CG" => "Congo Republic",
        "CV" => "Cape Verde",
        "FK" => "Falkland Islands",
        "FM" => "Micronesia",
        "GB" => "United Kingdom",
        "IR" => "Iran",
        "KP" => "North Korea",
        "KR" => "South Korea",
        "LA" => "Laos",
        "MD" => "Moldova",
        "MF" => "Saint Martin",
        "PN" => "Pitcairn Islands",
        "PS" => "Palestine",
        "RU" => "Russia",
        "ST" => "São Tomé and Príncipe",
        "SX" => "Sint Maarten",
        "SY" => "Syria",
        "TW" => "Taiwan",
        "TZ" => "Tanzania",
        "US" => "United States",
        "VA" => "Vatican City",
        "VE" => "Venezuela",
        "VG" => "British Virgin Islands",
        "VI" => "U.S. Virgin Islands",
        "VN" => "Vietnam",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
