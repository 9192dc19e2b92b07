//! Volumes, by the paths of files in them: what they may take, how full they are, where they are.

use std::path::{Path, PathBuf};

use serde_json::json;
use weft_afs::Place;
use weft_afs::volume_name::VolumeType;
use weft_afs::wire::fileserver::{GetVolumeStatus, SetVolumeStatus, VolumeReply};
use weft_afs::wire::status::{SET_QUOTA_MAX, VolumeChange};
use weft_afs::wire::vl::SiteServer;

use crate::exit::{Failure, Outcome};
use crate::tools::arguments::Arguments;
use crate::tools::server_text;
use crate::tools::session::{Session, Told};
use crate::tools::whereabouts::{Link, Whereabouts};

/// `fs examine`.
pub fn examine(session: &Session, arguments: &Arguments) -> Outcome {
    session.each(&arguments.paths("path"), |path| {
        let (place, volume) = volume_of(session, path)?;
        let Volume { status, name, offline } = &volume;
        let quota = if status.quota_max_kib == 0 { "unlimited".to_owned() } else { status.quota_max_kib.to_string() };
        let fid = place.fid;
        let mut lines = vec![
            format!(
                "File {} ({}.{}.{}) contained in volume {}",
                path.display(),
                fid.volume,
                fid.vnode,
                fid.unique,
                fid.volume
            ),
            format!("Volume status for vid = {} named {name}", status.volume),
        ];
        if !offline.is_empty() {
            lines.push(format!("Current offline message is {offline}"));
        }
        lines.push(format!("Current disk quota is {quota}"));
        lines.push(format!("Current blocks used are {}", status.used_kib));
        let (free, size) = (status.partition_free_kib, status.partition_kib);
        lines.push(format!("The partition has {free} blocks available out of {size}\n"));
        let mut fields = fields(path, &place, &volume);
        fields["offline_message"] = json!(offline);
        Ok(Told::new(lines.join("\n"), fields))
    })
}

/// `fs listquota`.
pub fn list_quota(session: &Session, arguments: &Arguments) -> Outcome {
    session.heading(format!(
        "{:<25}{:<11}{:<11}{:<7}{:<11}",
        "Volume Name", "      Quota", "       Used", " %Used", "  Partition"
    ));
    let in_words = arguments.has("human");
    session.each(&arguments.paths("path"), |path| {
        let (place, volume) = volume_of(session, path)?;
        Ok(Told::new(quota_line(&volume, in_words), fields(path, &place, &volume)))
    })
}

/// `fs quota`.
pub fn quota(session: &Session, arguments: &Arguments) -> Outcome {
    session.each(&arguments.paths("path"), |path| {
        let (place, volume) = volume_of(session, path)?;
        let text = format!("{:>2.0}% of quota used.", volume.quota_used());
        Ok(Told::new(text, fields(path, &place, &volume)))
    })
}

/// `fs diskfree`.
pub fn disk_free(session: &Session, arguments: &Arguments) -> Outcome {
    let in_words = arguments.has("human");
    let unit = if in_words { "total" } else { "kbytes" };
    session.heading(format!("{:<25}{unit:>10}{:>10}{:>10}{:>6}", "Volume Name", "used", "avail", "%used"));
    session.each(&arguments.paths("path"), |path| {
        let (place, volume) = volume_of(session, path)?;
        Ok(Told::new(space_line(&volume, in_words), fields(path, &place, &volume)))
    })
}

/// `fs setquota`.
pub fn set_quota(session: &Session, arguments: &Arguments) -> Outcome {
    let text = arguments.needed("max")?;
    let quota_max_kib = kibibytes(text).ok_or_else(|| {
        let most = i32::MAX;
        Failure::usage(format!(
            "-max {text}: a quota is a number of kilobytes from 0 to {most}, or one with K, M, G or T"
        ))
    })?;
    let paths = arguments.paths("path");
    let place = session.place(&paths[0])?;
    let change = VolumeChange { mask: SET_QUOTA_MAX, quota_min_kib: 0, quota_max_kib };
    let nothing = || Vec::new();
    let question = SetVolumeStatus {
        volume: place.fid.volume,
        change,
        name: weft_afs::wire::Text(nothing()),
        offline: weft_afs::wire::Text(nothing()),
        motto: weft_afs::wire::Text(nothing()),
    };
    let what = format!("{}: the quota of volume {}", paths[0].display(), place.fid.volume);
    session.answer_of((&paths[0], &place), session.client()?.change(&place, &what, &question))?;
    session.tell_all(Told::new("", json!({ "path": paths[0], "quota_max_kib": quota_max_kib })));
    Ok(())
}

/// A number of kilobytes, or of what the letter behind it says (`util_GetHumanInt32` of OpenAFS).
fn kibibytes(text: &str) -> Option<i32> {
    let units = [("K", 1), ("M", 1 << 10), ("G", 1 << 20), ("T", 1 << 30)];
    let with_unit = units.iter().find_map(|(letter, size)| Some((text.strip_suffix(letter)?, *size)));
    let (number, size) = with_unit.unwrap_or((text, 1));
    number.parse::<i32>().ok()?.checked_mul(size).filter(|kib| *kib >= 0)
}

/// `fs getfid`.
pub fn fid(session: &Session, arguments: &Arguments) -> Outcome {
    let link = if arguments.has("literal") { Link::Stay } else { Link::Follow };
    session.each(&arguments.paths("path"), |path| {
        let place = session.place_of(path, Whereabouts::of(path, link)?)?;
        let (fid, cell) = (place.fid, &place.cell);
        let shown = path.display();
        let text = format!("File {shown} ({}.{}.{}) located in cell {cell}", fid.volume, fid.vnode, fid.unique);
        Ok(Told::new(text, json!({ "path": path, "cell": cell.as_str(), "fid": fid.to_string() })))
    })
}

/// `fs whereis`.
pub fn whereis(session: &Session, arguments: &Arguments) -> Outcome {
    session.each(&arguments.paths("path"), |path| {
        let place = session.place(path)?;
        let volume = place.fid.volume;
        let entry = session.answer(&place.cell, session.client()?.volume(&place.cell, &volume.to_string()))?;
        let sites = entry.sites_of(entry.kind_of(volume).unwrap_or(VolumeType::ReadWrite));
        let addresses = sites.iter().filter_map(|site| match site.server {
            SiteServer::Address(address) => Some(address),
            SiteServer::Uuid { .. } => None,
        });
        let hosts: Vec<String> = addresses.map(|address| session.hosts.name(address)).collect();
        let several = if hosts.len() == 1 { "" } else { "s" };
        let text = format!("File {} is on host{several} {} ", path.display(), hosts.join(" "));
        let cell = place.cell.as_str();
        Ok(Told::new(text, json!({ "path": path, "cell": cell, "volume": volume.0, "hosts": hosts })))
    })
}

/// What a server tells of a volume, with texts.
#[derive(Clone, Debug)]
struct Volume {
    status: weft_afs::wire::status::VolumeStatus,
    name: String,
    offline: String,
}

impl Volume {
    /// In percent; 0 where there is no quota.
    fn quota_used(&self) -> f64 {
        percent(self.status.used_kib, self.status.quota_max_kib)
    }

    /// In percent.
    fn partition_used(&self) -> f64 {
        match self.status.partition_kib {
            0 => 0.0,
            size => 100.0 - percent(self.status.partition_free_kib, size),
        }
    }
}

fn percent(part: i32, whole: i32) -> f64 {
    if whole == 0 { 0.0 } else { f64::from(part) / f64::from(whole) * 100.0 }
}

fn volume_of(session: &Session, path: &Path) -> Outcome<(Place, Volume)> {
    let place = session.place(path)?;
    let what = format!("{}: volume {}", path.display(), place.fid.volume);
    let question = GetVolumeStatus { volume: place.fid.volume };
    let reply: VolumeReply = session.answer_of((path, &place), session.client()?.ask(&place, &what, &question))?;
    let (name, offline) = (server_text(&reply.name.0), server_text(&reply.offline.0));
    Ok((place, Volume { status: reply.status, name, offline }))
}

fn fields(path: &PathBuf, place: &Place, volume: &Volume) -> serde_json::Value {
    let status = &volume.status;
    json!({
        "path": path,
        "cell": place.cell.as_str(),
        "fid": place.fid.to_string(),
        "volume": status.volume.0,
        "name": volume.name,
        "quota_max_kib": status.quota_max_kib,
        "used_kib": status.used_kib,
        "partition_kib": status.partition_kib,
        "partition_free_kib": status.partition_free_kib,
    })
}

/// A line of `fs listquota`: above 90 % of the quota and 97 % of the partition it warns.
fn quota_line(volume: &Volume, in_words: bool) -> String {
    let status = &volume.status;
    let size = |kib: i32| if in_words { units(kib) } else { format!("{kib:>10}") };
    let sizes = match status.quota_max_kib {
        0 => format!("   no limit {}", size(status.used_kib)),
        max => format!(" {} {}", size(max), size(status.used_kib)),
    };
    let (quota, partition) = (volume.quota_used(), volume.partition_used());
    let mark = |used: f64, max: f64| if used > max { "<<" } else { "  " };
    let (of_quota, of_partition) = (mark(quota, 90.0), mark(partition, 97.0));
    let warning = if quota > 90.0 || partition > 97.0 { "  <<WARNING" } else { "" };
    format!("{}{sizes}{quota:>5.0}%{of_quota}{partition:>9.0}%{of_partition}{warning}", name_column(volume))
}

/// A line of `fs diskfree`: above 90 % it warns.
fn space_line(volume: &Volume, in_words: bool) -> String {
    let status = &volume.status;
    let size = |kib: i32| if in_words { units(kib) } else { format!("{kib:>10}") };
    let (all, free) = (status.partition_kib, status.partition_free_kib);
    let used = volume.partition_used();
    let (mark, warning) = if used > 90.0 { ("<<", "  <<WARNING") } else { ("  ", "") };
    let sizes = format!("{}{}{}", size(all), size(all.saturating_sub(free)), size(free));
    format!("{}{sizes} {used:>4.0}%{mark}{warning}", name_column(volume))
}

fn name_column(volume: &Volume) -> String {
    format!("{:<25.25}", volume.name)
}

/// Kilobytes in the largest unit of which there is one.
fn units(kib: i32) -> String {
    let (mut value, mut unit) = (f64::from(kib), 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:>9.1}{}", UNITS[unit])
}

const UNITS: [char; 5] = ['K', 'M', 'G', 'T', 'P'];

#[cfg(test)]
mod tests {
    use weft_afs::fid::VolumeId;
    use weft_afs::wire::status::{Char, VolumeStatus};

    use super::*;

    fn volume(quota_max_kib: i32, used_kib: i32, free: i32) -> Volume {
        let status = VolumeStatus {
            volume: VolumeId(536_870_918),
            parent: VolumeId(536_870_918),
            online: Char(1),
            in_service: Char(1),
            blessed: Char(1),
            needs_salvage: Char(0),
            kind: 1,
            quota_min_kib: 0,
            quota_max_kib,
            used_kib,
            partition_free_kib: free,
            partition_kib: 1_000_000,
        };
        Volume { status, name: "user.alice".to_owned(), offline: String::new() }
    }

    /// Goal: quotas are read as OpenAFS's `fs` reads them, and what is more than a volume can have is refused.
    #[test]
    fn quotas_may_have_a_unit() {
        for (text, wanted) in [("7000", 7000), ("500K", 500), ("5M", 5 << 10), ("2047G", 2047 << 20), ("1T", 1 << 30)] {
            assert_eq!(kibibytes(text), Some(wanted), "{text}");
        }
        for text in ["", "M", "-5", "-5M", "500k", "5.5M", "5 M", "2048G", "2T", "99999999999"] {
            assert_eq!(kibibytes(text), None, "{text}");
        }
    }

    /// Goal: columns are where scripts look for them, and what is nearly full is marked.
    #[test]
    fn quotas_are_in_columns() {
        let line = |quota, used| quota_line(&volume(quota, used, 600_000), false);
        assert_eq!(line(5000, 10), "user.alice                      5000         10    0%         40%  ");
        assert_eq!(line(0, 10), "user.alice                  no limit         10    0%         40%  ");
        assert_eq!(line(5000, 4900), "user.alice                      5000       4900   98%<<       40%    <<WARNING");
        let in_words = quota_line(&volume(2_097_152, 1536, 10_000), true);
        assert_eq!(in_words, "user.alice                      2.0G       1.5M    0%         99%<<  <<WARNING");
    }

    #[test]
    fn space_is_in_columns() {
        let line = space_line(&volume(0, 0, 600_000), false);
        assert_eq!(line, "user.alice                  1000000    400000    600000   40%  ");
        assert!(space_line(&volume(0, 0, 5), true).ends_with(" 100%<<  <<WARNING"));
    }

    /// Goal: what a server tells wrongly divides by nothing.
    #[test]
    fn a_partition_without_a_size_is_borne() {
        let mut volume = volume(0, i32::MIN, i32::MAX);
        volume.status.partition_kib = 0;
        assert!(quota_line(&volume, true).contains("0%"));
        volume.status.partition_kib = i32::MIN;
        space_line(&volume, false);
    }
}
