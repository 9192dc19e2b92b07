//! `weft stats`: figures since the mount, and rates while it watches.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};
use weft_control::{Measures, Sample, Spread, Value};

use super::{find, show_bytes};
use crate::exit::{Failure, Outcome};
use crate::output::say;

/// How figures are shown.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// As JSON, one object or one per interval.
    pub json: bool,
    /// As Prometheus reads them.
    pub prometheus: bool,
    /// One line per interval, until interrupted, with what has come in it.
    pub every: Option<Duration>,
}

/// Shows the figures of the mount that `dir` lies in, or of the only one.
///
/// # Errors
/// When there is no such mount, or several and none is named.
pub fn run(dir: Option<&Path>, shown: Shown) -> Outcome {
    if shown.every.is_some_and(|every| every < FASTEST) {
        return Err(Failure::usage(format!("--every takes at least {} ms", FASTEST.as_millis())));
    }
    let source = Source::of(dir)?;
    let first = source.ask()?;
    let Some(every) = shown.every else {
        match (shown.prometheus, shown.json) {
            (true, _) => say!("{}", first.exposition().trim_end()),
            (false, true) => say!("{}", as_json(&first, None)),
            (false, false) => show(&first),
        }
        return Ok(());
    };
    let mut before = (first, Instant::now());
    loop {
        std::thread::sleep(every);
        let now = (source.ask()?, Instant::now());
        let interval = now.1.duration_since(before.1);
        match shown.json {
            true => say!("{}", as_json(&now.0, Some((&before.0, interval)))),
            false => say!("{}", rates(&before.0, &now.0, interval)),
        }
        before = now;
    }
}

/// A daemon that is asked again and again, over a connection of its own each time: one would fall silent for too long.
struct Source {
    dir: PathBuf,
}

impl Source {
    fn of(dir: Option<&Path>) -> Outcome<Source> {
        if let Some(dir) = dir {
            return Ok(Source { dir: dir.to_owned() });
        }
        Ok(Source { dir: super::only_mount()? })
    }

    fn ask(&self) -> Outcome<Measures> {
        Ok(find(&self.dir)?.client.stats()?)
    }
}

fn show(now: &Measures) {
    let sum = |name| now.sum(name);
    let by = |name: &str, label: &str, value: &str| labelled(now, name, label, value);
    for (words, name) in
        [("lookups", "weft_lookups_total"), ("opens", "weft_opens_total"), ("listings", "weft_listings_total")]
    {
        let (cache, source) = (by(name, "from", "cache"), by(name, "from", "source"));
        say!("{words:<10} {cache} from this machine, {source} asked for ({})", percent(cache, cache + source));
    }
    let checks = "weft_checks_total";
    say!(
        "checks     {} asked for: {} the same, {} not",
        sum(checks),
        by(checks, "found", "same"),
        by(checks, "found", "other")
    );
    say!("ranges     {} from the middle of files", sum("weft_ranges_total"));
    let used = sum("weft_prefetches_used_total");
    say!("ahead      {} fetched ahead of walks, {used} of them used", sum("weft_prefetches_total"));
    say!("stale      {} served since the source did not answer", sum("weft_stale_served_total"));
    say!("failures   {}", sum("weft_failures_total"));
    let (served, received) = (sum("weft_served_bytes_total"), sum("weft_received_bytes_total"));
    say!("content    {} served, {} received", show_bytes(served), show_bytes(received));
    let (bytes, objects) = (sum("weft_cache_bytes"), sum("weft_cache_objects"));
    say!("holds      {} of {objects} files, {} names", show_bytes(bytes), sum("weft_names"));
    say!("\n{:<12} {:>10} {:>8} {:>10} {:>10} {:>10}", "kernel", "requests", "errors", "p50", "p90", "p99");
    for (operation, spread) in operations(now) {
        let errors = by("weft_kernel_errors_total", "operation", operation);
        let quantile = |part| spread.quantile_ns(part).map_or_else(|| "-".to_owned(), show_time);
        let (p50, p90, p99) = (quantile(0.5), quantile(0.9), quantile(0.99));
        say!("{operation:<12} {:>10} {errors:>8} {p50:>10} {p90:>10} {p99:>10}", spread.count());
    }
    let hosts = now.family("weft_host_answer_duration_seconds").map_or(&[][..], |family| &family.samples);
    if hosts.is_empty() {
        return;
    }
    say!("\n{:<30} {:>10} {:>8} {:>12} {:>10}", "host", "answered", "failed", "received", "mean wait");
    for sample in hosts {
        let host = sample.label("host");
        let failed = now.family("weft_host_requests_total").map_or(&[][..], |family| &family.samples);
        let failed = failed.iter().filter(|row| row.label("host") == host && row.label("outcome") == "failed");
        let failed: u64 = failed.map(Sample::number).sum();
        let received = by("weft_host_received_bytes_total", "host", host);
        let wait = match &sample.value {
            Value::Spread(spread) => spread.sum_ns.checked_div(spread.count()),
            Value::Number(_) => None,
        };
        let wait = wait.map_or_else(|| "-".to_owned(), show_time);
        say!("{host:<30} {:>10} {failed:>8} {:>12} {wait:>10}", sample.number(), show_bytes(received));
    }
}

/// What came in an interval, in one line.
fn rates(before: &Measures, now: &Measures, interval: Duration) -> String {
    let seconds = interval.as_secs_f64().max(f64::MIN_POSITIVE);
    let new = |name: &str| now.sum(name).saturating_sub(before.sum(name));
    let rate = |count: u64| format!("{:.1}/s", count as f64 / seconds);
    let bytes = |name: &str| format!("{}/s", show_bytes((new(name) as f64 / seconds) as u64));
    let names = ["weft_lookups_total", "weft_opens_total", "weft_listings_total"];
    let since = |name: &str, value: &str| {
        labelled(now, name, "from", value).saturating_sub(labelled(before, name, "from", value))
    };
    let hits: u64 = names.iter().map(|name| since(name, "cache")).sum();
    let misses: u64 = names.iter().map(|name| since(name, "source")).sum();
    let all = all_operations(now).since(&all_operations(before));
    let p99 = all.quantile_ns(0.99).map_or_else(|| "-".to_owned(), show_time);
    format!(
        "{} kernel {} p99 {p99}  hits {}  asked {}  served {}  received {}  stale {}  failures {}",
        time_of_day(),
        rate(all.count()),
        percent(hits, hits + misses),
        rate(new("weft_host_requests_total")),
        bytes("weft_served_bytes_total"),
        bytes("weft_received_bytes_total"),
        new("weft_stale_served_total"),
        new("weft_failures_total"),
    )
}

/// `figures` by name and labels; of histograms count, sum and quantiles. With `before`, what came since and in what time.
fn as_json(now: &Measures, before: Option<(&Measures, Duration)>) -> Json {
    let mut object = json!({ "at": at(), "figures": figures(now) });
    if let Some((before, interval)) = before {
        let earlier = figures(before);
        let counters = figures(now).into_iter().filter(|(name, _)| name.contains("_total"));
        let new = counters.map(|(name, value)| {
            let value = value.as_u64().unwrap_or(0);
            let was = earlier.get(&name).and_then(Json::as_u64).unwrap_or(0);
            (name, Json::from(value.saturating_sub(was)))
        });
        object["new"] = new.collect::<BTreeMap<_, _>>().into_iter().collect();
        object["interval_seconds"] = json!(interval.as_secs_f64());
    }
    object
}

fn figures(measures: &Measures) -> BTreeMap<String, Json> {
    let mut figures = BTreeMap::new();
    for family in &measures.families {
        for sample in &family.samples {
            let labels: Vec<String> = sample.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let name = match labels.is_empty() {
                true => family.name.clone(),
                false => format!("{}{{{}}}", family.name, labels.join(",")),
            };
            let value = match &sample.value {
                Value::Number(number) => json!(number),
                Value::Spread(spread) => in_seconds(spread),
            };
            figures.insert(name, value);
        }
    }
    figures
}

fn in_seconds(spread: &Spread) -> Json {
    let quantile = |part| spread.quantile_ns(part).map(|ns| ns as f64 / 1e9);
    json!({
        "count": spread.count(), "sum": spread.sum_ns as f64 / 1e9,
        "p50": quantile(0.5), "p90": quantile(0.9), "p99": quantile(0.99),
    })
}

/// The sum of a family's figures with this label.
fn labelled(measures: &Measures, name: &str, label: &str, value: &str) -> u64 {
    let samples = measures.family(name).map_or(&[][..], |family| &family.samples);
    samples.iter().filter(|sample| sample.label(label) == value).map(Sample::number).sum()
}

/// The operations of the kernel that have been asked for.
fn operations(measures: &Measures) -> Vec<(&str, &Spread)> {
    let samples = measures.family("weft_kernel_request_duration_seconds").map_or(&[][..], |family| &family.samples);
    let spreads = samples.iter().filter_map(|sample| match &sample.value {
        Value::Spread(spread) if spread.count() > 0 => Some((sample.label("operation"), spread)),
        _ => None,
    });
    spreads.collect()
}

fn all_operations(measures: &Measures) -> Spread {
    let mut all = Spread::default();
    for (_, spread) in operations(measures) {
        if all.buckets.is_empty() {
            all.buckets = spread.buckets.iter().map(|(bound, _)| (*bound, 0)).collect();
        }
        for (sum, (_, count)) in all.buckets.iter_mut().zip(&spread.buckets) {
            sum.1 += count;
        }
        all.longer += spread.longer;
        all.sum_ns += spread.sum_ns;
    }
    all
}

fn percent(part: u64, all: u64) -> String {
    if all == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / all as f64) }
}

/// Nanoseconds for people.
fn show_time(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

/// Seconds since 1970, to the millisecond.
fn at() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_millis() as f64 / 1000.0
}

fn time_of_day() -> String {
    let second = at() as u64 % 86_400;
    format!("{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Shortest interval.
const FASTEST: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use weft_control::{Family, FamilyKind};

    use super::*;

    fn at_moment(hits: u64, misses: u64, fast: u64) -> Measures {
        let number = |labels: &[(&str, &str)], number| Sample {
            labels: labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            value: Value::Number(number),
        };
        let family = |name: &str, kind, samples| Family { name: name.to_owned(), help: String::new(), kind, samples };
        let lookups = vec![number(&[("from", "cache")], hits), number(&[("from", "source")], misses)];
        let spread = Spread { buckets: vec![(1024, fast), (2048, 1)], longer: 0, sum_ns: 5 };
        let labels = vec![("operation".to_owned(), "lookup".to_owned())];
        let durations = vec![Sample { labels, value: Value::Spread(spread) }];
        Measures {
            families: vec![
                family("weft_lookups_total", FamilyKind::Counter, lookups),
                family("weft_kernel_request_duration_seconds", FamilyKind::Histogram, durations),
            ],
        }
    }

    #[test]
    fn rates_are_of_the_interval_alone() {
        let (before, now) = (at_moment(100, 50, 10), at_moment(103, 51, 30));
        let line = rates(&before, &now, Duration::from_secs(2));
        assert!(line.contains("kernel 10.0/s p99 1.0 us  hits 75.0 %"), "{line}");
        let json = as_json(&now, Some((&before, Duration::from_secs(2))));
        assert_eq!(json["figures"]["weft_lookups_total{from=cache}"], 103);
        assert_eq!(json["new"]["weft_lookups_total{from=cache}"], 3);
        assert_eq!(json["figures"]["weft_kernel_request_duration_seconds{operation=lookup}"]["count"], 31);
        assert_eq!(json["interval_seconds"], 2.0);
    }
}
