//! Medians and percentiles.

/// The median; of an even number of values, the higher of the two in the middle. 0 if there are no values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The median of the ratios of two variants, taken round by round: a disturbance in one round affects both variants, so
/// their ratio changes little.
pub fn median_ratio(values: impl IntoIterator<Item = f64>, baseline: impl IntoIterator<Item = f64>) -> f64 {
    median(values.into_iter().zip(baseline).map(|(value, baseline)| value / baseline))
}

/// The value that `percent` of the sorted values do not exceed. 0 if there are no values.
pub fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_ignores_order_and_outliers() {
        assert_eq!(median([9000.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([]), 0.0);
    }

    #[test]
    fn median_ratio_compares_round_by_round() {
        assert_eq!(median_ratio([1.0, 20.0, 30.0], [10.0, 40.0, 30.0]), 0.5);
    }

    #[test]
    fn percentile_is_the_nearest_rank_or_0_without_values() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!([50.0, 99.0, 100.0].map(|p| percentile(&values, p)), [100.0, 198.0, 200.0]);
        assert_eq!(percentile(&[], 50.0), 0.0);
    }
}
