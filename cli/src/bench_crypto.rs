//! The options of `postern bench crypto`.

use bench::choice;
use bench::crypto::report::{Report, Unit};
use bench::crypto::subject::Subject;
use bench::crypto::{BLOCKS, Options, PACKETS, chart, run, word};
use bench::eal;
use clap::{Args, ValueEnum};
use crypto::machine::Capability;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Args)]
pub(crate) struct Crypto {
    /// Only ciphers, hashes and operations whose name contains this; may be given more than once
    #[arg(long, value_name = "NAME")]
    cipher: Vec<String>,
    /// Only this engine
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// Compare the engines with this one instead of the slowest
    #[arg(long, value_name = "ENGINE")]
    base: Option<String>,
    /// Sizes to measure: the blocks of openssl speed, packets, or both
    #[arg(long, value_enum, default_value = "all")]
    sizes: Sizes,
    /// Unit of speeds; kB as printed by openssl speed
    #[arg(long, value_enum, default_value = "MB")]
    unit: UnitName,
    /// Also measure decryption
    #[arg(long)]
    open: bool,
    /// Also measure without these processor instructions, where a library can disable them
    #[arg(long, value_enum, default_value = "crypto")]
    without: Without,
    /// Maximum number of packets per call; openssl speed uses 1
    #[arg(long, default_value_t = 32)]
    burst: usize,
    /// Number of threads; they share a key, and each has its own packets
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Seconds for each size of each engine
    #[arg(long, default_value_t = 0.1)]
    seconds: f64,
    /// Words of EAL: crypto devices of DPDK are measured too, such as --eal "--no-pci --vdev crypto_openssl0"
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    eal: Option<String>,
    /// Draw a chart of each cipher into this directory, in SVG
    #[arg(long, value_name = "DIR")]
    chart: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Choice {
    /// Only ciphers whose name contains this; may be given more than once
    #[arg(long, value_name = "NAME")]
    cipher: Vec<String>,
    /// Seconds for each turn of an engine
    #[arg(long, default_value_t = 0.002)]
    seconds: f64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Sizes {
    /// 16, 64, 256, 1024, 8192, 16384
    Blocks,
    /// 64, 512, 1400
    Packets,
    All,
}

impl Sizes {
    fn bytes(self) -> Vec<usize> {
        let mut bytes = match self {
            Self::Blocks => BLOCKS.to_vec(),
            Self::Packets => PACKETS.to_vec(),
            Self::All => [&BLOCKS[..], &PACKETS].concat(),
        };
        bytes.sort_unstable();
        bytes.dedup();
        bytes
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum UnitName {
    /// Millions of bytes per second
    #[value(name = "MB")]
    Megabytes,
    /// Thousands of bytes per second
    #[value(name = "kB")]
    Kilobytes,
}

#[derive(Clone, Copy, ValueEnum)]
enum Without {
    /// AES, PCLMUL, SHA and VAES
    Crypto,
    /// These, and AVX2, AVX-512 and NEON
    Simd,
    /// No comparison
    Nothing,
}

impl Without {
    fn capabilities(self) -> &'static [Capability] {
        match self {
            Self::Crypto => word::CRYPTO,
            Self::Simd => word::SIMD,
            Self::Nothing => &[],
        }
    }
}

fn subjects(names: &[String]) -> bench::Outcome<Vec<Subject>> {
    if names.is_empty() {
        return Ok(Subject::usual());
    }
    let mut subjects = Vec::new();
    for name in names {
        let named = Subject::named(name);
        if named.is_empty() {
            let all = Subject::usual().into_iter().map(Subject::name).collect::<Vec<_>>().join(", ");
            return Err(format!("there is nothing called {name} to measure\n  fix: one of {all}").into());
        }
        subjects.extend(named.into_iter().filter(|it| !subjects.contains(it)).collect::<Vec<_>>());
    }
    Ok(subjects)
}

/// Measures, draws the charts, and returns the report with the text for people.
pub(crate) fn measure(
    arguments: Crypto,
    program: PathBuf,
    progress: bool,
) -> bench::Outcome<(Report, String)> {
    if let Some(words) = &arguments.eal {
        eal::start(words, 0)?;
    }
    let report = run(&Options {
        program,
        subjects: subjects(&arguments.cipher)?,
        engine: arguments.engine,
        base: arguments.base,
        sizes: arguments.sizes.bytes(),
        open: arguments.open,
        burst: arguments.burst.clamp(1, 256),
        threads: arguments.threads.clamp(1, 1024),
        time: Duration::from_secs_f64(arguments.seconds.clamp(0.001, 3600.0)),
        without: arguments.without.capabilities(),
        progress,
    })?;
    let unit = match arguments.unit {
        UnitName::Megabytes => Unit::Megabytes,
        UnitName::Kilobytes => Unit::Kilobytes,
    };
    let mut text = report.text(unit);
    if let Some(directory) = &arguments.chart {
        text += &drawn(&report, directory)?;
    }
    Ok((report, text))
}

/// Measures whether the right engines are chosen.
pub(crate) fn check(arguments: Choice, progress: bool) -> bench::Outcome<choice::Report> {
    let subjects = subjects(&arguments.cipher)?.into_iter().filter(|subject| subject.opens()).collect();
    let time = Duration::from_secs_f64(arguments.seconds.clamp(0.0001, 60.0));
    choice::run(&choice::Options { subjects, time, progress })
}

fn drawn(report: &Report, directory: &Path) -> bench::Outcome<String> {
    let charts = chart::write(report, directory)?.len();
    Ok(format!("\n{charts} charts in {}\n", directory.display()))
}
