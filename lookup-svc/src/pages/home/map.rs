//! The world map with a mark at the visitor's location.

use geo::country::Point;

use super::super::page::escape;

/// What a mark stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mark {
    /// A dot at these coordinates.
    Location(Point),
    /// A circle around a point of a country.
    Country(Point),
}

/// The visible part of the map: it ends in the Arctic Ocean and south of Cape Horn.
const TOP: f64 = 8.0;
const BOTTOM: f64 = 292.0;

/// An image of the map, with its description for people who don't see it.
pub(super) fn render(mark: Mark, description: &str, map_url: &str) -> String {
    let circle = |(x, y): (f64, f64), class: &str, radius: u8| {
        format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/>")
    };
    let mark = match mark {
        Mark::Location(point) => circle(position(point), "halo", 16) + &circle(position(point), "dot", 6),
        Mark::Country(point) => circle(position(point), "area", 26),
    };
    format!(
        "<svg class=\"map\" viewBox=\"0 {TOP} 720 {}\" role=\"img\" aria-label=\"{}\">\
         <image href=\"{}\" width=\"720\" height=\"300\"/>{mark}</svg>",
        BOTTOM - TOP,
        escape(description),
        escape(map_url),
    )
}

/// The projection of `world-map.py`: two units per degree.
fn position((latitude, longitude): Point) -> (f64, f64) {
    (2.0 * (longitude + 180.0), (2.0 * (90.0 - latitude)).clamp(TOP, BOTTOM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_is_projected_and_stays_on_the_map() {
        assert_eq!(position((0.0, 0.0)), (360.0, 180.0));
        assert_eq!(position((52.5, 13.5)), (387.0, 75.0));
        assert_eq!(position((-77.8, 166.7)), (693.4, BOTTOM));
        assert_eq!(position((90.0, -180.0)), (0.0, TOP));
    }

    #[test]
    fn description_is_escaped() {
        let svg = render(Mark::Country((0.0, 0.0)), "\"><script>", "/world-map.svg");
        assert!(svg.contains("aria-label=\"&quot;&gt;&lt;script&gt;\""), "{svg}");
    }
}
