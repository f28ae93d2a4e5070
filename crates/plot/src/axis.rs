//! Axes: their division, the range that they show, and the labels of their ticks.

use crate::canvas::format_size;

/// About this many ticks on an axis.
const TICKS: f64 = 6.0;

/// The division of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Evenly; from 0 if all values are positive.
    #[default]
    Linear,
    /// Each doubling takes the same space. Labels are sizes: `64 MiB`, `1 TiB`. A value below 1
    /// counts as 1.
    Bytes,
    /// Each doubling takes the same space. The axis includes 1, where bars begin: a half is as far
    /// from it as a double. Values that are not above 0 are not drawn.
    Doubling,
}

/// One axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// The quantity that it shows, and its unit unless the labels contain the unit.
    pub title: String,
    /// How it is divided.
    pub scale: Scale,
}

impl Scale {
    /// The position of a value, before the range of the axis is known.
    fn place(self, value: f64) -> f64 {
        match self {
            _ if !value.is_finite() => f64::NAN,
            Scale::Linear => value,
            Scale::Bytes => value.max(1.0).log2(),
            Scale::Doubling if value > 0.0 => value.log2(),
            Scale::Doubling => f64::NAN,
        }
    }
}

impl Axis {
    /// An even axis.
    pub fn linear(title: impl Into<String>) -> Axis {
        Axis { title: title.into(), scale: Scale::Linear }
    }

    /// A doubling axis of sizes.
    pub fn bytes(title: impl Into<String>) -> Axis {
        Axis { title: title.into(), scale: Scale::Bytes }
    }

    /// A doubling axis of numbers.
    pub fn doubling(title: impl Into<String>) -> Axis {
        Axis { title: title.into(), scale: Scale::Doubling }
    }
}

/// An axis with its range. It maps values to positions from 0 to 1.
pub(crate) struct Range {
    scale: Scale,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Range {
    pub(crate) fn of(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Range {
        let placed = values.map(|value| scale.place(value)).filter(|value| value.is_finite());
        let low = placed.clone().fold(f64::INFINITY, f64::min);
        let high = placed.fold(f64::NEG_INFINITY, f64::max);
        let (mut low, mut high) = if low.is_finite() { (low, high) } else { (0.0, 1.0) };
        match scale {
            Scale::Linear => low = low.min(0.0),
            Scale::Bytes => {}
            Scale::Doubling => (low, high) = (low.min(0.0), high.max(0.0)),
        }
        if high <= low {
            high = low + 1.0;
        }
        let step = match scale {
            Scale::Linear => nice((high - low) / TICKS),
            Scale::Bytes => ((high - low) / TICKS).ceil(),
            Scale::Doubling => ((high - low) / TICKS).log2().ceil().max(-2.0).exp2(),
        };
        // The range extends to whole steps, so that lines end inside the plot. On an axis of sizes,
        // the range is that of the data.
        if scale != Scale::Bytes {
            (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        }
        let first = (low / step).ceil();
        let count = ((high / step) - first + 1e-9).floor().max(0.0) as u64;
        let ticks = (0..=count).map(|i| (first + i as f64) * step).collect();
        Range { scale, low, high, ticks }
    }

    pub(crate) fn at(&self, value: f64) -> f64 {
        (self.scale.place(value) - self.low) / (self.high - self.low)
    }

    /// The position at which bars begin, from 0 to 1.
    pub(crate) fn base(&self) -> f64 {
        self.at(if self.scale == Scale::Doubling { 1.0 } else { 0.0 }).clamp(0.0, 1.0)
    }

    /// Ticks as (position from 0 to 1, label).
    pub(crate) fn labels(&self) -> Vec<(f64, String)> {
        let step = self.ticks.get(1).map_or(1.0, |second| second - self.ticks[0]);
        let label = |tick: f64| match self.scale {
            Scale::Linear => decimal(tick, step),
            Scale::Bytes => format_size(tick.exp2().round() as u64),
            Scale::Doubling => rounded(tick.exp2()),
        };
        let position = |tick: f64| (tick - self.low) / (self.high - self.low);
        self.ticks.iter().map(|tick| (position(*tick), label(*tick))).collect()
    }
}

/// The least of 1, 2, 5 times a power of ten that is not below `step`.
fn nice(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= step * 0.999_999);
    factor.unwrap_or(10.0) * power
}

/// A number with two decimals at most, or a power.
fn rounded(value: f64) -> String {
    if value < 0.01 {
        return format!("{value:.0e}");
    }
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Formats a number with as many decimals as steps of this size need.
fn decimal(value: f64, step: f64) -> String {
    let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
    // There is no room for long labels beside a title.
    if !(1e-4..1e5).contains(&step) {
        let text = format!("{value:.1e}").replace(".0e", "e");
        return if value == 0.0 { "0".to_string() } else { text };
    }
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_enclose_the_values() {
        let range = Range::of(Scale::Linear, [3.0, 17.2].into_iter());
        assert_eq!(range.ticks, [0.0, 5.0, 10.0, 15.0, 20.0]);
        let range = Range::of(Scale::Linear, [0.02].into_iter());
        let labels: Vec<String> = range.labels().into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["0.000", "0.005", "0.010", "0.015", "0.020"]);
        assert_eq!(Range::of(Scale::Linear, std::iter::empty()).at(1.0), 1.0);
        let range = Range::of(Scale::Bytes, [1024.0, 4096.0].into_iter());
        assert_eq!(range.labels()[0], (0.0, "1 KiB".to_string()));
        assert!((range.at(2048.0) - 0.5).abs() < 1e-9);
        let flat = Range::of(Scale::Bytes, [1024.0].into_iter());
        assert!(flat.at(1024.0).is_finite());
    }
    #[test]
    fn a_doubling_axis_has_one_on_it_and_no_zero() {
        let of = |values: &[f64]| Range::of(Scale::Doubling, values.iter().copied());
        let texts = |range: &Range| -> Vec<String> {
            range.labels().into_iter().map(|(_, label)| label).collect()
        };
        let range = of(&[0.0, 0.6, 7.5, f64::NAN]);
        assert_eq!(texts(&range), ["0.5", "1", "2", "4", "8"]);
        assert_eq!((range.base(), range.at(1.0), range.at(2.0)), (0.25, 0.25, 0.5));
        assert!(range.at(0.0).is_nan() && range.at(-1.0).is_nan());
        assert_eq!(texts(&of(&[0.9, 1.4])), ["0.84", "1", "1.19", "1.41"]);
        assert_eq!(texts(&of(&[0.001])), ["1e-3", "4e-3", "0.02", "0.06", "0.25", "1"]);
    }
}
