//! The rules of a robots.txt (RFC 9309). No I/O here.
//!
//! Lines are `key: value`; everything from a `#` on is a comment. One or more `user-agent` lines begin a group, the
//! `allow` and `disallow` lines after them are its rules; groups for the same program count together, and those for `*`
//! count where none names it. Of the rules that match a path the longest wins, and of two of one length the one that
//! allows. `Crawl-delay` is not in the RFC; many sites write it and many programs keep it.

use std::time::Duration;

/// What a robots.txt says to one program.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Robots {
    rules: Vec<Rule>,
    /// As it was written, whatever it is.
    pub delay: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
struct Rule {
    allows: bool,
    pattern: Vec<Unit>,
    /// The pattern ends where the path ends.
    anchored: bool,
}

/// What one place of a path or a pattern stands for, the same for all spellings of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Byte(u8),
    /// A byte that means something else when it is escaped: `%2F` and `%3F` are no slash and no question mark.
    Escaped(u8),
    /// A `*`: any number of places.
    Any,
}

/// Groups for this program, or for all.
#[derive(Default)]
struct Found {
    ours: Option<Robots>,
    all: Option<Robots>,
}

impl Robots {
    /// Reads the first [`BYTES_MAX`] bytes of a file for the program with this product token. Never fails: what cannot
    /// be read says nothing.
    pub fn parse(file: &[u8], token: &str) -> Robots {
        let file = &file[..file.len().min(BYTES_MAX)];
        let file = file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file);
        let mut found = Found::default();
        // Which of the two the group at hand is for, and whether it has begun to say something.
        let (mut ours, mut all, mut begun) = (false, false, true);
        for line in file.split(|byte| matches!(byte, b'\n' | b'\r')) {
            let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let (key, value) = (line[..colon].trim_ascii().to_ascii_lowercase(), line[colon + 1..].trim_ascii());
            if key == b"user-agent" {
                if begun {
                    (ours, all, begun) = (false, false, false);
                }
                all |= value == b"*";
                ours |= is_token(value, token);
                if ours {
                    found.ours.get_or_insert_default();
                }
                if all {
                    found.all.get_or_insert_default();
                }
                continue;
            }
            let said = match key.as_slice() {
                b"allow" => Said::Rule(Rule::read(value, true)),
                b"disallow" => Said::Rule(Rule::read(value, false)),
                b"crawl-delay" => Said::Delay(seconds(value)),
                _ => continue,
            };
            begun = true;
            found.ours.iter_mut().filter(|_| ours).for_each(|robots| robots.add(&said));
            found.all.iter_mut().filter(|_| all).for_each(|robots| robots.add(&said));
        }
        found.ours.or(found.all).unwrap_or_default()
    }

    /// Whether a path, with its query if it has one, may be asked for.
    pub fn allow(&self, path_and_query: &str) -> bool {
        if path_and_query == ROBOTS_PATH {
            return true;
        }
        let path = units(path_and_query.as_bytes(), false);
        let mut steps_left = STEPS_MAX;
        let mut best: Option<(usize, bool)> = None;
        for rule in &self.rules {
            let rank = (rule.pattern.len() + usize::from(rule.anchored), rule.allows);
            if best.is_some_and(|best| best >= rank) {
                continue;
            }
            match rule.matches(&path, &mut steps_left) {
                Some(true) => best = Some(rank),
                Some(false) => {}
                // Rules made to keep us busy are taken at their word.
                None => return false,
            }
        }
        best.is_none_or(|(_, allows)| allows)
    }

    fn add(&mut self, said: &Said) {
        match said {
            Said::Rule(Some(rule)) if self.rules.len() < RULES_MAX => self.rules.push(rule.clone()),
            Said::Rule(_) => {}
            Said::Delay(delay) => self.delay = self.delay.max(*delay),
        }
    }
}

enum Said {
    Rule(Option<Rule>),
    Delay(Option<Duration>),
}

impl Rule {
    /// `None` for an empty one, which forbids nothing.
    fn read(value: &[u8], allows: bool) -> Option<Rule> {
        if value.is_empty() {
            return None;
        }
        let (value, anchored) = match value.strip_suffix(b"$") {
            Some(value) => (value, true),
            None => (value, false),
        };
        Some(Rule { allows, pattern: units(value, true), anchored })
    }

    /// Whether a path begins as the pattern says; `None` when the steps are used up.
    fn matches(&self, path: &[Unit], steps_left: &mut usize) -> Option<bool> {
        let (mut at, mut in_pattern) = (0, 0);
        // Where the last star stood, and how much it has taken.
        let mut star: Option<(usize, usize)> = None;
        loop {
            *steps_left = steps_left.checked_sub(1)?;
            match self.pattern.get(in_pattern) {
                None if !self.anchored || at == path.len() => return Some(true),
                Some(Unit::Any) => {
                    star = Some((in_pattern, at));
                    in_pattern += 1;
                    continue;
                }
                Some(unit) if path.get(at) == Some(unit) => {
                    at += 1;
                    in_pattern += 1;
                    continue;
                }
                _ => {}
            }
            let Some((of_star, taken)) = star.filter(|(_, taken)| *taken < path.len()) else { return Some(false) };
            star = Some((of_star, taken + 1));
            (at, in_pattern) = (taken + 1, of_star + 1);
        }
    }
}

/// A path or pattern with escapes undone, but for those that mean something else than what they escape.
fn units(text: &[u8], is_pattern: bool) -> Vec<Unit> {
    let digit = |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut units = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if text[at] == b'%'
            && let (Some(high), Some(low)) = (digit(at + 1), digit(at + 2))
        {
            // Two hexadecimal digits are a byte.
            let byte = (high * 16 + low) as u8;
            units.push(if matches!(byte, b'/' | b'?') { Unit::Escaped(byte) } else { Unit::Byte(byte) });
            at += 3;
            continue;
        }
        units.push(if is_pattern && text[at] == b'*' { Unit::Any } else { Unit::Byte(text[at]) });
        at += 1;
    }
    units
}

/// Whether a `user-agent` line names this product: its name ends where a character comes that none can have.
fn is_token(value: &[u8], token: &str) -> bool {
    let end = value.iter().position(|byte| !(byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_')));
    value[..end.unwrap_or(value.len())].eq_ignore_ascii_case(token.as_bytes())
}

fn seconds(value: &[u8]) -> Option<Duration> {
    let seconds: f64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds.min(DELAY_MAX_S)).ok()
}

/// Where the rules are (RFC 9309 section 2.3), which is always allowed (section 2.2.2).
pub(crate) const ROBOTS_PATH: &str = "/robots.txt";
/// What is read of a file: the least that RFC 9309 section 2.5 asks for.
pub(crate) const BYTES_MAX: usize = 500 << 10;
/// Most rules that count.
const RULES_MAX: usize = 50_000;
/// Most places compared for one path, so that rules of many stars end.
const STEPS_MAX: usize = 4_000_000;
/// More than a day is a day.
const DELAY_MAX_S: f64 = 86_400.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn allows(file: &str, path: &str) -> bool {
        Robots::parse(file.as_bytes(), "weft").allow(path)
    }

    #[test]
    fn the_longest_rule_wins() {
        let file =
            "User-agent: *\nDisallow: /\nAllow: /pub/\nDisallow: /pub/*.zip$\nAllow: /pub/same\nDisallow: /pub/same\n";
        for (path, allowed) in [
            ("/", false),
            ("/x", false),
            ("/pub/", true),
            ("/pub/a", true),
            ("/pub/a.zip", false),
            ("/pub/d/a.zip", false),
            ("/pub/a.zip?x", true),
            ("/pub/a.zipper", true),
            ("/pub/same", true),
            ("/robots.txt", true),
        ] {
            assert_eq!(allows(file, path), allowed, "{path}");
        }
    }

    #[test]
    fn groups_are_chosen_by_the_product() {
        let file = "user-agent: other\ndisallow: /\n\nUSER-AGENT: a\nUser-Agent: Weft/2.0 (x)\nDisallow: /w\n\
            user-agent: *\ndisallow: /all\nuser-agent: weft\nCrawl-delay: 2.5\ndisallow: /v # why\n";
        for (path, allowed) in [("/w", false), ("/v", false), ("/all", true), ("/x", true)] {
            assert_eq!(allows(file, path), allowed, "{path}");
        }
        assert_eq!(Robots::parse(file.as_bytes(), "weft").delay, Some(Duration::from_millis(2500)));
        assert!(!Robots::parse(file.as_bytes(), "weftling").allow("/all"), "another product");
        assert!(!allows("user-agent: weft\n\nuser-agent: *\ndisallow: /", "/x"), "one run of two lines");
        assert!(allows("user-agent: weft\ndisallow:\nuser-agent: *\ndisallow: /", "/x"), "an empty rule is none");
        assert!(allows("disallow: /", "/x"), "rules before any group are nobody's");
        assert!(!allows("\u{feff}user-agent:*\r\ndisallow:/x\r", "/x"), "BOM, CR and no spaces");
    }

    #[test]
    fn spellings_of_one_path_are_one() {
        for (rule, path, matches) in [
            ("/a%3Cd", "/a%3cd", true),
            ("/%7ejoe", "/~joe", true),
            ("/caf\u{e9}", "/caf%C3%A9", true),
            ("/a%2fb", "/a/b", false),
            ("/a%2Fb", "/a%2fb", true),
            ("/a%2A", "/a*", true),
            ("/a%2A", "/ab", false),
            ("/a%24", "/a$", true),
            ("/*%3F", "/a?b", false),
            ("/*?", "/a?b", true),
            ("*.gif$", "/a/b.gif", true),
            ("/a$b", "/a$bc", true),
            ("/50%", "/50%25", true),
        ] {
            let file = format!("user-agent: *\ndisallow: {rule}");
            assert_eq!(!allows(&file, path), matches, "{rule} {path}");
        }
    }

    #[test]
    fn delays_are_numbers_of_seconds() {
        for (text, delay) in
            [("0.5", Some(500)), ("-1", None), ("x", None), ("inf", Some(86_400_000)), ("NaN", Some(86_400_000))]
        {
            let file = format!("user-agent: *\ncrawl-delay: {text}");
            let delay = delay.map(Duration::from_millis);
            assert_eq!(Robots::parse(file.as_bytes(), "weft").delay, delay, "{text}");
        }
    }

    #[test]
    fn rules_made_to_keep_us_busy_end() {
        let file = format!("user-agent: *\ndisallow: /*{}b", "a".repeat(4000));
        assert!(!allows(&file, &format!("/{}", "a".repeat(8000))));
        let file = format!("user-agent: *\n{}disallow: /x", "#".repeat(BYTES_MAX));
        assert!(allows(&file, "/x"), "what comes after the bound is not read");
    }

    /// What a pattern means, in the most obvious way.
    fn obviously(pattern: &[u8], path: &[u8]) -> bool {
        match pattern.split_first() {
            None => true,
            Some((b'$', [])) => path.is_empty(),
            Some((b'*', rest)) => (0..=path.len()).any(|taken| obviously(rest, &path[taken..])),
            Some((byte, rest)) => path.first() == Some(byte) && obviously(rest, &path[1..]),
        }
    }

    proptest! {
        #[test]
        fn patterns_mean_what_they_say(pattern in "/[ab*]{0,8}\\$?", path in "/[ab]{0,10}") {
            let file = format!("user-agent: *\ndisallow: {pattern}");
            prop_assert_eq!(!allows(&file, &path), obviously(pattern.as_bytes(), path.as_bytes()));
        }

        #[test]
        fn no_bytes_break_it(file in proptest::collection::vec(any::<u8>(), 0..400), path in "/[ -~]{0,20}") {
            Robots::parse(&file, "weft").allow(&path);
        }

        #[test]
        fn an_allowed_path_stays_so_when_more_is_allowed(
            rules in proptest::collection::vec(("(dis)?allow", "/[ab*]{0,4}"), 0..6),
            path in "/[ab]{0,6}",
        ) {
            let lines: String = rules.iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
            let file = format!("user-agent: *\n{lines}");
            let more = format!("{file}allow: {path}$\n");
            prop_assert!(allows(&more, &path) || !allows(&file, &path));
        }
    }
}
