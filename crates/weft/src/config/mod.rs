//! Configuration: what the files and the command line say, and what that comes to.
//!
//! Two steps: a file becomes a [`Settings`] (typed, nothing filled in), and the settings of all files, the mount
//! options and the command line become one [`Resolved`]. Nothing below this crate reads a file or the environment.

mod afs;
mod directory;
mod duration;
mod file;
mod freshness;
mod login;
mod nearest;
mod options;
mod proxy;
mod resolved;
mod settings;
mod size;
mod source;
mod space;
mod web;

pub use afs::{AfsSettings, TicketSource};
pub use directory::DirTable;
pub use duration::{parse_duration, show_duration};
pub use file::{FileError, load_file};
pub use freshness::{Freshness, OpenFiles, parse_freshness, parse_open_files, show_freshness};
pub use login::{LoginBy, LoginTable};
pub use nearest::nearest;
pub use options::{MountOptions, parse_options};
pub use proxy::{ProxyTable, patterns, usual_proxies};
pub use resolved::{Environment, Given, Resolved, TreeRule, files_sought, resolve};
pub use settings::{MetricsSettings, PrivateAddresses, Settings, WebSettings};
pub use size::{parse_size, show_size};
pub use source::Source;
pub use space::{Class, SpaceSettings, parse_class, show_class};
