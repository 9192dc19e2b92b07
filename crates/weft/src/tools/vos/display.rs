//! Volumes as their servers have them, in the lines of `vos`.

use serde_json::{Value, json};
use tz::TimeZone;
use weft_afs::wire::volser::{CountedInfo, DESTROY_ME, STATUS_BUSY, STATUS_GOOD, VolumeInfo};

use super::partition;
use super::statistics;
use crate::tools::{server_text, times};

/// A volume on a server, with what was counted where that was asked for.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The volume.
    pub info: VolumeInfo,
    /// What was counted.
    pub counts: Option<CountedInfo>,
    /// Its server, by name.
    pub server: String,
    /// Its server's address.
    pub address: String,
    /// Its partition.
    pub partition: u32,
}

/// What several volumes come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Online.
    pub online: usize,
    /// Not online, or not to be attached.
    pub offline: usize,
    /// Busy.
    pub busy: usize,
}

impl Totals {
    /// Of these.
    pub fn of(all: &[Shown]) -> Totals {
        all.iter().fold(Totals::default(), |mut totals, shown| {
            match (shown.info.status, shown.info.in_use.0) {
                (STATUS_GOOD, 1) => totals.online += 1,
                (STATUS_BUSY, _) => totals.busy += 1,
                _ => totals.offline += 1,
            }
            totals
        })
    }
}

impl Shown {
    /// Its name.
    pub fn name(&self) -> String {
        server_text(self.info.name.as_bytes())
    }

    /// Whether all of it is told.
    pub fn is_good(&self) -> bool {
        self.info.status == STATUS_GOOD
    }

    /// Why it is not.
    pub fn trouble(&self) -> String {
        match self.info.status {
            STATUS_BUSY => format!("**** Volume {} is busy ****", self.info.volume),
            _ => format!("**** Could not attach volume {} ****", self.info.volume),
        }
    }

    /// One line.
    pub fn line(&self) -> String {
        format!(
            "{:<32} {:>10} {}{:>10} K {}",
            self.name(),
            self.info.volume.0,
            self.kind(),
            self.info.size_kib,
            self.state()
        )
    }

    /// All that is known, but for what was counted.
    pub fn block(&self, zone: &TimeZone) -> String {
        if !self.is_good() {
            return format!("{}\n", self.trouble());
        }
        let info = &self.info;
        let size = match &self.counts {
            None => format!("{:>10} K  ", info.size_kib),
            Some(_) => format!("{:>10} K used {} files ", info.size_kib, info.files),
        };
        let ever = |seconds: u32| if seconds == 0 { "Never".to_owned() } else { times::shown(seconds, zone) };
        let mut lines = vec![
            format!("{:<32} {:>10} {}{size}{}", self.name(), info.volume.0, self.kind(), self.state()),
            format!("    {} {} ", self.server, partition::name(self.partition)),
            format!("    RWrite {:>10} ROnly {:>10} Backup {:>10} ", info.parent.0, info.clone.0, info.backup.0),
            format!("    MaxQuota {:>10} K ", info.quota_max_kib),
            format!("    Creation    {}", times::shown(info.created_s, zone)),
            format!("    Copy        {}", times::shown(info.copied_s, zone)),
            format!("    Backup      {}", ever(info.backed_up_s)),
        ];
        if info.accessed_s != 0 {
            lines.push(format!("    Last Access {}", times::shown(info.accessed_s, zone)));
        }
        lines.push(format!("    Last Update {}", ever(info.updated_s)));
        lines.push(format!("    {} accesses in the past day (i.e., vnode references)", info.uses_of_day));
        lines.extend(self.counts.as_ref().map(statistics::tables));
        lines.join("\n") + "\n"
    }

    /// A field per line.
    pub fn format(&self, zone: &TimeZone) -> String {
        let info = &self.info;
        let yes = |is: bool| if is { "Y" } else { "N" };
        let time = |seconds: u32| format!("{seconds:<9}\t{}", times::shown(seconds, zone));
        let mut lines = Vec::new();
        if self.is_good() {
            lines.push(format!("name\t\t{}", self.name()));
        }
        lines.push(format!("id\t\t{}", info.volume));
        lines.push(format!("serv\t\t{}\t{}", self.address, self.server));
        lines.push(format!("part\t\t{}", partition::name(self.partition)));
        match info.status {
            STATUS_GOOD => lines.push("status\t\tOK".to_owned()),
            STATUS_BUSY => lines.push("status\t\tBUSY".to_owned()),
            _ => lines.push("status\t\tUNATTACHABLE".to_owned()),
        }
        if !self.is_good() {
            return lines.join("\n");
        }
        lines.extend([
            format!("backupID\t{}", info.backup),
            format!("parentID\t{}", info.parent),
            format!("cloneID\t\t{}", info.clone),
            format!("inUse\t\t{}", yes(info.in_use.0 != 0)),
            format!("needsSalvaged\t{}", yes(info.needs_salvage.0 != 0)),
            format!("destroyMe\t{}", yes(info.destroy_me.0 == DESTROY_ME)),
            format!("type\t\t{}", kind_word(info.kind)),
            format!("creationDate\t{}", time(info.created_s)),
            format!("accessDate\t{}", time(info.accessed_s)),
            format!("updateDate\t{}", time(info.updated_s)),
            format!("backupDate\t{}", time(info.backed_up_s)),
            format!("copyDate\t{}", time(info.copied_s)),
            format!("flags\t\t{}\t(Optional)", alternate_hex(info.flags)),
            format!("diskused\t{}", info.size_kib),
            format!("maxquota\t{}", info.quota_max_kib),
            format!("minquota\t{}\t(Optional)", info.quota_min_kib),
            format!("filecount\t{}", info.files),
            format!("dayUse\t\t{}", info.uses_of_day),
            format!("weekUse\t\t{}\t(Optional)", info.uses_of_week),
            format!("spare2\t\t{}\t(Optional)", info.updates),
            format!("spare3\t\t{}\t(Optional)", info.spare),
        ]);
        lines.join("\n")
    }

    /// For programs.
    pub fn fields(&self) -> Value {
        let info = &self.info;
        let mut fields = json!({
            "name": self.name(),
            "volume": info.volume.0,
            "type": kind_word(info.kind),
            "server": self.server,
            "partition": partition::name(self.partition),
            "status": if self.is_good() { "ok" } else if info.status == STATUS_BUSY { "busy" } else { "unattachable" },
            "online": info.in_use.0 == 1,
            "needs_salvage": info.needs_salvage.0 != 0,
            "read_write": info.parent.0,
            "read_only": info.clone.0,
            "backup": info.backup.0,
            "size_kib": info.size_kib,
            "quota_max_kib": info.quota_max_kib,
            "files": info.files,
            "accesses_of_day": info.uses_of_day,
            "created_unix_s": info.created_s,
            "copied_unix_s": info.copied_s,
            "accessed_unix_s": info.accessed_s,
            "updated_unix_s": info.updated_s,
            "backed_up_unix_s": info.backed_up_s,
        });
        if let Some(counts) = &self.counts {
            fields["counted"] = statistics::fields(counts);
        }
        fields
    }

    fn kind(&self) -> &'static str {
        match self.info.kind {
            0 => "RW ",
            1 => "RO ",
            2 => "BK ",
            _ => "",
        }
    }

    fn state(&self) -> String {
        let online = if self.info.in_use.0 == 1 { "On-line" } else { "Off-line" };
        let salvage = if self.info.needs_salvage.0 == 1 { "**needs salvage**" } else { "" };
        format!("{online}{salvage}")
    }
}

/// What is known of a volume that was also counted.
pub fn without_counts(counted: &CountedInfo) -> VolumeInfo {
    VolumeInfo {
        name: counted.name.clone(),
        volume: counted.volume,
        kind: counted.kind,
        backup: counted.backup,
        parent: counted.parent,
        clone: counted.clone,
        status: counted.status,
        copied_s: counted.copied_s,
        in_use: counted.in_use,
        needs_salvage: weft_afs::wire::status::Char(0),
        destroy_me: weft_afs::wire::status::Char(0),
        created_s: counted.created_s,
        accessed_s: counted.accessed_s,
        updated_s: counted.updated_s,
        backed_up_s: counted.backed_up_s,
        uses_of_day: counted.uses_of_day,
        files: counted.files,
        quota_max_kib: counted.quota_max_kib,
        size_kib: counted.size_kib,
        flags: 0,
        quota_min_kib: 0,
        uses_of_week: 0,
        updates: 0,
        spare: 0,
    }
}

fn kind_word(kind: i32) -> &'static str {
    match kind {
        0 => "RW",
        1 => "RO",
        2 => "BK",
        _ => "?",
    }
}

/// As `%#lx` of C: no prefix before 0.
fn alternate_hex(value: i32) -> String {
    if value == 0 { "0".to_owned() } else { format!("{:#x}", value.cast_unsigned()) }
}

#[cfg(test)]
pub mod tests {
    use weft_afs::fid::VolumeId;
    use weft_afs::wire::status::Char;
    use weft_afs::wire::volser::Chars;

    use super::*;

    /// A volume that is well.
    pub fn shown() -> Shown {
        let info = VolumeInfo {
            name: Chars::new(b"user.alice"),
            volume: VolumeId(536_870_918),
            kind: 0,
            backup: VolumeId(0),
            parent: VolumeId(536_870_918),
            clone: VolumeId(0),
            status: STATUS_GOOD,
            copied_s: 1_700_000_001,
            in_use: Char(1),
            needs_salvage: Char(0),
            destroy_me: Char(0),
            created_s: 1_700_000_000,
            accessed_s: 0,
            updated_s: 1_700_000_002,
            backed_up_s: 0,
            uses_of_day: 12,
            files: 14,
            quota_max_kib: 5000,
            size_kib: 88,
            flags: 0,
            quota_min_kib: 1,
            uses_of_week: 2,
            updates: 3,
            spare: 4,
        };
        let server = "fs1.example.org".to_owned();
        Shown { info, counts: None, server, address: "192.0.2.1".to_owned(), partition: 0 }
    }

    #[test]
    fn a_volume_is_a_line_or_a_block() {
        let zone = TimeZone::utc();
        assert_eq!(shown().line(), "user.alice                        536870918 RW         88 K On-line");
        let block = shown().block(&zone);
        let lines: Vec<&str> = block.lines().collect();
        assert_eq!(lines[0], "user.alice                        536870918 RW         88 K  On-line");
        assert_eq!(lines[1], "    fs1.example.org /vicepa ");
        assert_eq!(lines[2], "    RWrite  536870918 ROnly          0 Backup          0 ");
        assert_eq!(lines[4], "    Creation    Tue Nov 14 22:13:20 2023");
        assert_eq!(lines[6], "    Backup      Never");
        assert_eq!(lines[7], "    Last Update Tue Nov 14 22:13:22 2023", "nobody has used it yet");
        assert!(shown().format(&zone).contains("\nflags\t\t0\t(Optional)\n"));
    }

    /// Goal: a server's words do nothing to a terminal.
    #[test]
    fn control_characters_are_not_shown() {
        let mut named = shown();
        named.info.name = Chars::new(b"a\x1b[2Jb\n\xff");
        assert_eq!(named.name(), "a\u{fffd}[2Jb\u{fffd}\u{fffd}");
    }

    /// Goal: of a volume that is not well no more is told than its server knows.
    #[test]
    fn a_volume_in_trouble_says_so() {
        let mut all = [shown(), shown(), shown(), shown()];
        all[1].info.status = STATUS_BUSY;
        all[2].info.status = 101;
        all[3].info.in_use = Char(0);
        all[3].info.needs_salvage = Char(1);
        assert_eq!(Totals::of(&all), Totals { online: 1, offline: 2, busy: 1 });
        let zone = TimeZone::utc();
        assert_eq!(all[1].block(&zone), "**** Volume 536870918 is busy ****\n");
        assert!(all[2].format(&zone).ends_with("status\t\tUNATTACHABLE"));
        assert!(all[3].line().ends_with("Off-line**needs salvage**"));
        assert_eq!(all[2].fields()["status"], "unattachable");
    }
}
