//! The book of a table: what was measured, by contender and by what.

use std::collections::BTreeMap;

use crate::report::{Against, Bound, Row, Unit};

/// Values in the order of the rounds.
#[derive(Debug, Default)]
pub struct Book(BTreeMap<(&'static str, &'static str), Vec<f64>>);

impl Book {
    /// Writes down the value of this round.
    pub fn note(&mut self, who: &'static str, what: &'static str, value: f64) {
        self.0.entry((who, what)).or_default().push(value);
    }

    /// What was written down; empty when the contender was not there.
    pub fn values(&self, who: &'static str, what: &'static str) -> Vec<f64> {
        self.0.get(&(who, what)).cloned().unwrap_or_default()
    }

    /// A row that compares weft with another, round by round. `None` without values on both sides.
    pub fn compare(
        &self,
        title: &str,
        unit: Unit,
        what: &'static str,
        against: (&'static str, &'static str),
        bound: Option<Bound>,
    ) -> Option<Row> {
        let (ours, theirs) = (self.values("weft", what), self.values(against.0, against.1));
        let pairs = !ours.is_empty() && !theirs.is_empty();
        let against = Some(Against { name: against.0.to_owned(), values: theirs });
        pairs.then(|| Row { title: title.to_owned(), unit, ours, against, bound })
    }

    /// A row of weft alone.
    pub fn alone(&self, title: &str, unit: Unit, what: &'static str, bound: Option<Bound>) -> Option<Row> {
        let ours = self.values("weft", what);
        (!ours.is_empty()).then(|| Row { title: title.to_owned(), unit, ours, against: None, bound })
    }
}
