//! The word that was probably meant.

/// The candidate that `word` is nearest to, if any is near: at most a third of its letters differ, or two.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > WORD_BYTES_MAX {
        return None;
    }
    let by_distance = candidates.into_iter().map(|candidate| (distance(word, candidate), candidate));
    let (distance, candidate) = by_distance.min_by_key(|(distance, _)| *distance)?;
    (distance <= (candidate.len() / 3).max(2)).then_some(candidate)
}

/// How many letters must be changed, added, taken away or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = change.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// Longer words are not compared: nothing of ours is that long.
const WORD_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_named_only_when_it_is_near() {
        let words = ["deadline", "allow_other", "threads"];
        assert_eq!(nearest("dedline", words), Some("deadline"));
        assert_eq!(nearest("allow-other", words), Some("allow_other"));
        assert_eq!(nearest("thraeds", words), Some("threads"));
        assert_eq!(nearest("banana", words), None);
        assert_eq!(nearest(&"x".repeat(1000), words), None);
    }
}
