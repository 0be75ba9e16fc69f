//! Written places, kept for whoever is next from the same network: a database has far fewer records than addresses,
//! and callers call again.

use std::ops::Range;
use std::sync::Mutex;

use super::place::Place;
use super::written::PlaceJson;
use super::zone;

/// How many databases a place may be put together from and still be kept.
pub(super) const MOST_DATABASES: usize = 8;

/// How many places there are for them: with half a kilobyte each, 2 MiB.
const PLACES: usize = 4096;

/// The longest that is kept: a database with texts of any length must not cost memory of any size.
const LONGEST: usize = 2048;

/// Where each database has its record of an address; none stands for no record, and for no database.
pub(super) type Records = [Option<usize>; MOST_DATABASES];

/// Each place may hold the one or the other written place, by where its records are.
pub(super) struct Shelf {
    places: Box<[Mutex<Option<Kept>>]>,
}

struct Kept {
    records: Records,
    /// The seconds in which its time zone's offset holds.
    valid: Range<i64>,
    json: PlaceJson,
}

impl Shelf {
    pub(super) fn new() -> Self {
        Self { places: (0..PLACES).map(|_| Mutex::default()).collect() }
    }

    /// Shows the place with these records as it is kept, else as `place` makes it. Nobody waits here: who meets
    /// another at the same place does without it.
    pub(super) fn show<'p, R>(
        &self,
        records: Records,
        now: i64,
        place: impl FnOnce() -> Place<'p>,
        use_json: impl FnOnce(&PlaceJson) -> R,
    ) -> R {
        let shelf = &self.places[index(&records)];
        if let Ok(kept) = shelf.try_lock()
            && let Some(kept) = kept.as_ref().filter(|kept| kept.is(&records, now))
        {
            return use_json(&kept.json);
        }
        let place = place();
        let json = PlaceJson::of(&place);
        let shown = use_json(&json);
        if json.len() <= LONGEST
            && let Ok(mut kept) = shelf.try_lock()
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

/// Offsets grow in steps of records' lengths; multiplied by an odd number with many bits set, they spread.
fn index(records: &Records) -> usize {
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = records.iter().flatten().fold(0_u64, |mixed, offset| {
        (mixed.rotate_left(5) ^ (*offset as u64).wrapping_add(1)).wrapping_mul(SPREAD)
    });
    (mixed >> (u64::BITS - PLACES.ilog2())) as usize
}
