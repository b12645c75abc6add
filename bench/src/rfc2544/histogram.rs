//! A histogram of delays: 64 buckets for each power of two, so that a quantile is right within 1.6%.

/// Buckets for each power of two.
const PARTS: u64 = 64;
/// Powers of two above those that have a bucket for each value.
const POWERS: u64 = 42;

/// Counts of nanoseconds.
#[derive(Clone)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: f64,
    least: u64,
    most: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: vec![0; (PARTS * (POWERS + 1)) as usize],
            count: 0,
            sum: 0.0,
            least: u64::MAX,
            most: 0,
        }
    }
}

/// Differences of nanoseconds: two histograms, as a value has no sign.
#[derive(Clone, Default)]
pub struct Differences {
    rises: Histogram,
    falls: Histogram,
}

impl Differences {
    /// Counts the difference from one value to the next.
    #[inline]
    pub fn note(&mut self, from: u64, to: u64) {
        if to >= from { self.rises.note(to - from) } else { self.falls.note(from - to) }
    }

    /// Adds the differences of another.
    pub fn add(&mut self, other: &Self) {
        self.rises.add(&other.rises);
        self.falls.add(&other.falls);
    }

    /// The least, the median and the greatest; none without a difference.
    pub fn least_median_most(&self) -> Option<[f64; 3]> {
        let (falls, rises) = (self.falls.count(), self.rises.count());
        let rank = (falls + rises).div_ceil(2);
        let median = match falls {
            _ if falls + rises == 0 => return None,
            falls if rank <= falls => -self.falls.quantile((falls - rank + 1) as f64 / falls as f64),
            falls => self.rises.quantile((rank - falls) as f64 / rises as f64),
        };
        let least = if falls > 0 { -(self.falls.most() as f64) } else { self.rises.least() as f64 };
        let most = if rises > 0 { self.rises.most() as f64 } else { -(self.falls.least() as f64) };
        Some([least, median, most])
    }
}

/// The bucket of a value.
fn bucket(value: u64) -> usize {
    let power = u64::from(value.max(PARTS).ilog2() - PARTS.ilog2());
    let power = power.min(POWERS - 1);
    let part = if value < PARTS { value } else { PARTS + ((value >> power) - PARTS).min(PARTS - 1) };
    (power * PARTS + part) as usize
}

/// The middle of a bucket.
fn middle(bucket: usize) -> f64 {
    let bucket = bucket as u64;
    if bucket < 2 * PARTS {
        return bucket as f64;
    }
    let power = bucket / PARTS - 1;
    let low = (bucket - power * PARTS) << power;
    low as f64 + ((1u64 << power) as f64 - 1.0) / 2.0
}

impl Histogram {
    /// Counts a value.
    #[inline]
    pub fn note(&mut self, value: u64) {
        self.buckets[bucket(value)] += 1;
        self.count += 1;
        self.sum += value as f64;
        self.least = self.least.min(value);
        self.most = self.most.max(value);
    }

    /// Adds the values of another.
    pub fn add(&mut self, other: &Self) {
        for (bucket, other) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket += other;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.least = self.least.min(other.least);
        self.most = self.most.max(other.most);
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean; NaN without a value.
    pub fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    /// The least value.
    pub fn least(&self) -> u64 {
        self.least.min(self.most)
    }

    /// The greatest value.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// The least value that a `share` of the values does not exceed; NaN without a value.
    pub fn quantile(&self, share: f64) -> f64 {
        let rank = ((share * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle(index).clamp(self.least as f64, self.most as f64);
            }
        }
        f64::NAN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_within_a_bucket() {
        let mut histogram = Histogram::default();
        for value in 1..=100_000u64 {
            histogram.note(value * 17);
        }
        for share in [0.01, 0.5, 0.99, 0.999] {
            let (found, right) = (histogram.quantile(share), 100_000.0 * share * 17.0);
            assert!((found / right - 1.0).abs() < 0.016, "{share}: {found} {right}");
        }
        assert_eq!((histogram.least(), histogram.most(), histogram.count()), (17, 1_700_000, 100_000));
        assert!((histogram.mean() / (17.0 * 50_000.5) - 1.0).abs() < 1e-9);
        assert!((histogram.quantile(1.0) / 1_700_000.0 - 1.0).abs() < 0.016);
    }

    #[test]
    fn differences_have_a_sign() {
        let of = |values: &[u64]| {
            let mut differences = Differences::default();
            values.windows(2).for_each(|pair| differences.note(pair[0], pair[1]));
            differences.least_median_most()
        };
        assert_eq!(of(&[5]), None);
        assert_eq!(of(&[50, 40, 20, 17]), Some([-20.0, -10.0, -3.0]));
        assert_eq!(of(&[1, 2, 4, 7]), Some([1.0, 2.0, 3.0]));
        assert_eq!(of(&[50, 40, 60, 60, 90, 40]), Some([-50.0, 0.0, 30.0]));
    }

    #[test]
    fn every_value_has_a_bucket_and_an_empty_histogram_no_quantile() {
        let mut last = 0;
        for value in (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit]).chain([u64::MAX]) {
            let bucket = bucket(value);
            assert!(bucket >= last && bucket < (PARTS * (POWERS + 1)) as usize, "{value}");
            last = bucket;
        }
        assert!((0..128).all(|value| (middle(bucket(value)) - value as f64).abs() < 1e-9));
        assert!(Histogram::default().quantile(0.5).is_nan() && Histogram::default().mean().is_nan());
        let (mut one, mut two) = (Histogram::default(), Histogram::default());
        two.note(1000);
        one.add(&two);
        assert!((one.quantile(0.5) - 1000.0).abs() < 1e-9, "a single value is exact");
    }
}
