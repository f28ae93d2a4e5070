//! Axes: how they are divided, the range that they show, and the labels of their ticks.

use crate::canvas::format_size;

/// About this many ticks on an axis.
const TICKS: f64 = 6.0;

/// How an axis is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Evenly; from 0 if all values are positive.
    #[default]
    Linear,
    /// Each doubling takes the same space, labels are sizes: `64 MiB`, `1 TiB`. Less than 1 counts
    /// as 1.
    Bytes,
}

/// One axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// What it shows, and the unit unless the labels have it.
    pub title: String,
    /// How it is divided.
    pub scale: Scale,
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
}

/// An axis with its range: where values lie on it, from 0 to 1.
pub(crate) struct Range {
    scale: Scale,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Range {
    pub(crate) fn of(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Range {
        let place = |value: f64| match scale {
            Scale::Linear => value,
            Scale::Bytes => value.max(1.0).log2(),
        };
        let placed = values.filter(|value| value.is_finite()).map(place);
        let low = placed.clone().fold(f64::INFINITY, f64::min);
        let high = placed.fold(f64::NEG_INFINITY, f64::max);
        let (mut low, mut high) = if low.is_finite() { (low, high) } else { (0.0, 1.0) };
        if scale == Scale::Linear {
            low = low.min(0.0);
        }
        if high <= low {
            high = low + 1.0;
        }
        let step = match scale {
            Scale::Linear => nice((high - low) / TICKS),
            Scale::Bytes => ((high - low) / TICKS).ceil(),
        };
        // Lines end inside the plot on the vertical axis; on a doubling axis the data is the range.
        if scale == Scale::Linear {
            (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        }
        let first = (low / step).ceil();
        let count = ((high / step) - first + 1e-9).floor().max(0.0) as u64;
        let ticks = (0..=count).map(|i| (first + i as f64) * step).collect();
        Range { scale, low, high, ticks }
    }

    pub(crate) fn at(&self, value: f64) -> f64 {
        let placed = match self.scale {
            Scale::Linear => value,
            Scale::Bytes => value.max(1.0).log2(),
        };
        (placed - self.low) / (self.high - self.low)
    }

    /// Ticks as (position from 0 to 1, label).
    pub(crate) fn labels(&self) -> Vec<(f64, String)> {
        let step = self.ticks.get(1).map_or(1.0, |second| second - self.ticks[0]);
        let label = |tick: f64| match self.scale {
            Scale::Linear => decimal(tick, step),
            Scale::Bytes => format_size(tick.exp2().round() as u64),
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

/// A number with as many decimals as steps of this size need.
fn decimal(value: f64, step: f64) -> String {
    let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
    // Long labels have no room beside a title.
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
}
