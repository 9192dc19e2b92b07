//! The report: sections of rows, as Markdown.

use std::fmt::Write as _;

/// Everything that a run has to say.
#[derive(Debug)]
pub struct Report {
    /// On what it was measured.
    pub heading: Vec<String>,
    rounds: usize,
    /// In the order of measuring.
    pub sections: Vec<Section>,
}

/// One table.
#[derive(Debug)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// The figures.
    pub rows: Vec<Row>,
    /// What a reader has to know about them.
    pub notes: Vec<String>,
}

/// One figure: of weft, and of another where it is compared.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was measured.
    pub title: String,
    /// In which unit.
    pub unit: Unit,
    /// weft's values, by round.
    pub ours: Vec<f64>,
    /// With whom it is compared.
    pub against: Option<Against>,
    /// The target, where there is one: for the ratio, or for weft's value when it stands alone.
    pub bound: Option<Bound>,
}

/// The other side of a comparison.
#[derive(Clone, Debug)]
pub struct Against {
    /// Who.
    pub name: String,
    /// Values by round; fewer than weft's when it was measured less often.
    pub values: Vec<f64>,
}

/// How a value is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// MiB in a second.
    MibPerSecond,
    /// MB (millions of bytes).
    Megabytes,
    /// A number of things.
    Count,
    /// Things in a second.
    PerSecond,
    /// Things for each other thing.
    Each,
    /// Bytes for each thing.
    BytesEach,
}

/// A target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// No more than that.
    AtMost(f64),
    /// No less than that.
    AtLeast(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Bound::AtMost(most) => value <= most,
            Bound::AtLeast(least) => value >= least,
        }
    }

    fn shown(self) -> String {
        match self {
            Bound::AtMost(most) => format!("<= {}", to_thousandths(most)),
            Bound::AtLeast(least) => format!(">= {}", to_thousandths(least)),
        }
    }
}

impl Unit {
    fn shown(self, value: f64) -> String {
        match self {
            Unit::Seconds if value < 0.1 => format!("{:.1} ms", value * 1000.0),
            Unit::Seconds => format!("{value:.3} s"),
            Unit::MibPerSecond if value < 10.0 => format!("{value:.2} MiB/s"),
            Unit::MibPerSecond => format!("{value:.0} MiB/s"),
            Unit::Megabytes => format!("{value:.1} MB"),
            Unit::Count => format!("{value:.0}"),
            Unit::PerSecond if value >= 10_000.0 => format!("{:.1} k/s", value / 1000.0),
            Unit::PerSecond => format!("{value:.0}/s"),
            Unit::Each => format!("{value:.2}"),
            Unit::BytesEach => format!("{value:.1} B"),
        }
    }
}

impl Section {
    /// The first line.
    pub fn heading(&self) -> String {
        format!("### {}", self.title)
    }

    /// All of it.
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "{}\n\n| measured | weft | beside | ratio | spread | target | reached |\n|---|---|---|---|---|---|---|\n",
            self.heading()
        );
        self.rows.iter().for_each(|row| text.push_str(&format!("{}\n", row.markdown())));
        if !self.notes.is_empty() {
            text.push('\n');
        }
        self.notes.iter().for_each(|note| text.push_str(&format!("* {note}\n")));
        text
    }
}

impl Row {
    /// Ratios round by round, or weft's values when it stands alone.
    fn judged(&self) -> Vec<f64> {
        match &self.against {
            // A contender that is too slow for every round is compared with its one value.
            Some(against) if against.values.len() < self.ours.len() => {
                let theirs = median(&against.values);
                self.ours.iter().map(|ours| ours / theirs).collect()
            }
            Some(against) => self.ours.iter().zip(&against.values).map(|(ours, theirs)| ours / theirs).collect(),
            None => self.ours.clone(),
        }
    }

    fn markdown(&self) -> String {
        let judged = self.judged();
        let middle = median(&judged);
        let (least, most) = (fold(&judged, f64::min), fold(&judged, f64::max));
        let ours = self.unit.shown(median(&self.ours));
        let (theirs, ratio, spread) = match &self.against {
            Some(against) => {
                let theirs = format!("{} {}", against.name, self.unit.shown(median(&against.values)));
                (theirs, format!("{middle:.2}"), format!("{least:.2} to {most:.2}"))
            }
            None => (String::new(), String::new(), format!("{} to {}", self.unit.shown(least), self.unit.shown(most))),
        };
        let target = self.bound.map(Bound::shown).unwrap_or_default();
        let reached = match self.bound {
            Some(bound) if bound.holds(middle) => "yes",
            Some(_) => "**no**",
            None => "",
        };
        format!("| {} | {ours} | {theirs} | {ratio} | {spread} | {target} | {reached} |", self.title)
    }
}

impl Report {
    /// An empty report.
    pub fn new(heading: Vec<String>, rounds: usize) -> Report {
        Report { heading, rounds, sections: Vec::new() }
    }

    /// The whole of it.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for line in &self.heading {
            let _ = writeln!(text, "* {line}");
        }
        let _ =
            writeln!(text, "* rounds: {}; the median is shown, with the spread of the ratio over them", self.rounds);
        self.sections.iter().for_each(|section| text.push_str(&format!("\n{}", section.markdown())));
        text
    }
}

/// The middle value; of an even number the mean of the two.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}

/// A target as it is printed: one of two sevenths is not shown with sixteen digits.
fn to_thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn fold(values: &[f64], with: impl Fn(f64, f64) -> f64) -> f64 {
    values.iter().copied().reduce(with).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: &[f64], theirs: &[f64], bound: Bound) -> Row {
        let against = Some(Against { name: "curl".to_owned(), values: theirs.to_vec() });
        Row { title: "t".to_owned(), unit: Unit::Seconds, ours: ours.to_vec(), against, bound: Some(bound) }
    }

    #[test]
    fn a_ratio_is_of_one_round_and_the_median_is_judged() {
        let row = row(&[1.0, 9.0, 2.0], &[1.0, 3.0, 4.0], Bound::AtMost(1.0));
        assert_eq!(row.judged(), [1.0, 3.0, 0.5]);
        assert_eq!(row.markdown(), "| t | 2.000 s | curl 3.000 s | 1.00 | 0.50 to 3.00 | <= 1 | yes |");
    }

    #[test]
    fn a_missed_target_is_seen() {
        assert!(row(&[1.0], &[4.0], Bound::AtLeast(0.5)).markdown().ends_with("| >= 0.5 | **no** |"));
        assert!(row(&[1.0], &[4.0], Bound::AtLeast(2.0 / 7.0)).markdown().ends_with("| >= 0.286 | **no** |"));
    }

    #[test]
    fn a_contender_of_one_round_is_compared_with_all_of_ours() {
        assert_eq!(row(&[1.0, 2.0], &[4.0], Bound::AtMost(1.0)).judged(), [0.25, 0.5]);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert!(median(&[]).is_nan());
    }
}
