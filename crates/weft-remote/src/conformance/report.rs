//! What came of the cases.

use std::fmt;

/// What came of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseOutcome {
    /// As promised.
    Passed,
    /// Not as promised: how.
    Failed(String),
    /// Not asked of this kind: why.
    Excluded(String),
}

/// A case with its outcome.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// The case's name.
    pub name: String,
    /// What came of it.
    pub outcome: CaseOutcome,
}

/// The outcomes of a run of the suite, in the order of the cases.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// One for each case.
    pub results: Vec<CaseResult>,
}

impl Report {
    /// The cases that failed.
    pub fn failures(&self) -> Vec<&CaseResult> {
        self.results.iter().filter(|result| matches!(result.outcome, CaseOutcome::Failed(_))).collect()
    }

    /// How many cases were excluded.
    pub fn excluded(&self) -> usize {
        self.results.iter().filter(|result| matches!(result.outcome, CaseOutcome::Excluded(_))).count()
    }

    /// For tests.
    ///
    /// # Panics
    /// When a case failed, with the whole report.
    pub fn assert_clean(&self) {
        assert!(!self.results.is_empty(), "the suite has run");
        assert!(self.failures().is_empty(), "the suite found broken promises:\n{self}");
    }

    pub(super) fn add(&mut self, name: impl Into<String>, outcome: CaseOutcome) {
        self.results.push(CaseResult { name: name.into(), outcome });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for CaseResult { name, outcome } in &self.results {
            match outcome {
                CaseOutcome::Passed => writeln!(f, "passed    {name}")?,
                CaseOutcome::Failed(how) => writeln!(f, "FAILED    {name}: {how}")?,
                CaseOutcome::Excluded(why) => writeln!(f, "excluded  {name}: {why}")?,
            }
        }
        Ok(())
    }
}
