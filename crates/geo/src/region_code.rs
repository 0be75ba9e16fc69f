//! Finds the ISO 3166-2 code of a region by its name.

use std::sync::LazyLock;

use icu_normalizer::DecomposingNormalizerBorrowed as DecomposingNormalizer;

/// Codes and names of the first-level subdivisions of all countries, written by `subdivisions.py`.
const SUBDIVISIONS: &str = include_str!("../data/subdivisions.tsv");

pub(crate) static INDEX: LazyLock<Index> = LazyLock::new(|| Index::new(SUBDIVISIONS));

/// The code of the only subdivision of `country` with this name ("DE-BY"). Spellings may differ in case, diacritics,
/// punctuation and words such as "Province". `None` if there is no such subdivision or more than one: a wrong code is
/// worse than none.
///
/// Tries the name as it is, then without the words that describe the kind of subdivision. Such a word in `name` must agree
/// with the subdivision: "Moscow Oblast" is not the city of Moscow.
pub(crate) fn find(country: &str, name: &str) -> Option<&'static str> {
    let folded = fold(name);
    let same_name = with_key(&INDEX.full, &key(country, &folded));
    if !same_name.is_empty() {
        return only_code(same_name.iter());
    }
    let short = shorten(&folded);
    if short.is_empty() {
        return None;
    }
    let has = |meaning| folded.split(' ').any(|word| word_meaning(word) == meaning);
    let (says_area, says_city) = (has(Word::Area), has(Word::City));
    let agrees = |name: &&Name| match name.is_city {
        true => !says_area,
        false => says_area || !says_city,
    };
    only_code(with_key(&INDEX.short, &key(country, &short)).iter().filter(agrees))
}

/// All names, sorted, twice: as they are, and without the words that only describe the kind of subdivision.
pub(crate) struct Index {
    full: Vec<Name>,
    short: Vec<Name>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    /// Country and folded name: "DE bayern".
    key: Box<str>,
    code: &'static str,
    is_city: bool,
}

/// The meaning of a word in the name of a region.
#[derive(PartialEq, Eq)]
enum Word {
    /// "Province", "Oblast".
    Area,
    /// "City", "Municipality".
    City,
    /// "of", "the".
    Filler,
    Name,
}

impl Index {
    fn new(table: &'static str) -> Self {
        let (mut full, mut short) = (Vec::new(), Vec::new());
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let mut columns = line.split('\t');
            let (Some(code), Some(kind)) = (columns.next(), columns.next()) else {
                continue;
            };
            let (country, is_city) = (&code[..2], kind == "city");
            for folded in columns.map(fold) {
                let name = |text: &str| Name { key: key(country, text), code, is_city };
                short.push(name(&shorten(&folded)));
                full.push(name(&folded));
            }
        }
        for names in [&mut full, &mut short] {
            names.sort_unstable();
            names.dedup();
            names.shrink_to_fit();
        }
        Index { full, short }
    }
}

fn with_key<'n>(names: &'n [Name], key: &str) -> &'n [Name] {
    let start = names.partition_point(|name| *name.key < *key);
    let len = names[start..].partition_point(|name| *name.key == *key);
    &names[start..start + len]
}

/// The code of these names, if they all have the same.
fn only_code<'n>(mut names: impl Iterator<Item = &'n Name>) -> Option<&'static str> {
    let code = names.next()?.code;
    names.all(|name| name.code == code).then_some(code)
}

fn key(country: &str, name: &str) -> Box<str> {
    format!("{country} {name}").into()
}

/// Lowercase ASCII words, separated by single spaces: "Île-de-France" becomes "ile de france".
fn fold(name: &str) -> String {
    let mut folded = String::with_capacity(name.len());
    // Separates letters from their diacritics.
    let decomposed = DecomposingNormalizer::new_nfd().normalize_iter(name.chars());
    for letter in decomposed.flat_map(char::to_lowercase) {
        match letter {
            'a'..='z' | '0'..='9' => folded.push(letter),
            '&' => folded.push_str(" and "),
            // Apostrophes, and diacritics: spacing or combining.
            '\'' | '`' | '\u{2018}' | '\u{2019}' | '\u{2b9}'..='\u{2bf}' => {}
            '¨' | '¯' | '´' | '¸' | '\u{300}'..='\u{36f}' => {}
            // Letters that are not composed of others.
            'ə' => folded.push('a'),
            'æ' => folded.push_str("ae"),
            'đ' | 'ð' => folded.push('d'),
            'ħ' => folded.push('h'),
            'ı' => folded.push('i'),
            'ł' => folded.push('l'),
            'ŋ' => folded.push('n'),
            'ø' => folded.push('o'),
            'œ' => folded.push_str("oe"),
            'ß' => folded.push_str("ss"),
            'ŧ' => folded.push('t'),
            'þ' => folded.push_str("th"),
            _ => folded.push(' '),
        }
    }
    folded.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

fn shorten(folded: &str) -> String {
    folded.split(' ').filter(|word| word_meaning(word) == Word::Name).collect::<Vec<_>>().join(" ")
}

fn word_meaning(word: &str) -> Word {
    match word {
        "province" | "provincia" | "provincie" | "provinz" | "state" | "estado" | "region" | "regione"
        | "department" | "departamento" | "departement" | "district" | "county" | "prefecture"
        | "governorate" | "republic" | "respublika" | "republika" | "autonomous" | "community" | "canton"
        | "parish" | "division" | "territory" | "emirate" | "principality" | "atoll" | "zone"
        // Slavic and Turkic languages.
        | "oblast" | "oblasti" | "voblasc" | "voblast" | "oblysy" | "kray" | "krai" | "kraj" | "okrug"
        | "voivodeship" | "wojewodztwo"
        // Romanian, Hungarian, Estonian, Swedish, Norwegian.
        | "judet" | "megye" | "maakond" | "maa" | "lan" | "fylke"
        // Korean, Chinese, Japanese.
        | "do" | "sheng" | "ken" => Word::Area,
        "city" | "municipality" | "town" | "grad" | "misto" | "shi" | "si" | "metropolitan" | "special" => {
            Word::City
        }
        "of" | "the" | "de" | "del" | "du" | "di" | "des" | "da" | "capital" => Word::Filler,
        _ => Word::Name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_region_have_its_code() {
        for (country, name, code) in [
            ("DE", "Bavaria", "DE-BY"),
            ("DE", "Bayern", "DE-BY"),
            ("DE", "BADEN-WURTTEMBERG", "DE-BW"),
            ("DE", "Baden-Wu\u{308}rttemberg", "DE-BW"),
            ("FR", "Île-de-France", "FR-IDF"),
            ("FR", "Ile-de-France", "FR-IDF"),
            ("US", "District of Columbia", "US-DC"),
            ("US", "State of Washington", "US-WA"),
            ("ES", "Madrid", "ES-MD"),
            ("ES", "Valencia", "ES-VC"),
            ("CZ", "Olomouc Region", "CZ-71"),
            ("RU", "Moscow", "RU-MOW"),
            ("RU", "Moscow Oblast", "RU-MOS"),
            ("RU", "St.-Petersburg", "RU-SPE"),
            ("RU", "Altay Kray", "RU-ALT"),
            ("UA", "Kyiv City", "UA-30"),
            ("UA", "Kyiv Oblast", "UA-32"),
            ("KR", "Gyeonggi-do", "KR-41"),
            ("IR", "Tehran", "IR-23"),
            // The table has "Az¯arbayjan-e Sharqi".
            ("IR", "Azarbayjan-e Sharqi", "IR-03"),
            ("MA", "Casablanca-Settat", "MA-06"),
            // Until 2015, MA-04 was the code of Oriental, and MA-08 that of Grand Casablanca.
            ("MA", "Oriental", "MA-02"),
            ("MA", "Grand Casablanca", "MA-06"),
            ("MA", "Rabat-Salé-Zemmour-Zaer", "MA-04"),
            // Counties since 2024.
            ("NO", "Akershus", "NO-32"),
            ("NO", "Ostfold", "NO-31"),
            ("NO", "Troms", "NO-55"),
            ("MX", "Mexico City", "MX-CMX"),
            ("TW", "Hsinchu City", "TW-HSZ"),
            ("ID", "West Java", "ID-JB"),
            ("PL", "Łódź Voivodeship", "PL-10"),
        ] {
            assert_eq!(find(country, name), Some(code), "{country} {name}");
        }
    }

    #[test]
    fn uncertain_names_have_no_code() {
        for (country, name) in [
            // Both the city and the region around it.
            ("AR", "Buenos Aires"),
            ("UA", "Kyiv"),
            ("TW", "Chiayi"),
            // Names of another country's regions, and of nothing.
            ("AT", "Bavaria"),
            // Its parts are in two regions since 2015.
            ("MA", "Meknès-Tafilalet"),
            ("XK", "Pristina"),
            ("ZZ", "Bavaria"),
            ("DE", "Atlantis"),
            ("DE", "Province"),
            ("DE", ""),
            ("DE", "Бавария"),
        ] {
            assert_eq!(find(country, name), None, "{country} {name}");
        }
    }

    #[test]
    fn every_subdivision_has_valid_code_and_names() {
        let mut count = 0;
        for line in SUBDIVISIONS.lines().filter(|line| !line.starts_with('#')) {
            let columns: Vec<_> = line.split('\t').collect();
            let [code, kind, names @ ..] = columns.as_slice() else { panic!("{line}") };
            let (country, part) = code.split_once('-').expect("a hyphen");
            assert!(crate::location::compose_region_code(country, part).is_some(), "{line}");
            assert!(["area", "city"].contains(kind) && !names.is_empty(), "{line}");
            for name in names {
                assert!(!fold(name).is_empty(), "{line}");
            }
            count += 1;
        }
        assert!(count > 3_600, "{count}");
    }

    #[test]
    fn only_punctuation_separates_words_of_a_name() {
        let names = SUBDIVISIONS
            .lines()
            .filter(|line| !line.starts_with('#'))
            .flat_map(|line| line.split('\t').skip(2));
        for name in names {
            for letter in name.chars().filter(|letter| !" -.,&()".contains(*letter)) {
                let folded = fold(&format!("x{letter}x"));
                assert!(!folded.contains(' '), "{name}: {letter:?} becomes {folded:?}");
            }
        }
    }
}
