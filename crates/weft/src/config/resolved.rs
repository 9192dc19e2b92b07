//! What files, options and command line come to.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use weft_afs::Kvno;

use weft_fuse::Transport;
use weft_web::UsualProxies;

use super::{
    AfsSettings, Class, DirTable, FileError, Freshness, LoginTable, MetricsSettings, MountOptions, OpenFiles,
    PrivateAddresses, ProxyTable, Settings, Source, SpaceSettings, WebSettings, load_file, show_class, show_duration,
    show_freshness, show_size, usual_proxies,
};

/// Everything that a mount needs to know, each thing decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// What is mounted.
    pub source: Source,
    /// Where: absolute and canonical.
    pub mountpoint: PathBuf,
    /// Where the cache lies: absolute.
    pub cache_dir: PathBuf,
    /// Where the control socket goes.
    pub socket_dir: PathBuf,
    /// How long a request may wait for a remote.
    pub deadline: Duration,
    /// Whether other users may use the mount.
    pub allow_other: bool,
    /// Whether programs on the mount may not be run.
    pub noexec: bool,
    /// Whether each write waits until it is at the source.
    pub sync: bool,
    /// Whether large files that are held may be read by the kernel itself.
    pub passthrough: bool,
    /// Whether files are read without being opened.
    pub unopened: bool,
    /// Whether nothing may be changed, also where a source takes changes.
    pub read_only: bool,
    /// Threads that answer the kernel; `None` leaves it to the kernel's side.
    pub threads: Option<usize>,
    /// How requests of the kernel come.
    pub transport: Transport,
    /// The policy of trees without a rule.
    pub freshness: Freshness,
    /// What open files of trees without a rule show.
    pub open_files: OpenFiles,
    /// Where metrics are served over HTTP.
    pub metrics: MetricsSettings,
    /// How long after its lease what is held serves when the source answers with an error, in trees without a rule.
    pub stale_if_error: Option<Duration>,
    /// What the cache may hold.
    pub space: SpaceSettings,
    /// The settings of the web.
    pub web: WebSettings,
    /// Policies of trees; the longest path that fits decides, of equal ones the first.
    pub trees: Vec<TreeRule>,
    /// Directories of this machine that are shown under a name.
    pub dirs: Vec<DirTable>,
    /// The settings of AFS.
    pub afs: AfsSettings,
    /// What gets tickets of Kerberos.
    pub kvno: Kvno,
    /// The environment's proxies.
    pub usual_proxies: UsualProxies,
    /// The files that were read.
    pub files: Vec<PathBuf>,
}

/// A policy for a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeRule {
    /// Path below the mount of everything (`web/example.org/docs`), without slashes at the ends.
    pub path: String,
    /// Its policy; `None` leaves that to shorter rules and the mount.
    pub freshness: Option<Freshness>,
    /// What its open files show; `None` leaves that to shorter rules and the mount.
    pub open_files: Option<OpenFiles>,
    /// How long after its lease what is held serves when the source answers with an error.
    pub stale_if_error: Option<Duration>,
    /// Its class, if it has one of its own.
    pub class: Option<Class>,
    /// Most bytes in it.
    pub max: Option<u64>,
}

/// What of the process's environment matters.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Effective user id.
    pub uid: u32,
    /// `$HOME`.
    pub home: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`.
    pub config_home: Option<PathBuf>,
    /// `$XDG_CACHE_HOME`.
    pub cache_home: Option<PathBuf>,
    /// `$XDG_RUNTIME_DIR`.
    pub runtime_dir: Option<PathBuf>,
    /// `$NETRC`.
    pub netrc: Option<PathBuf>,
    /// `$KRB5CCNAME`.
    pub ccache: Option<String>,
    /// `$PATH` and `$KRB5_CONFIG`, for the program that gets tickets.
    pub kvno: Kvno,
    /// `$http_proxy` and its like.
    pub proxies: UsualProxies,
    /// What is wrong with those, if something is.
    pub proxy_mistake: Option<String>,
}

/// What the command line gives.
#[derive(Clone, Debug)]
pub struct Given {
    /// What is mounted.
    pub source: Source,
    /// Where: absolute and canonical.
    pub mountpoint: PathBuf,
    /// `--cache`.
    pub cache: Option<PathBuf>,
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `-o`.
    pub options: MountOptions,
}

impl Environment {
    /// Of this process. Empty and relative values count as not set (XDG Base Directory Specification).
    pub fn of_this_process() -> Environment {
        let dir = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let proxies = usual_proxies(|name| std::env::var(name).ok());
        Environment {
            proxy_mistake: proxies.as_ref().err().cloned(),
            proxies: proxies.unwrap_or_default(),
            uid: rustix::process::geteuid().as_raw(),
            home: dir("HOME"),
            config_home: dir("XDG_CONFIG_HOME"),
            cache_home: dir("XDG_CACHE_HOME"),
            runtime_dir: dir("XDG_RUNTIME_DIR"),
            netrc: dir("NETRC"),
            ccache: std::env::var("KRB5CCNAME").ok().filter(|name| !name.is_empty()),
            kvno: Kvno { path: std::env::var_os("PATH"), config: std::env::var_os("KRB5_CONFIG") },
        }
    }

    /// The folder of control sockets.
    pub fn socket_dir(&self) -> PathBuf {
        weft_control::socket_dir(self.runtime_dir.as_deref())
    }

    /// The user's file of logins, which need not be there yet; nothing for who has no home.
    fn netrc(&self) -> PathBuf {
        let of_home = || self.home.as_ref().map(|home| home.join(".netrc"));
        self.netrc.clone().or_else(of_home).unwrap_or_default()
    }

    fn cache_dir(&self) -> PathBuf {
        let of_home = || self.home.as_ref().map(|home| home.join(".cache"));
        match (self.uid, self.cache_home.clone().or_else(of_home)) {
            (0, _) => PathBuf::from("/var/cache/weft"),
            (_, Some(dir)) => dir.join("weft"),
            (uid, None) => PathBuf::from(format!("/tmp/weft-cache-{uid}")),
        }
    }
}

/// The files that are read, the later ones winning: `--config FILE` alone, or the system's and the user's where
/// they exist.
pub fn files_sought(alone: Option<&Path>, environment: &Environment) -> Vec<PathBuf> {
    if let Some(file) = alone {
        return vec![file.to_owned()];
    }
    let of_home = || environment.home.as_ref().map(|home| home.join(".config"));
    let of_user = environment.config_home.clone().or_else(of_home).map(|dir| dir.join("weft/weft.toml"));
    let sought = [Some(PathBuf::from("/etc/weft/weft.toml")), of_user];
    sought.into_iter().flatten().filter(|path| path.exists()).collect()
}

/// Reads the files and decides everything.
///
/// # Errors
/// The mistakes of the first file that has any.
pub fn resolve(given: Given, environment: &Environment) -> Result<Resolved, FileError> {
    let Given { source, mountpoint, cache, config, options } = given;
    let alone = config.or(options.config);
    let files = files_sought(alone.as_deref(), environment);
    let mut settings = Settings::default();
    for file in &files {
        settings = load_file(file)?.over(settings);
    }
    if let Some(why) = &environment.proxy_mistake {
        return Err(FileError { path: PathBuf::from("environment"), mistakes: vec![(0, why.clone())] });
    }
    settings.web.netrc.get_or_insert_with(|| environment.netrc());
    settings.afs.ccache = settings.afs.ccache.or_else(|| environment.ccache.clone());
    let cache_dir = cache.or(options.cache).or(settings.cache_dir).unwrap_or_else(|| environment.cache_dir());
    let cache_dir = std::path::absolute(&cache_dir).unwrap_or(cache_dir);
    Ok(Resolved {
        source,
        mountpoint,
        cache_dir,
        socket_dir: environment.socket_dir(),
        deadline: options.deadline.or(settings.deadline).unwrap_or(DEADLINE),
        allow_other: options.allow_other.or(settings.allow_other).unwrap_or(false),
        noexec: options.exec == Some(false),
        sync: options.sync,
        passthrough: !options.no_passthrough,
        unopened: options.no_open,
        // Who writes has to be told of each open.
        read_only: options.read_only.unwrap_or(false) || options.no_open,
        threads: settings.threads,
        transport: options.transport.or(settings.transport).unwrap_or_default(),
        freshness: options.freshness.or(settings.freshness).unwrap_or(Freshness::Http),
        open_files: options.open_files.or(settings.open_files).unwrap_or_default(),
        metrics: settings.metrics,
        stale_if_error: settings.stale_if_error,
        space: settings.space,
        web: settings.web,
        trees: settings.trees,
        dirs: settings.dirs,
        afs: settings.afs,
        kvno: environment.kvno.clone(),
        usual_proxies: environment.proxies.clone(),
        files,
    })
}

impl Resolved {
    /// Whether open files show the newest version anywhere.
    pub fn shows_newest(&self) -> bool {
        let of_trees = self.trees.iter().filter_map(|tree| tree.open_files);
        of_trees.chain([self.open_files]).any(|shown| shown == OpenFiles::Newest)
    }

    /// For `weft config show --json`; what nobody has set is `null`.
    pub fn to_json(&self) -> Value {
        let time = |time: Option<Duration>| time.map(show_duration);
        let web = &self.web;
        json!({
            "files": self.files,
            "mount": {
                "deadline": show_duration(self.deadline),
                "allow_other": self.allow_other,
                "threads": self.threads,
                "transport": self.transport,
                "freshness": show_freshness(self.freshness),
                "open_files": self.open_files.to_string(),
                "stale_if_error": time(self.stale_if_error),
            },
            "cache": {
                "dir": self.cache_dir,
                "class": self.space.class.map(show_class),
                "max": self.space.max.map(show_size),
                "scratch_max": self.space.scratch_max.map(show_size),
                "max_per_host": self.space.max_per_host.map(show_size),
                "keep_free": self.space.keep_free.map(show_size),
            },
            "metrics": { "listen": self.metrics.listen, "allow_remote": self.metrics.allow_remote },
            "web": {
                "probe_names": web.probe_names,
                "probe_names_extra": web.probe_names_extra,
                "ca_file": web.ca_file,
                "user_agent": web.user_agent,
                "memory_max": web.memory_max.map(show_size),
                "connections_per_host": web.connections_per_host,
                "redirects_max": web.redirects_max,
                "heuristic_min": time(web.heuristic_min),
                "heuristic_max": time(web.heuristic_max),
                "absence_time": time(web.absence_time),
                "connect_timeout": time(web.connect_timeout),
                "stall_timeout": time(web.stall_timeout),
                "down_time": time(web.down_time),
                "private_addresses": web.private_addresses.map(PrivateAddresses::as_str),
                "allow_hosts": web.allow_hosts,
                "deny_hosts": web.deny_hosts,
                "dav_hosts": web.dav_hosts,
                "unlisted_hosts": web.unlisted_hosts,
                "warm_per_host": web.warm_per_host,
                "warm_pause": time(web.warm_pause),
                "netrc": web.netrc,
                "insecure_credentials": web.insecure_credentials,
                "netrc_of_users": web.netrc_of_users,
                "proxy": web.proxies.iter().map(ProxyTable::to_json).collect::<Vec<_>>(),
                "login": web.logins.iter().map(LoginTable::to_json).collect::<Vec<_>>(),
            },
            "afs": self.afs.to_json(),
            "dir": self.dirs.iter().map(DirTable::to_json).collect::<Vec<_>>(),
            "tree": self.trees.iter().map(TreeRule::to_json).collect::<Vec<_>>(),
        })
    }
}

impl TreeRule {
    /// What nobody has set is left out.
    fn to_json(&self) -> Value {
        let mut table = serde_json::Map::from_iter([("path".to_owned(), json!(self.path))]);
        let freshness = self.freshness.map(|freshness| ("freshness".to_owned(), json!(show_freshness(freshness))));
        let open = self.open_files.map(|shown| ("open_files".to_owned(), json!(shown.to_string())));
        let stale = self.stale_if_error.map(|time| ("stale_if_error".to_owned(), json!(show_duration(time))));
        let class = self.class.map(|class| ("class".to_owned(), json!(show_class(class))));
        let max = self.max.map(|max| ("max".to_owned(), json!(show_size(max))));
        table.extend([freshness, open, stale, class, max].into_iter().flatten());
        Value::Object(table)
    }
}

/// How long a request waits for a remote unless somebody says otherwise.
const DEADLINE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn given(options: MountOptions) -> Given {
        Given { source: Source::Everything, mountpoint: PathBuf::from("/mnt"), cache: None, config: None, options }
    }

    #[test]
    fn later_words_win() {
        let temp = tempfile::tempdir().expect("a folder");
        let file = temp.path().join("weft/weft.toml");
        std::fs::create_dir(file.parent().expect("a folder")).expect("made");
        std::fs::write(&file, "[mount]\ndeadline = \"5s\"\nallow_other = true\n[cache]\ndir = \"/from/file\"\n")
            .expect("written");
        let environment =
            Environment { uid: 1000, config_home: Some(temp.path().to_owned()), ..Environment::default() };
        let from_file = resolve(given(MountOptions::default()), &environment).expect("good");
        assert_eq!(from_file.deadline, Duration::from_secs(5));
        assert_eq!(from_file.cache_dir, Path::new("/from/file"));
        assert!(from_file.allow_other);
        assert!(from_file.files.contains(&file));
        let options = MountOptions { deadline: Some(Duration::from_secs(7)), ..MountOptions::default() };
        let given = Given { cache: Some(PathBuf::from("/from/flag")), ..given(options) };
        let from_options = resolve(given, &environment).expect("good");
        assert_eq!(from_options.deadline, Duration::from_secs(7));
        assert_eq!(from_options.cache_dir, Path::new("/from/flag"));
    }

    #[test]
    fn defaults_need_no_file() {
        let empty = PathBuf::from("/dev/null");
        let alone = Given { config: Some(empty), ..given(MountOptions::default()) };
        let ccache = Some("KCM:".to_owned());
        let home = Some(PathBuf::from("/home/u"));
        let user = Environment { uid: 1000, home, ccache: ccache.clone(), ..Environment::default() };
        let resolved = resolve(alone.clone(), &user).expect("good");
        assert_eq!(resolved.afs.ccache, ccache, "what cannot be read is told when AFS is used");
        assert_eq!(resolved.cache_dir, Path::new("/home/u/.cache/weft"));
        assert_eq!(resolved.deadline, Duration::from_secs(30));
        assert_eq!(resolved.freshness, Freshness::Http);
        let root = Environment { uid: 0, ..user };
        assert_eq!(resolve(alone, &root).expect("good").cache_dir, Path::new("/var/cache/weft"));
    }

    #[test]
    fn logins_are_the_users_own_unless_said_otherwise() {
        let temp = tempfile::tempdir().expect("a folder");
        let (of_home, other) = (temp.path().join(".netrc"), temp.path().join("other"));
        let resolved = |config: &str, environment: Environment| {
            let file = temp.path().join("weft.toml");
            std::fs::write(&file, config).expect("written");
            let alone = Given { config: Some(file), ..given(MountOptions::default()) };
            resolve(alone, &environment).expect("good").web.netrc.expect("decided")
        };
        let user = Environment { home: Some(temp.path().to_owned()), ..Environment::default() };
        assert_eq!(resolved("", Environment::default()), Path::new(""));
        assert_eq!(resolved("", user.clone()), of_home);
        assert_eq!(resolved("", Environment { netrc: Some(other.clone()), ..user.clone() }), other);
        assert_eq!(resolved("[web]\nnetrc = \"other\"\n", user.clone()), other);
        assert_eq!(resolved("[web]\nnetrc = \"\"\n", user), Path::new(""));
    }

    #[test]
    fn a_file_that_is_named_must_be_there() {
        let missing = Given { config: Some(PathBuf::from("/nowhere/weft.toml")), ..given(MountOptions::default()) };
        assert!(resolve(missing, &Environment::default()).is_err());
    }
}
