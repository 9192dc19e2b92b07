//! Reading a configuration file. Every mistake is reported with its line, the value and what is allowed.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use weft_fuse::Transport;

use super::web::WEB_KEYS;
use super::{
    Class, Freshness, MetricsSettings, OpenFiles, Settings, TreeRule, nearest, parse_class, parse_duration,
    parse_freshness, parse_open_files, parse_size,
};

/// What is wrong with a configuration file: all of it, in the order of the lines.
#[derive(Debug)]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// Line (from 1, 0 where it concerns the whole file) and sentence.
    pub mistakes: Vec<(usize, String)>,
}

impl std::error::Error for FileError {}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (line, sentence)) in self.mistakes.iter().enumerate() {
            let end_of_previous = if nth == 0 { "" } else { "\n" };
            match line {
                0 => write!(f, "{end_of_previous}{}: {sentence}", self.path.display())?,
                _ => write!(f, "{end_of_previous}{}:{line}: {sentence}", self.path.display())?,
            }
        }
        Ok(())
    }
}

/// Reads a file. Paths in it that are relative are relative to its folder.
///
/// # Errors
/// Every mistake at once; a file that cannot be read is one.
pub fn load_file(path: &Path) -> Result<Settings, FileError> {
    let of_file = |sentence: String| FileError { path: path.to_owned(), mistakes: vec![(0, sentence)] };
    let length = std::fs::metadata(path).map_err(|error| of_file(error.to_string()))?.len();
    if length > FILE_BYTES_MAX {
        return Err(of_file(format!("longer than {FILE_BYTES_MAX} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| of_file(error.to_string()))?;
    parse(path, &text)
}

pub(super) fn parse(path: &Path, text: &str) -> Result<Settings, FileError> {
    let mut reader = Reader { text, folder: path.parent().unwrap_or(Path::new("/")).to_owned(), mistakes: Vec::new() };
    let settings = match DeTable::parse(text) {
        Ok(table) => reader.file(table.get_ref()),
        Err(error) => {
            let at = error.span().unwrap_or(0..0);
            reader.mistake(at, format!("not TOML: {}", error.message().trim_end()));
            Settings::default()
        }
    };
    let mut mistakes = reader.mistakes;
    mistakes.sort();
    if mistakes.is_empty() { Ok(settings) } else { Err(FileError { path: path.to_owned(), mistakes }) }
}

/// Goes through the tables of a file and gathers mistakes.
pub(super) struct Reader<'a> {
    text: &'a str,
    folder: PathBuf,
    mistakes: Vec<(usize, String)>,
}

pub(super) type Value<'v> = Spanned<DeValue<'v>>;

impl Reader<'_> {
    fn file(&mut self, table: &DeTable<'_>) -> Settings {
        let mut settings = Settings::default();
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "mount" => self.each(value, "mount", MOUNT_KEYS, |reader, key, value| match key {
                    "deadline" => settings.deadline = reader.time(key, value, SHORTEST_DEADLINE),
                    "allow_other" => settings.allow_other = reader.boolean(key, value),
                    "stale_if_error" => settings.stale_if_error = reader.time(key, value, Duration::ZERO),
                    "threads" => settings.threads = reader.number(key, value, 1..=256),
                    "transport" => settings.transport = reader.transport(value),
                    "open_files" => settings.open_files = reader.open_files(value),
                    _ => settings.freshness = reader.freshness(value),
                }),
                "cache" => self.each(value, "cache", CACHE_KEYS, |reader, key, value| match key {
                    "dir" => settings.cache_dir = reader.path(key, value),
                    "class" => settings.space.class = reader.class(value),
                    "max" => settings.space.max = reader.size(key, value),
                    "scratch_max" => settings.space.scratch_max = reader.size(key, value),
                    "max_per_host" => settings.space.max_per_host = reader.size(key, value),
                    _ => settings.space.keep_free = reader.size(key, value),
                }),
                "metrics" => settings.metrics = self.metrics(value),
                "web" => self.each(value, "web", WEB_KEYS, |reader, key, value| reader.web(&mut settings, key, value)),
                "tree" => settings.trees = self.trees(value),
                "dir" => settings.dirs = self.directories(value),
                "afs" => settings.afs = self.afs(value),
                other => self.unknown(key, other, "", TABLES),
            }
        }
        settings
    }

    fn metrics(&mut self, value: &Value<'_>) -> MetricsSettings {
        let mut metrics = MetricsSettings::default();
        self.each(value, "metrics", METRICS_KEYS, |reader, key, value| match key {
            "listen" => metrics.listen = reader.address(key, value),
            _ => metrics.allow_remote = reader.boolean(key, value),
        });
        if let Some(listen) = metrics.listen
            && !listen.ip().is_loopback()
            && metrics.allow_remote != Some(true)
        {
            let sentence = format!(
                "`listen` = \"{listen}\" is no loopback address: whoever reaches it sees the hosts that were visited; \
                `allow_remote = true` beside it allows that"
            );
            self.mistake(value.span(), sentence);
        }
        metrics
    }

    pub(super) fn address(&mut self, key: &str, value: &Value<'_>) -> Option<SocketAddr> {
        const WANTED: &str = "an address and a port in quotes, as in \"127.0.0.1:9469\" or \"[::1]:9469\"";
        let text = self.text_of(key, value, WANTED)?;
        match text.parse() {
            Ok(address) => Some(address),
            Err(_) => self.refuse(value, format!("`{key}` = \"{text}\": {WANTED} is needed")),
        }
    }

    fn trees(&mut self, value: &Value<'_>) -> Vec<TreeRule> {
        let mut rules = Vec::new();
        for table in self.tables("tree", value) {
            let (mut path, mut freshness, mut stale_if_error) = (None, None, None);
            let (mut open_files, mut class, mut max) = (None, None, None);
            let mut whole = true;
            self.each(table, "tree", TREE_KEYS, |reader, key, value| match key {
                "path" => {
                    path = reader.tree_path(value);
                    whole &= path.is_some();
                }
                "stale_if_error" => {
                    stale_if_error = reader.time(key, value, Duration::ZERO);
                    whole &= stale_if_error.is_some();
                }
                "open_files" => {
                    open_files = reader.open_files(value);
                    whole &= open_files.is_some();
                }
                "class" => {
                    class = reader.class(value);
                    whole &= class.is_some();
                }
                "max" => {
                    max = reader.size(key, value);
                    whole &= max.is_some();
                }
                _ => {
                    freshness = reader.freshness(value);
                    whole &= freshness.is_some();
                }
            });
            let of_answers = freshness.is_some() || stale_if_error.is_some() || open_files.is_some();
            let says_something = of_answers || class.is_some() || max.is_some();
            match path {
                Some(path) if says_something => {
                    rules.push(TreeRule { path, freshness, open_files, stale_if_error, class, max });
                }
                _ if whole => {
                    let sentence =
                        "a [[tree]] needs a `path` and a `freshness`, `open_files`, a `stale_if_error`, a `class` or a `max`"
                            .to_owned();
                    self.mistake(table.span(), sentence);
                }
                _ => {}
            }
        }
        rules
    }

    /// The tables of a list.
    pub(super) fn tables<'v, 'w>(&mut self, name: &str, value: &'w Value<'v>) -> &'w [Value<'v>] {
        match value.get_ref() {
            DeValue::Array(tables) => tables,
            _ => {
                self.mistake(value.span(), format!("`{name}` is a list of tables: write each as [[{name}]]"));
                &[]
            }
        }
    }

    /// How many mistakes there are so far.
    pub(super) fn mistakes_count(&self) -> usize {
        self.mistakes.len()
    }

    /// Hands each known key of a table to `take` and reports the others.
    pub(super) fn each(
        &mut self,
        value: &Value<'_>,
        name: &str,
        known: &[&str],
        mut take: impl FnMut(&mut Self, &str, &Value<'_>),
    ) {
        let DeValue::Table(table) = value.get_ref() else {
            self.mistake(value.span(), format!("`{name}` is a table: write it as [{name}]"));
            return;
        };
        for (key, value) in table {
            let text = key.get_ref().as_ref();
            if known.contains(&text) {
                take(self, text, value);
            } else {
                self.unknown(key, text, name, known);
            }
        }
    }

    fn unknown(&mut self, key: &Spanned<DeString<'_>>, text: &str, table: &str, known: &[&str]) {
        let place = if table.is_empty() { String::new() } else { format!(" in [{table}]") };
        let rest = match nearest(text, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}", known.join(", ")),
        };
        self.mistake(key.span(), format!("unknown key `{text}`{place}: {rest}"));
    }

    pub(super) fn time(&mut self, key: &str, value: &Value<'_>, shortest: Duration) -> Option<Duration> {
        let text = self.text_of(key, value, "a time in quotes, as in \"30s\", \"10m\", \"2h\" or \"1d\"")?;
        match parse_duration(&text) {
            Ok(time) if time >= shortest => Some(time),
            Ok(_) => self.refuse(value, format!("`{key}` = \"{text}\" is too short: at least {shortest:?}")),
            Err(sentence) => self.refuse(value, format!("`{key}`: {sentence}")),
        }
    }

    pub(super) fn boolean(&mut self, key: &str, value: &Value<'_>) -> Option<bool> {
        match value.get_ref() {
            DeValue::Boolean(value) => Some(*value),
            _ => self.wrong_type(key, value, "true or false"),
        }
    }

    pub(super) fn number(
        &mut self,
        key: &str,
        value: &Value<'_>,
        allowed: std::ops::RangeInclusive<usize>,
    ) -> Option<usize> {
        let bounds = format!("a whole number from {} to {}", allowed.start(), allowed.end());
        let DeValue::Integer(number) = value.get_ref() else { return self.wrong_type(key, value, &bounds) };
        match usize::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) if allowed.contains(&number) => Some(number),
            _ => self.refuse(value, format!("`{key}` = {}: {bounds} is allowed", number.as_str())),
        }
    }

    fn freshness(&mut self, value: &Value<'_>) -> Option<Freshness> {
        let text = self.text_of("freshness", value, "\"manual\", \"ttl=10m\", \"http\" or \"always\"")?;
        match parse_freshness(&text) {
            Ok(freshness) => Some(freshness),
            Err(sentence) => self.refuse(value, sentence),
        }
    }

    fn open_files(&mut self, value: &Value<'_>) -> Option<OpenFiles> {
        match parse_open_files(&self.text_of("open_files", value, "\"version\" or \"newest\"")?) {
            Ok(shown) => Some(shown),
            Err(sentence) => self.refuse(value, sentence),
        }
    }

    fn transport(&mut self, value: &Value<'_>) -> Option<Transport> {
        match self.text_of("transport", value, "\"auto\", \"classic\" or \"io_uring\"")?.parse() {
            Ok(transport) => Some(transport),
            Err(sentence) => self.refuse(value, sentence),
        }
    }

    fn class(&mut self, value: &Value<'_>) -> Option<Class> {
        let text = self.text_of("class", value, "\"pinned\", \"kept\" or \"scratch\"")?;
        match parse_class(&text) {
            Ok(class) => Some(class),
            Err(sentence) => self.refuse(value, sentence),
        }
    }

    pub(super) fn size(&mut self, key: &str, value: &Value<'_>) -> Option<u64> {
        let text = self.text_of(key, value, "a size in quotes, as in \"500M\" or \"20G\"")?;
        match parse_size(&text) {
            Ok(size) => Some(size),
            Err(sentence) => self.refuse(value, format!("`{key}`: {sentence}")),
        }
    }

    pub(super) fn path(&mut self, key: &str, value: &Value<'_>) -> Option<PathBuf> {
        let text = self.text_of(key, value, "a path in quotes")?;
        if text.is_empty() {
            return self.refuse(value, format!("`{key}` is empty: a path is needed"));
        }
        if text.starts_with('~') {
            return self.refuse(value, format!("`{key}` = \"{text}\": ~ is not understood here, write the whole path"));
        }
        Some(self.folder.join(text))
    }

    fn tree_path(&mut self, value: &Value<'_>) -> Option<String> {
        let text = self.text_of("path", value, "a path below the mount, as in \"web/example.org/docs\"")?;
        let path = text.trim_end_matches('/');
        if path.is_empty() || path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            let allowed = "a path below the mount's root without a leading slash, . or .., as in \"web/example.org\"";
            return self.refuse(value, format!("`path` = \"{text}\": {allowed} is allowed"));
        }
        Some(path.to_owned())
    }

    pub(super) fn texts(&mut self, key: &str, value: &Value<'_>) -> Option<Vec<String>> {
        const WANTED: &str = "a list of names in quotes, as in [\".cache\", \"tmp*\"]";
        let DeValue::Array(items) = value.get_ref() else { return self.wrong_type(key, value, WANTED) };
        items.iter().map(|item| self.text_of(key, item, WANTED)).collect()
    }

    pub(super) fn text_of(&mut self, key: &str, value: &Value<'_>, wanted: &str) -> Option<String> {
        match value.get_ref() {
            DeValue::String(text) => Some(text.as_ref().to_owned()),
            _ => self.wrong_type(key, value, wanted),
        }
    }

    fn wrong_type<T>(&mut self, key: &str, value: &Value<'_>, wanted: &str) -> Option<T> {
        let found = self.text.get(value.span()).unwrap_or_default().trim();
        let found: String = found.chars().take(SHOWN_CHARS_MAX).collect();
        self.refuse(value, format!("`{key}` = {found}: {wanted} is needed"))
    }

    pub(super) fn refuse<T>(&mut self, value: &Value<'_>, sentence: String) -> Option<T> {
        self.mistake(value.span(), sentence);
        None
    }

    pub(super) fn mistake(&mut self, at: Range<usize>, sentence: String) {
        let before = self.text.as_bytes().get(..at.start).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        self.mistakes.push((line, sentence));
    }
}

const TABLES: &[&str] = &["mount", "cache", "metrics", "web", "dir", "afs", "tree"];
const METRICS_KEYS: &[&str] = &["listen", "allow_remote"];
const MOUNT_KEYS: &[&str] =
    &["deadline", "allow_other", "threads", "transport", "freshness", "open_files", "stale_if_error"];
const CACHE_KEYS: &[&str] = &["dir", "class", "max", "scratch_max", "max_per_host", "keep_free"];
const TREE_KEYS: &[&str] = &["path", "freshness", "open_files", "stale_if_error", "class", "max"];
/// Longest configuration file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// How much of a wrong value is shown.
const SHOWN_CHARS_MAX: usize = 60;
/// Shorter waits would fail everything.
pub(super) const SHORTEST_DEADLINE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, FileError> {
        parse(Path::new("/etc/weft/weft.toml"), text)
    }

    #[test]
    fn a_whole_file_is_read() {
        let text = "[mount]\ndeadline = \"10s\"\nallow_other = true\nthreads = 4\nfreshness = \"http\"\n\
            [cache]\ndir = \"cache\"\nclass = \"scratch\"\nmax = \"20G\"\nkeep_free = \"1G\"\n\
            [web]\nprobe_names_extra = [\".cache\"]\nconnections_per_host = 0x10\nheuristic_min = \"60s\"\n\
            [[tree]]\npath = \"web/example.org/docs/\"\nfreshness = \"ttl=10m\"\n\
            [[tree]]\npath = \"web\"\nfreshness = \"manual\"\n\
            [[tree]]\npath = \"web/a.org\"\nclass = \"pinned\"\nmax = \"500M\"\n";
        let settings = read(text).expect("good");
        assert_eq!(settings.deadline, Some(Duration::from_secs(10)));
        assert_eq!(settings.allow_other, Some(true));
        assert_eq!(settings.cache_dir.as_deref(), Some(Path::new("/etc/weft/cache")));
        assert_eq!(settings.web.connections_per_host, Some(16));
        assert_eq!(settings.web.probe_names_extra, [".cache"]);
        assert_eq!((settings.space.class, settings.space.max), (Some(Class::Scratch), Some(20 << 30)));
        assert_eq!((settings.space.keep_free, settings.space.scratch_max), (Some(1 << 30), None));
        assert_eq!(settings.trees.len(), 3);
        assert_eq!((settings.trees[2].freshness, settings.trees[2].class), (None, Some(Class::Pinned)));
        assert_eq!(settings.trees[2].max, Some(500 << 20));
        assert_eq!(settings.trees[0].path, "web/example.org/docs");
        assert_eq!(settings.trees[1].freshness, Some(Freshness::Manual));
        assert_eq!(read("").expect("good"), Settings::default());
    }

    #[test]
    fn every_mistake_names_its_line_and_what_is_allowed() {
        let cases = [
            ("[mount]\ndedline = \"1s\"", 2, "did you mean `deadline`?"),
            ("\n[mounts]\n", 2, "did you mean `mount`?"),
            ("[cache]\nbanana = 1", 2, "there are dir"),
            ("[cache]\nmax = \"20\"", 2, "a whole number and a unit"),
            ("[cache]\nmax = 20", 2, "a size in quotes"),
            ("[cache]\nclass = \"keep\"", 2, "pinned, kept or scratch"),
            ("[[tree]]\npath = \"web\"\nmax = \"-1G\"", 3, "a whole number and a unit"),
            ("[mount]\n\ndeadline = 30", 3, "`deadline` = 30: a time in quotes"),
            ("[mount]\ndeadline = \"30\"", 2, "a whole number and a unit"),
            ("[mount]\ndeadline = \"0s\"", 2, "too short"),
            ("[mount]\nthreads = 0", 2, "from 1 to 256"),
            ("[mount]\nthreads = -1", 2, "from 1 to 256"),
            ("[mount]\nallow_other = \"yes\"", 2, "true or false"),
            ("[mount]\nfreshness = \"soon\"", 2, "no freshness"),
            ("[mount]\nopen_files = \"soon\"", 2, "write version or newest"),
            ("mount = 7", 1, "write it as [mount]"),
            ("[tree]\npath = \"web\"", 1, "[[tree]]"),
            (
                "[[tree]]\npath = \"web\"",
                1,
                "needs a `path` and a `freshness`, `open_files`, a `stale_if_error`, a `class` or a `max`",
            ),
            ("[[tree]]\npath = \"/web\"\nfreshness = \"http\"", 2, "without a leading slash"),
            ("[web]\nprobe_names = \".git\"", 2, "a list of names"),
            ("[web]\nuser_agent = \"a\\nb\"", 2, "printable ASCII"),
            ("[cache]\ndir = \"~/x\"", 2, "whole path"),
            ("[web]\nnetcr = \"/x\"", 2, "did you mean `netrc`?"),
            ("[web]\nnetrc = \"~/.netrc\"", 2, "whole path"),
            ("[web]\ninsecure_credentials = 1", 2, "true or false"),
            ("[web]\nprivate_adresses = \"deny\"", 2, "did you mean `private_addresses`?"),
            ("[web]\nprivate_addresses = \"never\"", 2, "\"allow\", \"deny\" or \"auto\" is allowed"),
            ("[web]\nallow_hosts = [\"a.org\", \"a.org:80\"]", 2, "`allow_hosts`: \"a.org:80\" has a port"),
            ("[web]\ndeny_hosts = [\"10.0.0.1/8\"]", 2, "bits set behind its prefix"),
            ("[web]\ndeny_hosts = \"a.org\"", 2, "a list of names"),
            ("[metrics]\nlisten = \"localhost:1\"", 2, "an address and a port"),
            ("[metrics]\nlisten = \"0.0.0.0:9469\"", 1, "`allow_remote = true` beside it"),
            ("[metrics]\nlisten = \"[::]:1\"\nallow_remote = false", 1, "no loopback address"),
            ("[metrics]\nlisen = \"127.0.0.1:1\"", 2, "did you mean `listen`?"),
            ("[[dir]]\nname = \"www\"", 1, "needs a `name` and a `path`"),
            ("[[dir]]\nname = \"a/b\"\npath = \"/x\"", 2, "a name without slashes"),
            ("[[dir]]\nname = \"a\"\npath = \"/x/../y\"", 3, "without .."),
            ("[[dir]]\nname = \"a\"\npath = \"/x\"\nread_only = 1", 4, "true or false"),
            ("[[dir]]\nname = \"a\"\npaht = \"/x\"", 3, "did you mean `path`?"),
            (
                "[[dir]]\nname = \"a\"\npath = \"/x\"\n[[dir]]\nname = \"a\"\npath = \"/y\"",
                4,
                "two [[dir]] have the name a",
            ),
            ("[mount\n", 1, "not TOML"),
        ];
        for (text, line, wanted) in cases {
            let error = read(text).expect_err(text);
            assert_eq!(error.mistakes.len(), 1, "{text}: {error}");
            assert_eq!(error.mistakes[0].0, line, "{text}: {error}");
            let shown = error.to_string();
            assert!(shown.starts_with("/etc/weft/weft.toml:") && shown.contains(wanted), "{text}: {shown}");
        }
    }

    #[test]
    fn all_mistakes_come_at_once() {
        let error = read("[web]\nx = 1\n[mount]\ny = 2\n").expect_err("two");
        assert_eq!(error.mistakes.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 4]);
    }
}
