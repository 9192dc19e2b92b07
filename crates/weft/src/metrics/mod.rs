//! Everything that is counted, under the names that docs/metrics.md promises.

pub mod http;

use std::time::{Duration, UNIX_EPOCH};

use weft_control::{Family, FamilyKind, Measures, Sample, Spread, Value};
use weft_fuse::Meter;
use weft_remote::Traffic;
use weft_vfs::Vfs;

/// The figures of a mount now.
pub fn measures(vfs: &Vfs, meter: &Meter, uptime: Duration) -> Measures {
    let mut families = of_mount(vfs, uptime);
    families.extend(of_kernel(meter));
    families.extend(of_hosts(vfs.traffic()));
    Measures { families }
}

fn of_mount(vfs: &Vfs, uptime: Duration) -> Vec<Family> {
    use FamilyKind::{Counter, Gauge};
    let figures = vfs.figures();
    let usage = vfs.store().usage();
    let (open_files, inodes) = vfs.in_use();
    let (unsent_files, unsent_bytes) = vfs.unsent_sum();
    let from = |cache, source| vec![labelled("from", "cache", cache), labelled("from", "source", source)];
    let checks_known = figures.checks_confirmed + figures.checks_changed;
    let checks = vec![
        labelled("found", "same", figures.checks_confirmed),
        labelled("found", "other", figures.checks_changed),
        labelled("found", "else", figures.checks_remote.saturating_sub(checks_known)),
    ];
    let one = |value| vec![Sample { labels: Vec::new(), value: Value::Number(value) }];
    vec![
        family("weft_info", Gauge, vec![labelled("version", env!("CARGO_PKG_VERSION"), 1)]),
        family("weft_uptime_seconds", Gauge, one(uptime.as_secs())),
        family("weft_lookups_total", Counter, from(figures.lookups_local, figures.lookups_remote)),
        family("weft_opens_total", Counter, from(figures.opens_local, figures.opens_remote)),
        family("weft_listings_total", Counter, from(figures.listings_local, figures.listings_remote)),
        family("weft_checks_total", Counter, checks),
        family("weft_stale_served_total", Counter, one(figures.served_stale)),
        family("weft_orphans_forgotten_total", Counter, one(figures.orphans_forgotten)),
        family("weft_ranges_total", Counter, one(figures.ranges_fetched)),
        family("weft_prefetches_total", Counter, one(figures.prefetches)),
        family("weft_prefetches_used_total", Counter, one(figures.prefetches_used)),
        family("weft_failures_total", Counter, one(figures.failures)),
        family("weft_served_bytes_total", Counter, one(figures.bytes_served)),
        family("weft_received_bytes_total", Counter, one(figures.bytes_received)),
        family("weft_written_bytes_total", Counter, one(figures.bytes_written)),
        family("weft_writes_sent_total", Counter, one(figures.writes_sent)),
        family("weft_unsent_files", Gauge, one(unsent_files)),
        family("weft_unsent_bytes", Gauge, one(unsent_bytes)),
        family("weft_cache_bytes", Gauge, one(usage.object_bytes)),
        family("weft_cache_objects", Gauge, one(usage.objects)),
        family("weft_cache_free_bytes", Gauge, one(usage.free_bytes)),
        family("weft_names", Gauge, one(usage.nodes)),
        family("weft_open_files", Gauge, one(open_files as u64)),
        family("weft_inodes", Gauge, one(inodes as u64)),
    ]
}

fn of_kernel(meter: &Meter) -> [Family; 2] {
    let (mut durations, mut errors) = (Vec::new(), Vec::new());
    for requests in meter.requests() {
        let operation = ("operation".to_owned(), requests.operation.as_str().to_owned());
        for (errno, count) in requests.errors {
            let labels = vec![operation.clone(), ("errno".to_owned(), errno.name().to_owned())];
            errors.push(Sample { labels, value: Value::Number(count) });
        }
        let spread = Spread { buckets: requests.buckets, longer: requests.longer, sum_ns: requests.sum_ns };
        durations.push(Sample { labels: vec![operation], value: Value::Spread(spread) });
    }
    [
        family("weft_kernel_request_duration_seconds", FamilyKind::Histogram, durations),
        family("weft_kernel_errors_total", FamilyKind::Counter, summed(errors)),
    ]
}

fn of_hosts(bindings: Vec<(&str, Vec<Traffic>)>) -> [Family; 3] {
    let (mut requests, mut bytes, mut waits) = (Vec::new(), Vec::new(), Vec::new());
    for (source, traffic) in bindings {
        // A source may name a tree; only its kind is for everybody's eyes.
        let kind = source.split(':').next().unwrap_or_default();
        for traffic in bounded(traffic) {
            let labels = vec![("binding".to_owned(), kind.to_owned()), ("host".to_owned(), traffic.source)];
            for (outcome, count) in [("answered", traffic.answered), ("failed", traffic.failed)] {
                let outcome = [("outcome".to_owned(), outcome.to_owned())];
                let labels = [&labels[..], &outcome].concat();
                requests.push(Sample { labels, value: Value::Number(count) });
            }
            bytes.push(Sample { labels: labels.clone(), value: Value::Number(traffic.received_bytes) });
            let sum_ns = u64::try_from(traffic.waited.as_nanos()).unwrap_or(u64::MAX);
            let spread = Spread { buckets: Vec::new(), longer: traffic.answered, sum_ns };
            waits.push(Sample { labels, value: Value::Spread(spread) });
        }
    }
    [
        family("weft_host_requests_total", FamilyKind::Counter, requests),
        family("weft_host_received_bytes_total", FamilyKind::Counter, bytes),
        family("weft_host_answer_duration_seconds", FamilyKind::Histogram, waits),
    ]
}

/// The hosts that were talked to first, and all later ones together: so their number is bounded, and a host that has
/// a row of its own keeps it.
fn bounded(mut traffic: Vec<Traffic>) -> Vec<Traffic> {
    traffic.sort_by(|a, b| (a.since, &a.source).cmp(&(b.since, &b.source)));
    let rest = traffic.split_off(traffic.len().min(HOSTS_MAX));
    if rest.is_empty() {
        return traffic;
    }
    let none = Traffic {
        source: "other".to_owned(),
        since: UNIX_EPOCH,
        answered: 0,
        failed: 0,
        received_bytes: 0,
        waited: Duration::ZERO,
    };
    traffic.push(rest.into_iter().fold(none, |sum, one| Traffic {
        answered: sum.answered + one.answered,
        failed: sum.failed + one.failed,
        received_bytes: sum.received_bytes + one.received_bytes,
        waited: sum.waited + one.waited,
        ..sum
    }));
    traffic
}

/// Errors without a name of their own share one row.
fn summed(samples: Vec<Sample>) -> Vec<Sample> {
    let mut sums: Vec<Sample> = Vec::new();
    for sample in samples {
        match sums.iter_mut().find(|sum| sum.labels == sample.labels) {
            Some(sum) => sum.value = Value::Number(sum.number() + sample.number()),
            None => sums.push(sample),
        }
    }
    sums
}

fn labelled(name: &str, value: &str, number: u64) -> Sample {
    Sample { labels: vec![(name.to_owned(), value.to_owned())], value: Value::Number(number) }
}

fn family(name: &str, kind: FamilyKind, samples: Vec<Sample>) -> Family {
    let help = HELPS.iter().find(|(of, _)| *of == name).map_or("", |(_, help)| help);
    Family { name: name.to_owned(), help: help.to_owned(), kind, samples }
}

/// What each family counts. Kept in step with docs/metrics.md by a test.
const HELPS: &[(&str, &str)] = &[
    ("weft_info", "Always 1; the label tells the program's version."),
    ("weft_uptime_seconds", "Seconds since the mount."),
    ("weft_lookups_total", "Names looked up, by who answered."),
    ("weft_opens_total", "Files opened, by who answered."),
    ("weft_listings_total", "Directories listed, by who answered."),
    ("weft_checks_total", "Questions whether a file is still the same, by what was found."),
    ("weft_stale_served_total", "Answers served after their time because the source did not answer."),
    ("weft_orphans_forgotten_total", "Files forgotten to which no name led any more."),
    ("weft_ranges_total", "Ranges fetched from the middle of files."),
    ("weft_written_bytes_total", "Bytes that programs wrote."),
    ("weft_writes_sent_total", "Changes of contents that were sent to sources."),
    ("weft_unsent_files", "Files of which something written is not at the source."),
    ("weft_unsent_bytes", "Written bytes that are not at their sources."),
    ("weft_prefetches_total", "Files fetched or checked, and directories listed, ahead of a walk."),
    ("weft_prefetches_used_total", "Of these, used afterwards."),
    ("weft_failures_total", "Questions to sources that failed."),
    ("weft_served_bytes_total", "Bytes of content given to the kernel by the daemon."),
    ("weft_received_bytes_total", "Bytes of content received from sources."),
    ("weft_cache_bytes", "Bytes of cached content."),
    ("weft_cache_objects", "Cached files."),
    ("weft_cache_free_bytes", "Free bytes where the cache lies."),
    ("weft_names", "Names known, cached or not."),
    ("weft_open_files", "Files that are open."),
    ("weft_inodes", "Inodes in memory."),
    ("weft_kernel_request_duration_seconds", "How long the kernel's requests took, by operation."),
    ("weft_kernel_errors_total", "Requests of the kernel answered with an error."),
    ("weft_host_requests_total", "Requests to a host, by outcome."),
    ("weft_host_received_bytes_total", "Bytes of bodies received from a host."),
    ("weft_host_answer_duration_seconds", "Wait for a host's answers, from the request to their first word."),
];

/// Hosts with rows of their own in one binding.
const HOSTS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_names_every_family() {
        let manual = include_str!("../../../../docs/metrics.md");
        for (name, help) in HELPS {
            assert!(manual.contains(&format!("`{name}`")), "docs/metrics.md does not tell of {name}");
            assert!(help.ends_with('.') && name.starts_with("weft_"), "{name}");
        }
        let named = manual.matches("| `weft_").count();
        assert_eq!(named, HELPS.len(), "docs/metrics.md tells of families that there are not");
    }

    #[test]
    fn the_number_of_hosts_is_bounded_and_rows_stay() {
        let host = |number: u64| Traffic {
            source: format!("h{number}"),
            since: UNIX_EPOCH + Duration::from_secs(number),
            answered: 1,
            failed: 2,
            received_bytes: 3,
            waited: Duration::from_secs(1),
        };
        assert_eq!(bounded((0..100).rev().map(host).collect()).len(), 100);
        let rows = bounded((0..250).rev().map(host).collect());
        assert_eq!(rows.len(), 101);
        assert_eq!((rows[0].source.as_str(), rows[99].source.as_str()), ("h0", "h99"));
        let other = &rows[100];
        assert_eq!((other.source.as_str(), other.answered, other.failed), ("other", 150, 300));
    }
}
