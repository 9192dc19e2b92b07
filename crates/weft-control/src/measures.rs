//! The figures of a daemon at one moment: what `weft stats` and Prometheus show, in one form.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

/// Everything that is counted, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measures {
    /// The families, each with a name of its own, in an order that reads well.
    pub families: Vec<Family>,
}

/// Figures of one name that differ in their labels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Family {
    /// The name: `[a-z_]+`, with the unit last. Names are stable (docs/metrics.md).
    pub name: String,
    /// What it counts, in one line.
    pub help: String,
    /// How it moves.
    pub kind: FamilyKind,
    /// The figures.
    pub samples: Vec<Sample>,
}

/// How a figure moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FamilyKind {
    /// Only upwards, from 0 at the mount.
    Counter,
    /// Both ways.
    Gauge,
    /// Durations in seconds, counted by how long they were.
    Histogram,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Names and values of its labels.
    pub labels: Vec<(String, String)>,
    /// The figure.
    pub value: Value,
}

/// A number, or numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// Of a counter or gauge.
    Number(u64),
    /// Of a histogram.
    Spread(Spread),
}

/// How often what took how long.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Upper bound in nanoseconds and how many were at most that long but longer than the bound before.
    pub buckets: Vec<(u64, u64)>,
    /// How many were longer than the last bound.
    pub longer: u64,
    /// All of them together, in nanoseconds.
    pub sum_ns: u64,
}

impl Measures {
    /// The family of this name.
    pub fn family(&self, name: &str) -> Option<&Family> {
        self.families.iter().find(|family| family.name == name)
    }

    /// The sum of a family's numbers; 0 when it is not there.
    pub fn sum(&self, name: &str) -> u64 {
        let samples = self.family(name).map_or(&[][..], |family| &family.samples);
        samples.iter().map(|sample| sample.number()).sum()
    }

    /// The text format that Prometheus reads, version 0.0.4 (prometheus.io, "Text-based format").
    pub fn exposition(&self) -> String {
        let mut text = String::new();
        for family in &self.families {
            family.expose(&mut text);
        }
        text
    }
}

impl Family {
    fn expose(&self, text: &mut String) {
        let kind = match self.kind {
            FamilyKind::Counter => "counter",
            FamilyKind::Gauge => "gauge",
            FamilyKind::Histogram => "histogram",
        };
        let help = self.help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a String cannot fail.
        let _ = write!(text, "# HELP {0} {help}\n# TYPE {0} {kind}\n", self.name);
        for sample in &self.samples {
            match &sample.value {
                Value::Number(number) => {
                    let _ = writeln!(text, "{}{} {number}", self.name, braces(&sample.labels, None));
                }
                Value::Spread(spread) => spread.expose(text, &self.name, &sample.labels),
            }
        }
    }
}

impl Sample {
    /// The number; of a spread, how many there were.
    pub fn number(&self) -> u64 {
        match &self.value {
            Value::Number(number) => *number,
            Value::Spread(spread) => spread.count(),
        }
    }

    /// The value of a label; empty when it has none of that name.
    pub fn label(&self, name: &str) -> &str {
        self.labels.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value)
    }
}

impl Spread {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum::<u64>() + self.longer
    }

    /// The bound in nanoseconds that a part of all (0.99) did not exceed; `None` when there were none, the last bound
    /// when it lies beyond.
    pub fn quantile_ns(&self, part: f64) -> Option<u64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let wanted = ((count as f64 * part).ceil() as u64).clamp(1, count);
        let mut seen = 0;
        for (bound, count) in &self.buckets {
            seen += count;
            if seen >= wanted {
                return Some(*bound);
            }
        }
        self.buckets.last().map(|(bound, _)| *bound)
    }

    /// What has come since `before`.
    pub fn since(&self, before: &Spread) -> Spread {
        let earlier = |bound: u64| before.buckets.iter().find(|(found, _)| *found == bound).map_or(0, |(_, n)| *n);
        Spread {
            buckets: self.buckets.iter().map(|(bound, n)| (*bound, n.saturating_sub(earlier(*bound)))).collect(),
            longer: self.longer.saturating_sub(before.longer),
            sum_ns: self.sum_ns.saturating_sub(before.sum_ns),
        }
    }

    fn expose(&self, text: &mut String, name: &str, labels: &[(String, String)]) {
        let mut seen = 0;
        for (bound, count) in &self.buckets {
            seen += count;
            let bound = seconds(*bound);
            let _ = writeln!(text, "{name}_bucket{} {seen}", braces(labels, Some(&bound)));
        }
        let _ = writeln!(text, "{name}_bucket{} {}", braces(labels, Some("+Inf")), self.count());
        let _ = writeln!(text, "{name}_sum{} {}", braces(labels, None), seconds(self.sum_ns));
        let _ = writeln!(text, "{name}_count{} {}", braces(labels, None), self.count());
    }
}

fn seconds(nanoseconds: u64) -> String {
    format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000)
}

/// Labels as the format wants them: backslash, quote and line feed escaped in values.
fn braces(labels: &[(String, String)], bound: Option<&str>) -> String {
    let le = bound.map(|bound| ("le".to_owned(), bound.to_owned()));
    let all: Vec<String> = labels
        .iter()
        .chain(&le)
        .map(|(name, value)| {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            format!("{name}=\"{value}\"")
        })
        .collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_bounds_that_were_not_exceeded() {
        let spread = Spread { buckets: vec![(10, 5), (20, 4), (40, 0)], longer: 1, sum_ns: 300 };
        assert_eq!(spread.count(), 10);
        assert_eq!(spread.quantile_ns(0.5), Some(10));
        assert_eq!(spread.quantile_ns(0.51), Some(20));
        assert_eq!(spread.quantile_ns(1.0), Some(40), "the last bound stands for what is beyond it");
        assert_eq!(Spread::default().quantile_ns(0.5), None);
        let later = Spread { buckets: vec![(10, 6), (20, 9), (40, 0)], longer: 1, sum_ns: 700 };
        assert_eq!(later.since(&spread), Spread { buckets: vec![(10, 1), (20, 5), (40, 0)], longer: 0, sum_ns: 400 });
    }

    #[test]
    fn odd_labels_and_helps_stay_on_their_lines() {
        let sample = |value| Sample { labels: vec![("host".to_owned(), "a\"\\\nb".to_owned())], value };
        let family = |kind, value| Family {
            name: "weft_x".to_owned(),
            help: "one\ntwo \\".to_owned(),
            kind,
            samples: vec![sample(value)],
        };
        let number = Measures { families: vec![family(FamilyKind::Counter, Value::Number(7))] };
        let wanted = "# HELP weft_x one\\ntwo \\\\\n# TYPE weft_x counter\nweft_x{host=\"a\\\"\\\\\\nb\"} 7\n";
        assert_eq!(number.exposition(), wanted);
        let spread = Spread { buckets: vec![(1000, 2), (2000, 1)], longer: 1, sum_ns: 1_500_000_000 };
        let spread = Measures { families: vec![family(FamilyKind::Histogram, Value::Spread(spread))] };
        let text = spread.exposition();
        for line in
            ["le=\"0.000001000\"} 2", "le=\"0.000002000\"} 3", "le=\"+Inf\"} 4", "_sum", "1.500000000", "_count"]
        {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert_eq!(text.lines().count(), 7);
    }
}
