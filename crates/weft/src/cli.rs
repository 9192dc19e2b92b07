//! The command line: one definition for parsing, `--help`, man pages and completions.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::exit;
use crate::tools::{Which, is_json};

/// A network file system: one mount, and every remote tree has a name in it.
#[derive(Debug, Parser)]
#[command(name = "weft", version, after_help = exit::HELP, disable_help_subcommand = true)]
pub struct Cli {
    /// Print the result (or the error) as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do
    #[command(subcommand)]
    pub verb: Verb,
}

impl Cli {
    /// How the program is called in what it says of failures.
    pub fn name(&self) -> &'static str {
        self.tool().map_or("weft", |(which, _)| which.name())
    }

    /// Whether results and errors are to be JSON, which the words of a tool may say as well.
    pub fn wants_json(&self) -> bool {
        self.json || self.tool().is_some_and(|(_, args)| args.words.iter().any(|word| is_json(word)))
    }

    fn tool(&self) -> Option<(Which, &ToolArgs)> {
        match &self.verb {
            Verb::Fs(args) => Some((Which::Fs, args)),
            Verb::Vos(args) => Some((Which::Vos, args)),
            Verb::Pts(args) => Some((Which::Pts, args)),
            _ => None,
        }
    }
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Mount remote trees on a directory
    #[command(override_usage = "weft mount [OPTIONS] [SOURCE] <DIR>", after_help = MOUNT_EXAMPLES)]
    Mount(MountArgs),
    /// Take a mount away
    #[command(after_help = "Examples:\n  weft umount ~/weft\n  weft umount --lazy ~/weft   even while files are open")]
    Umount {
        /// The mount point
        dir: PathBuf,
        /// Take it away at once and let open files be closed later
        #[arg(long)]
        lazy: bool,
    },
    /// Go on with the program that is installed now; files stay open
    #[command(after_help = "Examples:\n  weft upgrade           the only mount\n  weft upgrade ~/weft")]
    Upgrade {
        /// A mount point, or anything in a mount
        dir: Option<PathBuf>,
    },
    /// Show mounts and how they are
    #[command(after_help = "Examples:\n  weft status            all mounts of yours\n  weft status ~/weft --json")]
    Status {
        /// A mount point, or anything in a mount
        dir: Option<PathBuf>,
    },
    /// List names that are known to exist remotely (also as `lsw`)
    #[command(after_help = LS_EXAMPLES)]
    Ls {
        /// Ask weft what it knows, not the kernel
        #[arg(short = 'w', long = "weft")]
        weft: bool,
        /// Also what is cached already
        #[arg(short, long)]
        all: bool,
        /// Directories or files in a mount
        #[arg(default_value = ".")]
        paths: Vec<PathBuf>,
    },
    /// Drop content from the cache, never from the remote (also as `rmw`)
    #[command(
        after_help = "Examples:\n  rmw ~/weft/web/example.org/index.html\n  weft rm -w -r ~/weft/web/example.org\n  weft rm -w -r --pinned ~/weft/web/example.org"
    )]
    Rm {
        /// Remove from weft's cache; without it there is nothing that weft would remove
        #[arg(short = 'w', long = "weft")]
        weft: bool,
        /// Directories with everything below them
        #[arg(short, long)]
        recursive: bool,
        /// Also what is pinned
        #[arg(long)]
        pinned: bool,
        /// Directories or files in a mount
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Ask the source now whether files have changed
    ///
    /// A path that is not known yet is looked for; where its host refuses a directory on the way, as hosts do that tell of no
    /// directories, the whole path is asked for, and what is there is in the tree from then on.
    #[command(
        after_help = "Examples:\n  weft reload ~/weft/web/example.org/index.html\n  weft reload -r ~/weft/web/example.org\n  weft reload ~/weft/web/files.example.org/a/1.0/a.tar.gz   the host tells of no directories"
    )]
    Reload {
        /// Directories with everything below them
        #[arg(short, long)]
        recursive: bool,
        /// Directories or files in a mount
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Ask no remote below a path: what is held serves, the rest fails at once, until `weft online`
    #[command(
        after_help = "Examples:\n  weft offline ~/weft\n  weft offline ~/weft/web/example.org\n  weft offline --fetch-only ~/weft   what is held is used unchecked, what is missing is fetched"
    )]
    Offline {
        /// Use what is held without checking it, and ask remotes only for what is missing
        #[arg(long)]
        fetch_only: bool,
        /// Directories or files in a mount; the mount itself for all of it
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Ask remotes again: where `weft offline` had stopped that, and hosts that were given up for the moment
    #[command(after_help = "Examples:\n  weft online ~/weft\n  weft online ~/weft/web/example.org")]
    Online {
        /// Directories or files in a mount; everything below them is put back as well
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Never evict what is or will be cached at and below a path, until `weft unpin`
    #[command(
        after_help = "Examples:\n  weft pin ~/weft/web/example.org/docs\n  weft pin --json ~/weft/web/example.org"
    )]
    Pin {
        /// Directories or files in a mount; below a known host they need not be known yet
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// End what `weft pin` began: the class of the tree decides again
    #[command(after_help = "Examples:\n  weft unpin ~/weft/web/example.org/docs\n  weft unpin ~/weft   all pins")]
    Unpin {
        /// Directories or files in a mount; pins below them end as well
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Show who uses what of the cache, and what was evicted
    #[command(after_help = CACHE_EXAMPLES)]
    Cache(CacheArgs),
    /// Tell a mount which files are read together, as the log of a web server knows it
    #[command(after_help = GROUP_EXAMPLES)]
    Group {
        /// The log (- for standard input)
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
        /// How it is written: lines (common and combined log format) or worldcup (records of 20 bytes)
        #[arg(long, value_name = "FORMAT", default_value = "lines")]
        format: weft_log::LogFormat,
        /// The directory in the mount that the server shows as /
        path: PathBuf,
    },
    /// Fetch ahead what is at and below paths: a forecast of the space first, then the files, politely
    #[command(after_help = WARM_EXAMPLES)]
    Warm(WarmArgs),
    /// List what was written here and is not at its source; send it, give it up, or save a copy
    Unsent(crate::cmd::unsent::UnsentArgs),
    /// Tell where a file comes from, how long it is trusted, and what was the matter with it
    #[command(
        after_help = "Examples:\n  weft why ~/weft/web/example.org/index.html\n  weft why --json ~/weft/web/example.org"
    )]
    Why {
        /// A file or directory in a mount
        path: PathBuf,
    },
    /// Files, volumes, access lists and mount points of AFS, as OpenAFS's tool of this name (also as `fs`)
    #[command(disable_help_flag = true, override_usage = "fs COMMAND [-OPTION [VALUE...]]...", after_help = Which::Fs.list())]
    Fs(ToolArgs),
    /// Volumes of AFS and their servers, as OpenAFS's tool of this name; it only asks (also as `vos`)
    #[command(disable_help_flag = true, override_usage = "vos COMMAND [-OPTION [VALUE...]]...", after_help = Which::Vos.list())]
    Vos(ToolArgs),
    /// Users and groups of a cell of AFS, as OpenAFS's tool of this name; it only asks (also as `pts`)
    #[command(disable_help_flag = true, override_usage = "pts COMMAND [-OPTION [VALUE...]]...", after_help = Which::Pts.list())]
    Pts(ToolArgs),
    /// Show figures: what was answered from where, how long the kernel waited, what each host was asked for
    #[command(after_help = STATS_EXAMPLES)]
    Stats {
        /// One line per interval with what has come in it, until interrupted
        #[arg(long, value_name = "EVERY", value_parser = crate::config::parse_duration, conflicts_with = "prometheus")]
        every: Option<std::time::Duration>,
        /// As Prometheus reads them
        #[arg(long, conflicts_with = "json")]
        prometheus: bool,
        /// A mount point, or anything in a mount; needed where there are several
        dir: Option<PathBuf>,
    },
    /// Tell the changes that are found below a path, line by line, until interrupted
    #[command(after_help = WATCH_EXAMPLES)]
    Watch {
        /// Ask the sources about what is held there at this pace, instead of waiting for other readers (at least 1s)
        #[arg(long, value_name = "EVERY", value_parser = crate::config::parse_duration)]
        validate: Option<std::time::Duration>,
        /// A mount point, or a directory or file in a mount; it need not be known yet
        path: PathBuf,
    },
    /// Get the ticket of a cell of AFS into your credential cache, where mounts find it (as aklog does)
    Login(crate::cmd::login::LoginArgs),
    /// Check or show the configuration
    Config {
        /// What to do
        #[command(subcommand)]
        verb: ConfigVerb,
    },
    /// A tour of one minute: mounts in a temporary folder, reads, stops the server, reads again
    #[command(after_help = "Examples:\n  weft demo")]
    Demo,
    /// Check this machine and say what to type
    #[command(after_help = "Examples:\n  weft doctor\n  weft doctor --json")]
    Doctor,
    /// Print completions for a shell
    #[command(after_help = "Examples:\n  weft completions bash > ~/.local/share/bash-completion/completions/weft")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the man page, or write all of them into a folder
    #[command(after_help = "Examples:\n  weft man | man -l -\n  weft man /usr/local/share/man/man1")]
    Man {
        /// The folder
        dir: Option<PathBuf>,
    },
}

/// What `weft mount` takes.
#[derive(Args, Clone, Debug)]
pub struct MountArgs {
    /// What to mount (nothing: everything; web; web:HOST/PATH; dir; dir:/PATH; afs; afs:CELL), and where
    #[arg(value_name = "[SOURCE] DIR", num_args = 1..=2, required = true)]
    pub source_and_dir: Vec<OsString>,
    /// Keep the cache here
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Read this configuration file alone
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Mount options, separated by commas
    #[arg(short = 'o', value_name = "OPTS")]
    pub options: Vec<String>,
    /// Stay in the foreground and log to the terminal
    #[arg(long)]
    pub foreground: bool,
    /// Report on standard output when the tree is usable: for the process that has started this one
    #[arg(long, value_enum, hide = true)]
    pub ready: Option<ReadyOn>,
    /// Standard input is a supervisor, which may have a mount to take over
    #[arg(long, hide = true)]
    pub supervised: bool,
}

/// What `weft cache` takes.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct CacheArgs {
    /// What to do instead
    #[command(subcommand)]
    pub action: Option<CacheAction>,
    /// A mount point, or anything in a mount: then what is at and below it
    pub path: Option<PathBuf>,
    /// By the users whose reads brought it, not by host
    #[arg(long, conflicts_with = "journal")]
    pub users: bool,
    /// The newest evictions, N of them
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "20", require_equals = true)]
    pub journal: Option<usize>,
}

/// What `weft cache` does instead of showing.
#[derive(Subcommand, Clone, Debug)]
pub enum CacheAction {
    /// Read everything that is held and compare it with its checksums
    Check {
        /// A mount point, or anything in a mount
        mount: Option<PathBuf>,
    },
    /// The same, and give up what is damaged: its next use fetches it again
    Repair {
        /// A mount point, or anything in a mount
        mount: Option<PathBuf>,
    },
}

/// What `weft warm` takes.
#[derive(Args, Clone, Debug)]
pub struct WarmArgs {
    /// Directories with everything below them, and files, in one mount
    #[arg(required_unless_present = "list")]
    pub paths: Vec<PathBuf>,
    /// Levels of directories below each path; all unless said
    #[arg(long, value_name = "N")]
    pub depth: Option<u32>,
    /// Also the paths in FILE (- for standard input), one per line: relative to the mount, absolute, or URLs
    #[arg(long, value_name = "FILE")]
    pub list: Option<PathBuf>,
    /// Only files whose path below PATH is like this; a glob without a slash is of a name at any depth
    #[arg(long = "match", value_name = "GLOB", value_parser = crate::globs::parse_glob)]
    pub matching: Vec<String>,
    /// No files like this, and nothing below directories like this
    #[arg(long, value_name = "GLOB", value_parser = crate::globs::parse_glob)]
    pub exclude: Vec<String>,
    /// Most bytes that are fetched in all, as in 500M
    #[arg(long, value_name = "SIZE", value_parser = crate::config::parse_size)]
    pub max: Option<u64>,
    /// Also never evict what is at and below the paths, as `weft pin` does
    #[arg(long)]
    pub pin: bool,
    /// End with the forecast
    #[arg(long)]
    pub dry_run: bool,
    /// Begin although it does not fit, and go on as far as it does
    #[arg(long)]
    pub force: bool,
    /// Files and listings under way at a time, over all hosts
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
    /// Most requests per time, over all hosts: 5/s, 30/m, 100/h
    #[arg(long, value_name = "N/s", value_parser = crate::cmd::warm::parse_rate)]
    pub rate: Option<std::time::Duration>,
    /// Do not ask for robots.txt: for a server of one's own
    #[arg(long)]
    pub ignore_robots: bool,
}

/// What a tool of AFS takes, in its own words.
#[derive(Args, Clone, Debug)]
pub struct ToolArgs {
    /// The command and its options; `help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORDS")]
    pub words: Vec<OsString>,
}

/// Where a daemon reports that the tree is usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReadyOn {
    /// A line of JSON on standard output, which is a pipe.
    Stdout,
}

/// What `weft config` does.
#[derive(Debug, Subcommand)]
pub enum ConfigVerb {
    /// Check a file, or those that would be read
    #[command(after_help = "Examples:\n  weft config check\n  weft config check ./weft.toml")]
    Check {
        /// The file
        file: Option<PathBuf>,
    },
    /// Show what the configuration comes to
    #[command(after_help = "Examples:\n  weft config show --json")]
    Show {
        /// This file alone
        #[arg(long)]
        config: Option<PathBuf>,
    },
}

const MOUNT_EXAMPLES: &str = "\
Examples:
  weft mount ~/weft                        everything: web sites are in ~/weft/web/HOST/...
  weft mount web:example.org/docs ~/docs   one tree
  weft mount dir:/srv/www /srv/www-fast    a directory of this machine, stored where it is read fast
  weft mount afs:example.org ~/afs         a cell of AFS
  weft mount -o deadline=5s,freshness=manual ~/weft

Options for -o:
  allow_other          other users may use the mount (needs user_allow_other in /etc/fuse.conf)
  cache=DIR            as --cache
  config=FILE          as --config
  freshness=POLICY     manual, ttl=10m, http (the default) or always
  open_files=WHAT      what open files show when their source has changed: version, that which was opened (the
                       default), or newest: for logs that are watched while they grow
  deadline=TIME        longest wait for a remote (30s)
  foreground           as --foreground
  noexec               programs on the mount cannot be run
  transport=WAY        how the kernel asks: auto (the default), classic, or io_uring: faster with several readers,
                       but such a mount ends with its daemon (`weft doctor` says whether it can be had)
  no_open              of dir:/PATH: the kernel opens files without asking weft, which is as fast as a local
                       disk; who reads a file while it changes may get bytes of two versions; nothing can be
                       written
  no_passthrough       large cached files are read by weft, not by the kernel itself (as without root's rights)
  ro                   nothing can be changed; so it is in any case with no_open, and where no source takes
                       changes (the web)
  sync                 each write waits until it is at the source, as if fsync(2) followed it
  remount              what is mounted at DIR gets ro, rw, exec or noexec; all else stays as it is
  nosuid,nodev         true in any case; what else mount(8) knows for every file system is ignored

Returns when the tree is usable, or fails and says why.";
const STATS_EXAMPLES: &str = "\
Examples:
  weft stats ~/weft              since the mount
  weft stats --every 1s ~/weft   live
  weft stats --prometheus        for a collector; docs/metrics.md tells what each name means";
const WATCH_EXAMPLES: &str = "\
Examples:
  weft watch ~/weft                                            what other readers find
  weft watch --validate 30s --json ~/weft/web/example.org      asks every 30 s

With --json each line is {\"at\":SECONDS,\"path\":..,\"change\":..,\"from\":VERSION,\"to\":VERSION,\"size\":BYTES}; change is
changed, gone, new, moved_to_directory, listed or damaged. {\"lost\":N}: the reader was too slow for N changes.";
const WARM_EXAMPLES: &str = "\
Examples:
  weft warm ~/weft/web/example.org/docs                 all of it
  weft warm --depth 1 --match '*.pdf' ~/weft/web/example.org
  weft warm --dry-run ~/weft/web/example.org            what it would take
  weft warm --list urls.txt ~/weft                      https://HOST/PATH, or paths in the mount

It begins with a walk that fetches listings only, then says what is missing and whether there
is room; where there is not, it ends there unless --force is given. Run again, it goes on where it
ended: what is here and fresh costs nothing, what is here and not fresh one question. Ctrl-C ends
it; what is complete stays.

Requests to one host: [web] warm_per_host at a time, warm_pause apart; Retry-After and the
Crawl-delay of robots.txt (up to 60 s) are kept. What robots.txt does not allow the product `weft`
is left out and listed; --ignore-robots is for a server of one's own.

Ends with 7 when some came and some did not, with the code of the first failure when nothing came.";
const CACHE_EXAMPLES: &str = "\
Examples:
  weft cache                            hosts by size, with class, pinned bytes and bound
  weft cache ~/weft/web/example.org     what is below a path
  weft cache --users ~/weft             by user
  weft cache --journal=50 ~/weft        the newest 50 evictions
  weft cache check                      is all that is held what was written? exit status 7 if not
  weft cache repair                     give up what is not, to be fetched again";
const GROUP_EXAMPLES: &str = "\
What is told counts for small files that are read for the first time after that, as long as the daemon runs: they are
laid side by side in the cache, so that one read of the disk brings all of a page.

Examples:
  weft group --from /var/log/nginx/access.log /srv/www-fast
  zcat access.log.*.gz | weft group --from - /srv/www-fast";
const LS_EXAMPLES: &str = "\
Examples:
  lsw                               what is known to be in this folder and not cached yet
  lsw ~/weft/web/example.org        the same of another
  weft ls -w --all ~/weft/web       everything that is known

The first column names the kind and marks what is cached: [web] not cached, [web+] in part, [web*] cached.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    /// Goal: the words of the tools of AFS reach them as they are, whatever they begin with.
    #[test]
    fn tools_have_words_of_their_own() {
        let parse = |line: &str| {
            let cli = Cli::try_parse_from(words(line)).unwrap_or_else(|error| panic!("{line}: {error}"));
            match cli.verb {
                Verb::Fs(args) | Verb::Vos(args) | Verb::Pts(args) => (cli.json, args.words.clone()),
                other => panic!("{other:?}"),
            }
        };
        for line in ["la -path x", "sa -dir x -acl u rl -clear", "-help", "--help", "-h", "la --json x", "sq x -max -1"]
        {
            assert_eq!(parse(&format!("weft fs {line}")), (false, words(line)), "{line}");
        }
        assert_eq!(parse("weft --json vos examine x"), (true, words("examine x")));
        assert_eq!(parse("weft pts"), (false, vec![]));
    }

    #[test]
    fn a_source_is_optional() {
        let parse = |line: &str| match Cli::try_parse_from(words(line)).expect("good").verb {
            Verb::Mount(args) => args.source_and_dir,
            other => panic!("{other:?}"),
        };
        assert_eq!(parse("weft mount /mnt"), words("/mnt"));
        assert_eq!(parse("weft mount web /mnt -o ro"), words("web /mnt"));
        assert!(Cli::try_parse_from(words("weft mount")).is_err());
        assert!(Cli::try_parse_from(words("weft mount a b c")).is_err());
    }
}
