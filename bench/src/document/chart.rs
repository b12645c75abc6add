//! The figures of the document, redrawn: throughput, latency and loss over the frame size, a line for each device; and the loss over
//! the load (RFC 2544 section 26.3).

use super::protocol::{FIXED, Part};
use super::report::{Entry, Report};
use crate::rfc2544::SizeResult;
use crate::rfc2544::chart::{Graph, Line};

/// The figures with their names.
pub(super) fn draw(report: &Report) -> Vec<(String, String)> {
    let results = report.of(Part::FrameSizes);
    let mut names: Vec<&str> = Vec::new();
    for (_, result) in &results {
        if !names.contains(&result.name.as_str()) {
            names.push(&result.name);
        }
    }
    let ticks: Vec<(f64, String)> =
        names.iter().enumerate().map(|(place, name)| (place as f64, (*name).to_owned())).collect();
    // A line for each device, of the values that it has.
    let lines = |value: &dyn Fn(&Entry, &SizeResult) -> Option<f64>| -> Vec<Line> {
        let of = |device: &str| {
            let points = results.iter().filter(|(entry, _)| entry.device == device);
            let point = |(entry, result): &(&Entry, &SizeResult)| {
                let place = names.iter().position(|name| *name == result.name)?;
                value(entry, result).filter(|value| value.is_finite()).map(|value| (place as f64, value))
            };
            Line { label: device.to_owned(), points: points.filter_map(point).collect(), is_dashed: false }
        };
        report.subjects.iter().map(|subject| of(&subject.name)).collect()
    };
    let graph = |title: &str, lines: Vec<Line>, top: f64| Graph {
        title: title.to_owned(),
        subtitle: report.conditions(),
        x: ("bytes in a frame", ticks.clone()),
        lines,
        top,
    };
    let mut throughput = lines(&|_, result| Some(megabits(result.throughput.last()?.rate?, result)));
    throughput.extend(
        lines(&|_, result| Some(megabits(result.throughput.first()?.rate?, result)))
            .into_iter()
            .map(|line| Line { label: format!("{}, PDR 0.5%", line.label), is_dashed: true, ..line }),
    );
    let mut graphs = vec![(
        "throughput".to_owned(),
        graph("Throughput with AES-128-GCM, TCP, Mbit/s in each direction", throughput, 1.0),
    )];
    let delay = |place: usize| {
        lines(&|entry: &Entry, _: &SizeResult| Some(entry.fixed.get(place)?.delays?.mean / 1e3))
    };
    graphs.push(("latency".to_owned(), graph("Latency at 100 Mbit/s, mean, ms", delay(0), 0.01)));
    for (place, (name, bits)) in ["loss-100-mbit", "loss-1-gbit"].into_iter().zip(FIXED).enumerate() {
        let title = format!("Lost frames at {:.0} Mbit/s, %", bits / 1e6);
        let loss = lines(&|entry, _| Some(entry.fixed.get(place)?.loss * 100.0));
        graphs.push((name.to_owned(), graph(&title, loss, 100.0)));
    }
    for name in ["64", "IMIX"].into_iter().filter(|name| names.contains(name)) {
        let curve = |(entry, result): &(&Entry, &SizeResult)| Line {
            label: entry.device.clone(),
            points: result.loss.iter().map(|it| (it.share * 100.0, it.loss * 100.0)).collect(),
            is_dashed: false,
        };
        let lines = results.iter().filter(|(_, result)| result.name == name).map(curve).collect();
        let title = format!("Frame loss by load, frames of {name}, %");
        let x = (0..=10).map(|it| (f64::from(it) * 10.0, (it * 10).to_string())).collect();
        let graph = Graph { x: ("% of the highest rate", x), ..graph(&title, lines, 100.0) };
        graphs.push((format!("loss-by-load-{}", name.to_lowercase()), graph));
    }
    let is_drawn = |graph: &Graph<'_>| graph.lines.iter().any(|line| !line.points.is_empty());
    graphs.into_iter().filter(|(_, graph)| is_drawn(graph)).map(|(name, graph)| (name, graph.svg())).collect()
}

/// Mbit/s of frames of this size.
pub(super) fn megabits(rate: f64, result: &SizeResult) -> f64 {
    rate * result.bytes * 8.0 / 1e6
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::example;
    use super::*;

    #[test]
    fn every_figure_of_the_document_is_drawn_with_a_line_for_each_device() {
        let figures = draw(&example());
        let names: Vec<&str> = figures.iter().map(|it| it.0.as_str()).collect();
        assert_eq!(names, ["throughput", "latency", "loss-100-mbit", "loss-1-gbit", "loss-by-load-64"]);
        let throughput = &figures[0].1;
        // strongSwan has a PDR and no NDR.
        assert_eq!(throughput.matches("<polyline").count(), 3, "{throughput}");
        assert!(throughput.contains("<title>postern: 512.00</title>"), "1,000,000 of 64 bytes: {throughput}");
        assert!(throughput.contains("<title>strongswan, PDR 0.5%: 128.00</title>"), "{throughput}");
        for (_, svg) in &figures {
            assert!(
                svg.contains("core 1; steal 1.2%, load 0.5 to 1.5; scaled") && svg.ends_with("</svg>\n"),
                "{svg}"
            );
        }
        let loss = &figures[3].1;
        assert_eq!(loss.matches("<title>strongswan: 30.00</title>").count(), 2, "{loss}");
        assert!(figures[1].1.contains(">Latency at 100 Mbit/s, mean, ms<"));
    }
}
