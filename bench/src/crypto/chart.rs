//! SVG charts, one for each subject: bars by packet size, one colour per engine, paler without CPU instructions.

use super::report::{Report, Row};
use crate::Outcome;
use crate::svg::label;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 56.0;
/// Colours that colour-blind readers can tell apart (Okabe and Ito).
const COLOURS: [&str; 7] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#f0e442", "#56b4e9"];
/// The engines of the first colours; the last colour is for other engines.
const ENGINES: [&str; 6] = ["aws-lc", "openssl", "ipsec-mb", "af-alg", "cryptodev", "multi-buffer"];

/// Writes a chart for each subject and direction into `directory`; returns the paths.
pub fn write(report: &Report, directory: &Path) -> Outcome<Vec<PathBuf>> {
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    std::fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
    let mut written = Vec::new();
    for group in report.groups() {
        let name = group[0].title().replace(' ', "-");
        let path = directory.join(format!("{name}.svg"));
        std::fs::write(&path, draw(report, group)).map_err(|error| failed(&path, error))?;
        written.push(path);
    }
    Ok(written)
}

/// The bars of one engine, with or without instructions.
struct Series<'a> {
    label: String,
    colour: &'a str,
    pale: bool,
    speed: Box<dyn Fn(usize) -> Option<f64> + 'a>,
}

fn series(group: &[Row]) -> Vec<Series<'_>> {
    let mut all = Vec::new();
    for row in group {
        let colour = colour(&row.engine);
        let speed = |size| Some(row.speed_at(size)).filter(|speed| speed.is_finite());
        all.push(Series { label: row.engine.clone(), colour, pale: false, speed: Box::new(speed) });
        if row.sizes.iter().any(|it| it.without.is_some()) {
            let label = format!("{} without", row.engine);
            all.push(Series { label, colour, pale: true, speed: Box::new(|size| row.speed_without(size)) });
        }
    }
    all
}

fn draw(report: &Report, group: &[Row]) -> String {
    let series = series(group);
    let sizes: Vec<usize> = group[0].sizes.iter().map(|it| it.size).collect();
    let speeds = series.iter().flat_map(|it| sizes.iter().filter_map(|&size| (it.speed)(size)));
    let (step, top) = scale(speeds.fold(0.0, f64::max));
    let y = |speed: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * speed / top;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    svg += &label(LEFT, 24.0, "start", 17, &format!("{}, MB/s", group[0].title()));
    svg += &label(LEFT, 44.0, "start", 12, &subtitle(report));
    let mut x = LEFT;
    for it in &series {
        svg += &bar(x, 58.0, 12.0, 12.0, it);
        svg += &label(x + 17.0, 69.0, "start", 13, &it.label);
        x += 34.0 + 7.4 * it.label.len() as f64;
    }
    for line in 0..=(top / step).round() as u32 {
        let speed = step * f64::from(line);
        let (end, at) = (WIDTH - RIGHT, y(speed));
        let _ =
            writeln!(svg, "<line x1=\"{LEFT}\" x2=\"{end}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ccc\"/>");
        svg += &label(LEFT - 8.0, at + 4.0, "end", 12, &format!("{}", (speed / 1e4).round() / 1e2));
    }
    let room = (WIDTH - LEFT - RIGHT) / sizes.len() as f64;
    let width = room * 0.84 / series.len() as f64;
    for (place, &size) in sizes.iter().enumerate() {
        let start = LEFT + room * (place as f64 + 0.08);
        for (index, it) in series.iter().enumerate() {
            let Some(speed) = (it.speed)(size) else { continue };
            svg += &bar(start + width * index as f64, y(speed), width * 0.92, HEIGHT - BOTTOM - y(speed), it);
        }
        svg += &label(start + room * 0.42, HEIGHT - BOTTOM + 20.0, "middle", 13, &size.to_string());
    }
    svg + &label(f64::midpoint(LEFT, WIDTH), HEIGHT - 14.0, "middle", 13, "bytes in a packet") + "</svg>\n"
}

fn subtitle(report: &Report) -> String {
    let threads = if report.threads == 1 { String::new() } else { format!(", {} threads", report.threads) };
    let without = report.without.as_ref().map(|it| format!("; pale: without {}", it.hidden.join(", ")));
    format!("{}{threads}{}", report.machine.processor, without.unwrap_or_default())
}

fn bar(x: f64, y: f64, width: f64, height: f64, series: &Series<'_>) -> String {
    let opacity = if series.pale { 0.35 } else { 1.0 };
    format!(
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{}\" \
         fill-opacity=\"{opacity}\"><title>{}</title></rect>\n",
        series.colour, series.label
    )
}

/// The distance of the grid lines and the top of the scale: round numbers, at least the highest speed.
fn scale(highest: f64) -> (f64, f64) {
    let least = highest.max(1.0) / 6.0;
    let power = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0].map(|it| it * power).into_iter().find(|&step| step >= least);
    let step = step.unwrap_or(10.0 * power);
    (step, (highest.max(1.0) / step).ceil() * step)
}

/// The colour of an engine, the same in all charts.
fn colour(engine: &str) -> &'static str {
    let place = ENGINES.iter().position(|&name| name == engine).unwrap_or(ENGINES.len());
    COLOURS[place]
}

#[cfg(test)]
mod tests {
    use super::super::report::example;
    use super::*;

    #[test]
    fn a_chart_has_a_bar_for_each_speed() {
        let report = example();
        let svg = draw(&report, report.groups()[0]);
        // The background, three in the legend, and at two sizes: two engines, one of them also without instructions.
        assert_eq!(svg.matches("<rect").count(), 1 + 3 + 6);
        assert!(svg.contains(">aws-lc without</text>") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn the_scale_is_linear_and_round() {
        assert_eq!(scale(9.1e9), (2e9, 1e10));
        assert_eq!(scale(6e8), (1e8, 6e8));
        assert_eq!(scale(0.0), (0.2, 1.0), "the scale is never empty");
    }

    #[test]
    fn bars_are_as_high_as_the_speeds_and_an_engine_has_its_colour() {
        let report = example();
        let all = series(report.groups()[0]);
        let svg = draw(&report, report.groups()[0]);
        let heights: Vec<f64> = svg
            .lines()
            .filter(|line| line.contains("fill-opacity=\"1\"") && line.contains(all[2].colour))
            .filter_map(|line| line.split("height=\"").nth(1)?.split('"').next()?.parse().ok())
            .skip(1)
            .collect();
        // 1.2 and 9 GB/s.
        assert!((heights[1] / heights[0] - 7.5).abs() < 0.05, "{heights:?}");
        assert_eq!([colour("aws-lc"), colour("ipsec-mb")], [all[0].colour, all[2].colour]);
        let last = &report.rows[1..];
        assert_eq!(series(last)[0].colour, all[2].colour, "also if it is the only engine");
    }
}
