//! Written places, kept for whoever is next from the same network: a database has far fewer records than addresses,
//! and callers call again. What is asked for once is not kept: to keep it costs as much as to write it.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::place::Place;
use super::written::PlaceJson;
use super::zone;

/// How many databases a place may be put together from and still be kept.
pub(super) const MOST_DATABASES: usize = 8;

/// How many are kept at the most: with half a kilobyte each, 2 MiB.
const SPOTS: usize = 4096;

/// The longest that is kept: a database with texts of any length must not cost memory of any size.
const LONGEST: usize = 2048;

/// Where each database has its record of an address; none stands for no record, and for no database.
pub(super) type Records = [Option<usize>; MOST_DATABASES];

/// Each spot holds the one or the other written place, by where its records are.
pub(super) struct Shelf {
    spots: Box<[Spot]>,
    /// Who was last asked for in vain at each spot.
    missed: Box<[AtomicU64]>,
}

type Spot = Mutex<Option<Kept>>;

struct Kept {
    records: Records,
    /// The seconds in which its time zone's offset holds.
    valid: Range<i64>,
    json: PlaceJson,
}

impl Shelf {
    pub(super) fn new() -> Self {
        Self {
            spots: (0..SPOTS).map(|_| Spot::default()).collect(),
            missed: (0..SPOTS).map(|_| AtomicU64::default()).collect(),
        }
    }

    /// Shows the place with these records as it is kept, else as `place` makes it. Nobody waits here: who meets
    /// another at the same spot does without it.
    pub(super) fn show<'p, R>(
        &self,
        records: Records,
        now: i64,
        place: impl FnOnce() -> Place<'p>,
        use_json: impl FnOnce(&PlaceJson) -> R,
    ) -> R {
        let mixed = mix(&records);
        let at = (mixed >> (u64::BITS - SPOTS.ilog2())) as usize;
        let spot = &self.spots[at];
        if let Ok(kept) = spot.try_lock()
            && let Some(kept) = kept.as_ref().filter(|kept| kept.is(&records, now))
        {
            return use_json(&kept.json);
        }
        let place = place();
        let json = PlaceJson::of(&place);
        let shown = use_json(&json);
        let again = self.missed[at].swap(mixed, Ordering::Relaxed) == mixed;
        if again
            && json.len() <= LONGEST
            && let Ok(mut kept) = spot.try_lock()
        {
            let valid = now..place.timezone.map_or(i64::MAX, |zone| zone::next_change(zone, now));
            *kept = Some(Kept { records, valid, json });
        }
        shown
    }
}

impl Kept {
    fn is(&self, records: &Records, now: i64) -> bool {
        self.records == *records && self.valid.contains(&now)
    }
}

/// Offsets grow in steps of records' lengths; multiplied by an odd number with many bits set, they spread over the
/// upper bits.
fn mix(records: &Records) -> u64 {
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    records.iter().flatten().fold(SPREAD, |mixed, offset| {
        (mixed.rotate_left(5) ^ (*offset as u64).wrapping_add(1)).wrapping_mul(SPREAD)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: Records = [Some(7), None, None, None, None, None, None, None];

    /// In which of four turns the place had to be made.
    fn made(city: &str) -> [bool; 4] {
        let shelf = Shelf::new();
        [0; 4].map(|now| {
            let mut made = false;
            let place = || {
                made = true;
                Place { city: Some(city), ..Place::default() }
            };
            let shown = shelf.show(RECORDS, now, place, |json| json.place().to_vec());
            assert!(String::from_utf8(shown).expect("UTF-8").starts_with(&format!(r#","city":"{city}""#)));
            made
        })
    }

    #[test]
    fn a_place_is_kept_once_it_is_asked_for_again() {
        assert_eq!(made("Berlin"), [true, true, false, false]);
    }

    #[test]
    fn a_very_long_one_is_not() {
        assert_eq!(made(&"x".repeat(LONGEST)), [true; 4]);
    }
}
