//! What a server was asked, from its access log.

use std::collections::BTreeMap;
use std::fmt;

/// Requests by sort.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// GETs of a path that ends in a slash.
    pub directories: u64,
    /// GETs of other paths that gave content (200, 206).
    pub files: u64,
    /// HEADs.
    pub heads: u64,
    /// Connections that did not speak HTTP: a client asking whether the port speaks TLS.
    pub probes: u64,
    /// Everything else, by method and status.
    pub others: BTreeMap<String, u64>,
}

impl Requests {
    /// Counts lines of the form `status TAB method TAB path` (server.rs writes them so).
    pub fn of(log: &str) -> Requests {
        let mut requests = Requests::default();
        for line in log.lines() {
            let mut fields = line.splitn(3, '\t');
            let (status, method, path) =
                (fields.next().unwrap_or(""), fields.next().unwrap_or(""), fields.next().unwrap_or(""));
            match (method, status) {
                (_, "400") => requests.probes += 1,
                ("HEAD", _) => requests.heads += 1,
                ("GET", "200") if path.ends_with('/') => requests.directories += 1,
                ("GET", "200" | "206") => requests.files += 1,
                _ => *requests.others.entry(format!("{method} {status}")).or_default() += 1,
            }
        }
        requests
    }

    /// All but the probes.
    pub fn total(&self) -> u64 {
        self.directories + self.files + self.heads + self.others.values().sum::<u64>()
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} directories, {} files, {} HEAD", self.directories, self.files, self.heads)?;
        for (sort, count) in &self.others {
            write!(f, ", {count} {sort}")?;
        }
        if self.probes > 0 {
            write!(f, ", and {} TLS probe", self.probes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_by_sort() {
        let log = "200\tGET\t/\n301\tGET\t/a\n200\tGET\t/a/\n206\tGET\t/a/b\n200\tHEAD\t/a/b\n400\t\t\n";
        let requests = Requests::of(log);
        assert_eq!((requests.directories, requests.files, requests.heads, requests.probes), (2, 1, 1, 1));
        assert_eq!(requests.others.get("GET 301"), Some(&1));
        assert_eq!(requests.total(), 5);
        assert_eq!(requests.to_string(), "2 directories, 1 files, 1 HEAD, 1 GET 301, and 1 TLS probe");
    }
}
