//! Families of metrics. One without samples is left out: a name stands for something that was measured.

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt;

/// The name of a family without what the encoding adds: the unit, `_total` and `_info`.
#[derive(Clone, Copy)]
pub(super) struct Family {
    name: &'static str,
    unit: Option<&'static Unit>,
    help: &'static str,
}

/// A family of numbers.
pub(super) const fn family(name: &'static str, help: &'static str) -> Family {
    Family { name, unit: None, help }
}

impl Family {
    pub(super) const fn bytes(self) -> Self {
        Self { unit: Some(&Unit::Bytes), ..self }
    }

    pub(super) const fn seconds(self) -> Self {
        Self { unit: Some(&Unit::Seconds), ..self }
    }
}

/// A histogram: the sum of what was counted, and the buckets with their upper bounds.
pub(super) struct Histogram {
    pub(super) sum: u64,
    pub(super) buckets: Vec<(f64, u64)>,
}

/// Writes families.
pub(super) struct Writer<'a>(DescriptorEncoder<'a>);

impl<'a> Writer<'a> {
    pub(super) fn new(encoder: DescriptorEncoder<'a>) -> Self {
        Self(encoder)
    }

    pub(super) fn counters<L: EncodeLabelSet, V: EncodeCounterValue>(
        &mut self,
        Family { name, unit, help }: Family,
        samples: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let mut metric = self.0.encode_descriptor(name, help, unit, MetricType::Counter)?;
        samples.try_for_each(|(labels, value)| {
            metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
        })
    }

    pub(super) fn gauges<L: EncodeLabelSet, V: EncodeGaugeValue>(
        &mut self,
        Family { name, unit, help }: Family,
        samples: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let mut metric = self.0.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        samples.try_for_each(|(labels, value)| metric.encode_family(&labels)?.encode_gauge(&value))
    }

    pub(super) fn infos<L: EncodeLabelSet>(
        &mut self,
        Family { name, unit, help }: Family,
        samples: impl IntoIterator<Item = L>,
    ) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let mut metric = self.0.encode_descriptor(name, help, unit, MetricType::Info)?;
        samples.try_for_each(|labels| metric.encode_info(&labels))
    }

    pub(super) fn histograms<L: EncodeLabelSet>(
        &mut self,
        Family { name, unit, help }: Family,
        samples: impl IntoIterator<Item = (L, Histogram)>,
    ) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let mut metric = self.0.encode_descriptor(name, help, unit, MetricType::Histogram)?;
        samples.try_for_each(|(labels, Histogram { sum, buckets })| {
            let count = buckets.iter().map(|(_, count)| count).sum();
            metric.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum as f64, count, &buckets, None)
        })
    }

    /// A counter without labels, if it is known.
    pub(super) fn counter(
        &mut self,
        Family { name, unit, help }: Family,
        value: Option<impl EncodeCounterValue>,
    ) -> fmt::Result {
        let Some(value) = value else { return Ok(()) };
        let mut metric = self.0.encode_descriptor(name, help, unit, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    /// A gauge without labels, if it is known.
    pub(super) fn gauge(
        &mut self,
        Family { name, unit, help }: Family,
        value: Option<impl EncodeGaugeValue>,
    ) -> fmt::Result {
        let Some(value) = value else { return Ok(()) };
        self.0.encode_descriptor(name, help, unit, MetricType::Gauge)?.encode_gauge(&value)
    }
}
