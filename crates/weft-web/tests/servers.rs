//! The conformance suite, and a comparison with the disk, against real servers.

mod support;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use support::{call, list, name, read, web, web_with};
use weft_remote::conformance::{self, Bench};
use weft_remote::{Completeness, FileId, FileKind, Name, Remote, Span, Version};
use weft_web::{HostPattern, Web, WebOptions};

/// A real server on a folder with the sample tree; it ends when this is dropped.
struct Site {
    child: Child,
    folder: tempfile::TempDir,
    port: u16,
    web: Arc<Web>,
    /// Endings of samples that this server cannot show, with the reason.
    cannot_hold: &'static [(&'static [u8], &'static str)],
}

impl Drop for Site {
    fn drop(&mut self) {
        // Asked to end, a server takes its workers along; killed, it leaves them behind.
        let _ =
            rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

impl Site {
    /// Starts `program`, which must stay in the foreground; `None`, with a line that says so, when it is missing.
    async fn start(program: &str, prepare: impl Fn(&Path, u16) -> Vec<String>) -> Option<Site> {
        let Some(program) = find_program(program) else {
            println!("skipped: {program} is not installed");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        // Servers give up their rights and must still get in.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::create_dir(folder.path().join("www")).unwrap();
        conformance::write_sample(&folder.path().join("www")).unwrap();
        age(&folder.path().join("www"));
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let arguments = prepare(folder.path(), port);
        let log = std::fs::File::create(folder.path().join("output")).unwrap();
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        let mut site = Site { child, folder, port, web: web(), cannot_hold: &[] };
        site.wait_until_up().await;
        Some(site)
    }

    async fn wait_until_up(&mut self) {
        for _ in 0..UP_TRIES_MAX {
            if tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_ok() {
                return;
            }
            assert_eq!(self.child.try_wait().unwrap(), None, "the server ended: {}", self.output());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the server does not listen: {}", self.output());
    }

    fn output(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("output")).unwrap_or_default()
    }

    fn path(&self, path: &[u8]) -> PathBuf {
        self.folder.path().join("www").join(OsStr::from_bytes(path))
    }

    fn dir(&self, path: &str) -> FileId {
        FileId::new(format!("D 127.0.0.1:{}{path}", self.port))
    }

    async fn passes_the_suite(&self) {
        for sample in conformance::sample().iter().filter(|sample| self.cannot_hold(&sample.path).is_some()) {
            let _ = std::fs::remove_file(self.path(&sample.path));
        }
        let report = conformance::run(self).await;
        println!("{report}");
        report.assert_clean();
    }

    /// Every file below `dir` with its bytes, through listings and fetches alone.
    async fn whole_tree(&self, completeness: Completeness) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut dirs = vec![(Vec::new(), self.dir("/"))];
        while let Some((path, dir)) = dirs.pop() {
            let (_, page, _) = list(&self.web, &dir).await;
            assert_eq!(page.completeness, completeness, "{dir:?}");
            for entry in page.entries {
                let path = [&path[..], b"/", entry.name.as_bytes()].concat();
                if entry.attributes.kind == FileKind::Directory {
                    dirs.push((path, entry.id));
                    continue;
                }
                let fetched = self.web.fetch(&call(), &entry.id, &Version::None, Span::WHOLE).await.unwrap();
                let bytes = read(fetched.value.body).await.unwrap().0;
                if let Some(size) = entry.attributes.size.exact() {
                    assert_eq!(size, bytes.len() as u64, "{}", entry.name);
                }
                files.insert(path, bytes);
            }
        }
        files
    }

    /// Every file on the disk that the server shows, under the name it has here.
    fn on_disk(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let samples = conformance::sample().into_iter().filter(|sample| sample.kind == FileKind::File);
        let samples = samples.filter(|sample| !self.cannot_hold.iter().any(|(end, _)| sample.path.ends_with(end)));
        let named =
            |path: &[u8]| String::from_utf8(path.to_vec()).map_or(path.to_vec(), |p| p.replace('?', "%3F").into());
        samples.map(|sample| ([b"/", &named(&sample.path)[..]].concat(), sample.bytes.to_vec())).collect()
    }

    /// Every listing so far was one of WebDAV, and so is this one.
    async fn is_listed_by_dav(&self) {
        let (said, page, _) = list(&self.web, &self.dir("/odd/")).await;
        assert_eq!(said.origin.map(|origin| origin.how).as_deref(), Some("WebDAV PROPFIND"));
        let exact = page.entries.iter().filter(|entry| entry.attributes.kind == FileKind::File);
        for entry in exact {
            let on_disk = std::fs::metadata(self.path(&[b"odd/", &unescaped(&entry.name)[..]].concat())).unwrap();
            assert_eq!(entry.attributes.size.exact(), Some(on_disk.len()), "{}", entry.name);
            assert_eq!(entry.attributes.modified.exact(), Some(on_disk.modified().unwrap()), "{}", entry.name);
        }
    }

    async fn is_the_tree_on_disk(&self, completeness: Completeness) {
        let (disk, tree) = (self.on_disk(), self.whole_tree(completeness).await);
        let names = |files: &BTreeMap<Vec<u8>, Vec<u8>>| {
            files.keys().map(|path| path.escape_ascii().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(&tree), names(&disk));
        assert!(tree == disk, "the bytes differ");
    }
}

#[async_trait]
impl Bench for Site {
    fn remote(&self) -> Arc<dyn Remote> {
        self.web.clone()
    }

    fn top(&self) -> Vec<Name> {
        vec![name(&format!("127.0.0.1:{}", self.port))]
    }

    fn cannot_hold(&self, path: &[u8]) -> Option<String> {
        let all = self.cannot_hold.iter().chain(CANNOT_HOLD);
        all.clone().find(|(ending, _)| path.ends_with(ending)).map(|(_, why)| (*why).to_owned())
    }

    async fn change(&self, path: &[u8], bytes: &[u8]) {
        // A new file and not the old one written over: servers hand out open files.
        let next = self.folder.path().join("next");
        std::fs::write(&next, bytes).unwrap();
        std::fs::rename(next, self.path(path)).unwrap();
    }

    async fn remove(&self, path: &[u8]) {
        std::fs::remove_file(self.path(path)).unwrap();
    }
}

async fn nginx(autoindex: &str) -> Option<Site> {
    Site::start("nginx", |folder, port| {
        let top = folder.display();
        let config = format!(
            "daemon off; worker_processes 1; pid {top}/pid; error_log {top}/error;
            events {{}}
            http {{
                access_log off; client_body_temp_path {top}/t1; proxy_temp_path {top}/t2; fastcgi_temp_path {top}/t3;
                uwsgi_temp_path {top}/t4; scgi_temp_path {top}/t5;
                server {{ listen 127.0.0.1:{port}; root {top}/www; autoindex on; {autoindex} }}
            }}"
        );
        write(folder, "nginx.conf", &config);
        vec!["-e".to_owned(), format!("{top}/error"), "-c".to_owned(), format!("{top}/nginx.conf")]
    })
    .await
}

async fn apache(index_options: &str) -> Option<Site> {
    Site::start("apache2", |folder, port| {
        let top = folder.display();
        let modules: String = ["mpm_event", "authz_core", "dir", "autoindex"]
            .map(|m| format!("LoadModule {m}_module /usr/lib/apache2/modules/mod_{m}.so\n"))
            .concat();
        let config = format!(
            "ServerRoot {top}\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile {top}/pid\nErrorLog {top}/error\n\
            {modules}DocumentRoot {top}/www\n<Directory {top}/www>\nOptions +Indexes\nRequire all granted\n\
            IndexOptions {index_options}\n</Directory>\n"
        );
        write(folder, "apache.conf", &config);
        vec!["-D".to_owned(), "FOREGROUND".to_owned(), "-f".to_owned(), format!("{top}/apache.conf")]
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn nginx_with_html_indexes() {
    let Some(mut site) = nginx("").await else { return };
    site.cannot_hold = &[NO_DOTS];
    site.is_the_tree_on_disk(Completeness::CompleteButHidden).await;
    site.passes_the_suite().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nginx_with_json_indexes() {
    let Some(mut site) = nginx("autoindex_format json;").await else { return };
    site.cannot_hold = &[NO_DOTS];
    site.is_the_tree_on_disk(Completeness::CompleteButHidden).await;
    site.passes_the_suite().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn apache_with_tables() {
    let Some(site) = apache("FancyIndexing HTMLTable NameWidth=*").await else { return };
    site.is_the_tree_on_disk(Completeness::CompleteButHidden).await;
    site.passes_the_suite().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn apache_with_text_and_lists() {
    for options in ["FancyIndexing", "None"] {
        let Some(site) = apache(options).await else { return };
        site.is_the_tree_on_disk(Completeness::CompleteButHidden).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lighttpd() {
    let site = Site::start("lighttpd", |folder, port| {
        let top = folder.display();
        let config = format!(
            "server.document-root=\"{top}/www\"\nserver.port={port}\nserver.bind=\"127.0.0.1\"\n\
            server.modules=(\"mod_dirlisting\")\ndir-listing.activate=\"enable\"\n\
            server.stat-cache-engine=\"disable\"\nmimetype.assign=(\"\"=>\"application/octet-stream\")\nserver.errorlog=\"{top}/error\"\n"
        );
        write(folder, "lighttpd.conf", &config);
        vec!["-D".to_owned(), "-f".to_owned(), format!("{top}/lighttpd.conf")]
    })
    .await;
    let Some(mut site) = site else { return };
    std::fs::remove_file(site.path(b"odd/new\nline")).unwrap();
    site.cannot_hold = &[NO_DOTS, (b"new\nline", "lighttpd refuses requests with control bytes")];
    site.is_the_tree_on_disk(Completeness::CompleteButHidden).await;
    site.passes_the_suite().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python() {
    let site = Site::start("python3", |folder, port| {
        let words = ["-m", "http.server", "--bind", "127.0.0.1", "--protocol", "HTTP/1.1", "--directory"];
        let mut arguments: Vec<String> = words.map(str::to_owned).into();
        arguments.extend([folder.join("www").display().to_string(), port.to_string()]);
        arguments
    })
    .await;
    let Some(mut site) = site else { return };
    std::fs::remove_file(site.path(b"odd/latin\xe9")).unwrap();
    site.cannot_hold = &[(b"latin\xe9", "Python links to such names wrongly")];
    // Not under the suite: the kind has ranges, this server has none.
    site.is_the_tree_on_disk(Completeness::Complete).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn caddy() {
    let site = Site::start("caddy", |folder, port| {
        let root = folder.join("www").display().to_string();
        let words = ["file-server", "--browse", "--listen", &format!("127.0.0.1:{port}"), "--root", &root];
        words.map(str::to_owned).into()
    })
    .await;
    let Some(site) = site else { return };
    site.is_the_tree_on_disk(Completeness::Complete).await;
    site.passes_the_suite().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn apache_with_webdav() {
    let site = Site::start("apache2", |folder, port| {
        let top = folder.display();
        let modules: String = ["mpm_event", "authz_core", "dav", "dav_fs"]
            .map(|m| format!("LoadModule {m}_module /usr/lib/apache2/modules/mod_{m}.so\n"))
            .concat();
        let config = format!(
            "ServerRoot {top}\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile {top}/pid\nErrorLog {top}/error\n\
            {modules}DavLockDB {top}/locks\nDocumentRoot {top}/www\n<Directory {top}/www>\nDav On\nRequire all granted\n\
            </Directory>\n"
        );
        write(folder, "apache.conf", &config);
        vec!["-D".to_owned(), "FOREGROUND".to_owned(), "-f".to_owned(), format!("{top}/apache.conf")]
    })
    .await;
    let Some(site) = site else { return };
    site.is_the_tree_on_disk(Completeness::Complete).await;
    site.is_listed_by_dav().await;
    site.passes_the_suite().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lighttpd_with_webdav() {
    let site = Site::start("lighttpd", |folder, port| {
        let top = folder.display();
        let config = format!(
            "server.document-root=\"{top}/www\"\nserver.port={port}\nserver.bind=\"127.0.0.1\"\n\
            server.modules=(\"mod_webdav\")\nwebdav.activate=\"enable\"\nwebdav.is-readonly=\"enable\"\n\
            server.stat-cache-engine=\"disable\"\nmimetype.assign=(\"\"=>\"application/octet-stream\")\n\
            server.errorlog=\"{top}/error\"\n"
        );
        write(folder, "lighttpd.conf", &config);
        vec!["-D".to_owned(), "-f".to_owned(), format!("{top}/lighttpd.conf")]
    })
    .await;
    let Some(mut site) = site else { return };
    std::fs::remove_file(site.path(b"odd/new\nline")).unwrap();
    site.cannot_hold = &[(b"new\nline", "lighttpd refuses requests with control bytes")];
    site.is_the_tree_on_disk(Completeness::Complete).await;
    site.is_listed_by_dav().await;
    site.passes_the_suite().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rclone_serving_webdav() {
    let site = Site::start("rclone", |folder, port| {
        let root = folder.join("www").display().to_string();
        let config = folder.join("rclone.conf").display().to_string();
        let words =
            ["serve", "webdav", &root, "--addr", &format!("127.0.0.1:{port}"), "--read-only", "--config", &config];
        words.map(str::to_owned).into()
    })
    .await;
    let Some(mut site) = site else { return };
    std::fs::remove_file(site.path(b"odd/new\nline")).unwrap();
    site.cannot_hold = &[(b"new\nline", "rclone shows another character for control bytes")];
    // rclone has pages with links, so that nothing would lead to WebDAV by itself.
    let dav_hosts = vec![HostPattern::parse("127.0.0.1").unwrap()];
    site.web = web_with(WebOptions { dav_hosts, ..WebOptions::default() });
    site.is_the_tree_on_disk(Completeness::Complete).await;
    site.is_listed_by_dav().await;
}

/// What a name is on the disk.
fn unescaped(name: &Name) -> Vec<u8> {
    String::from_utf8(name.as_bytes().to_vec()).map_or(name.as_bytes().to_vec(), |name| name.replace("%3F", "?").into())
}

/// Servers call the tags of files that changed just now weak.
fn age(path: &Path) {
    let metadata = std::fs::symlink_metadata(path).unwrap();
    if metadata.is_dir() {
        std::fs::read_dir(path).unwrap().for_each(|entry| age(&entry.unwrap().path()));
    } else {
        let then = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        std::fs::File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
    }
}

fn write(folder: &Path, file: &str, text: &str) {
    std::fs::write(folder.join(file), text).unwrap();
}

/// Servers lie where not every user looks.
fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    places.map(|place| place.join(program)).find(|place| place.is_file())
}

/// nginx and lighttpd leave these out of their indexes.
const NO_DOTS: (&[u8], &str) = (b".dotted", "the server lists no names that start with a dot");
/// What no web server can show under its own name.
const CANNOT_HOLD: &[(&[u8], &str)] =
    &[(b"question?mark=1&two", "a bare question mark starts a query; the name is question%3Fmark=1&two")];
const UP_TRIES_MAX: usize = 500;
