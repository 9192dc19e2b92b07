//! The calls of a volume server that ask (OpenAFS `src/volser/volint.xg`; Rx service 4, port 7005).
//!
//! Times are seconds since 1970. Sizes are in KiB.

use weft_rx::{Decoder, Encoder, XdrError};

use super::status::Char;
use super::{Call, List, Text, Xdr, calls, on_the_wire};
use crate::fid::VolumeId;

/// The Rx service.
pub const SERVICE: u16 = 4;
/// The port.
pub const PORT: u16 = 7005;
/// Most partitions of a server.
pub const PARTITIONS_MAX: usize = 255;
/// Most volumes of a partition that one reply tells.
pub const VOLUMES_MAX: usize = 200_000;
/// Most transactions of a server that are told.
pub const TRANSACTIONS_MAX: usize = 10_000;
/// Longest name of a partition that is asked for, in bytes.
pub const PARTITION_NAME_BYTES_MAX: usize = 4096;

/// [`VolumeInfo::status`]: the volume could be attached, and all else is told.
pub const STATUS_GOOD: i32 = 2;
/// [`VolumeInfo::status`]: the volume is busy (`VBUSY`).
pub const STATUS_BUSY: i32 = 110;
/// [`VolumeInfo::destroy_me`]: the volume is to be removed.
pub const DESTROY_ME: u8 = 0xd3;

on_the_wire! {
    /// The volumes of a partition.
    pub struct ListVolumes {
        /// Which partition, 0 for the one named a.
        partition: u32,
        /// 1 for all that is known of each, 0 for their numbers.
        all: i32,
    }

    /// As [`ListVolumes`], with what was counted.
    pub struct XListVolumes {
        /// Which partition.
        partition: u32,
        /// 1 for all that is known of each.
        all: i32,
    }

    /// One volume.
    pub struct ListOneVolume {
        /// In which partition.
        partition: u32,
        /// Which.
        volume: VolumeId,
    }

    /// As [`ListOneVolume`], with what was counted.
    pub struct XListOneVolume {
        /// In which partition.
        partition: u32,
        /// Which.
        volume: VolumeId,
    }

    /// What the server does with volumes.
    pub struct Monitor {}

    /// The partitions of a server.
    pub struct XListPartitions {}

    /// How full a partition is.
    pub struct PartitionInfo64 {
        /// Its name (`/vicepa`).
        name: Text<PARTITION_NAME_BYTES_MAX>,
    }
}

calls! { SERVICE;
    Monitor = 118 -> List<Transaction, TRANSACTIONS_MAX>;
    ListOneVolume = 121 -> List<VolumeInfo, VOLUMES_MAX>;
    XListOneVolume = 125 -> List<CountedInfo, VOLUMES_MAX>;
    XListPartitions = 127 -> List<u32, PARTITIONS_MAX>;
    PartitionInfo64 = 65539 -> Partition;
}

impl Call for ListVolumes {
    const SERVICE: u16 = SERVICE;
    const OPCODE: u32 = 116;
    const REPLY_BYTES_MAX: usize = LIST_BYTES_MAX;
    type Reply = List<VolumeInfo, VOLUMES_MAX>;
}

impl Call for XListVolumes {
    const SERVICE: u16 = SERVICE;
    const OPCODE: u32 = 124;
    const REPLY_BYTES_MAX: usize = LIST_BYTES_MAX;
    type Reply = List<CountedInfo, VOLUMES_MAX>;
}

/// Longest list of volumes: some hundred thousand.
const LIST_BYTES_MAX: usize = 64 << 20;

on_the_wire! {
    /// A volume, as its server has it (`volintInfo`).
    pub struct VolumeInfo {
        /// Its name, with its ending.
        name: Chars<32>,
        /// Its number.
        volume: VolumeId,
        /// 0 read-write, 1 read-only, 2 backup.
        kind: i32,
        /// Its backup, 0 if there is none.
        backup: VolumeId,
        /// The read-write volume that it is a copy of.
        parent: VolumeId,
        /// Its latest read-only copy, 0 if there is none.
        clone: VolumeId,
        /// [`STATUS_GOOD`], [`STATUS_BUSY`], or what keeps it from being attached.
        status: i32,
        /// When this copy of it was made.
        copied_s: u32,
        /// Not 0: it is online.
        in_use: Char,
        /// Not 0: it has to be repaired.
        needs_salvage: Char,
        /// [`DESTROY_ME`]: it is to be removed.
        destroy_me: Char,
        /// When it was made.
        created_s: u32,
        /// When somebody last used it.
        accessed_s: u32,
        /// When it last changed.
        updated_s: u32,
        /// When its backup was made.
        backed_up_s: u32,
        /// Uses since midnight.
        uses_of_day: i32,
        /// Files in it.
        files: i32,
        /// Room that it may take, 0 for any.
        quota_max_kib: i32,
        /// Room that it takes.
        size_kib: i32,
        /// The backup system's.
        flags: i32,
        /// Room that is kept for it.
        quota_min_kib: i32,
        /// Uses of the last week.
        uses_of_week: i32,
        /// How often it has changed.
        updates: i32,
        /// Nothing.
        spare: i32,
    }

    /// A volume, with what was counted (`volintXInfo`).
    pub struct CountedInfo {
        /// Its name, with its ending.
        name: Chars<32>,
        /// Its number.
        volume: VolumeId,
        /// 0 read-write, 1 read-only, 2 backup.
        kind: i32,
        /// Its backup, 0 if there is none.
        backup: VolumeId,
        /// The read-write volume that it is a copy of.
        parent: VolumeId,
        /// Its latest read-only copy, 0 if there is none.
        clone: VolumeId,
        /// [`STATUS_GOOD`], [`STATUS_BUSY`], or what keeps it from being attached.
        status: i32,
        /// When this copy of it was made.
        copied_s: u32,
        /// Not 0: it is online.
        in_use: Char,
        /// When it was made.
        created_s: u32,
        /// When somebody last used it.
        accessed_s: u32,
        /// When it last changed.
        updated_s: u32,
        /// When its backup was made.
        backed_up_s: u32,
        /// Uses since midnight.
        uses_of_day: i32,
        /// Files in it.
        files: i32,
        /// Room that it may take, 0 for any.
        quota_max_kib: i32,
        /// Room that it takes.
        size_kib: i32,
        /// Reads: from the same site, of those by users with a token, from elsewhere, of those by users with a token.
        reads: Counts<4>,
        /// Writes, in the same order.
        writes: Counts<4>,
        /// How long after the last writer the same one wrote files again: up to a minute, ten minutes, an hour, a day, a
        /// week, and longer.
        files_same_author: Counts<6>,
        /// The same, where another wrote.
        files_other_author: Counts<6>,
        /// The same, of directories.
        dirs_same_author: Counts<6>,
        /// The same, of directories, where another wrote.
        dirs_other_author: Counts<6>,
    }

    /// Something that a server does with a volume (`transDebugInfo`).
    pub struct Transaction {
        /// Its number.
        id: i32,
        /// When it was last active.
        active_s: u32,
        /// When it began.
        began_s: u32,
        /// How it has failed, if it has.
        code: i32,
        /// The volume.
        volume: VolumeId,
        /// Its partition.
        partition: u32,
        /// How the volume was attached: 1 offline, 2 busy, 8 read-only, 16 being made, 4096 with a number to be found.
        attached: i32,
        /// How the volume is: 1 to be removed when it is repaired, 2 out of service, 4 removed.
        volume_flags: Char,
        /// Not 0: it is to end.
        flags: Char,
        /// What was done last.
        procedure: Chars<30>,
        /// Not 0: what follows counts.
        has_call: i32,
        /// The next packet to be read.
        next_read: i32,
        /// The next packet to be sent.
        next_sent: i32,
        /// When something was sent.
        sent_s: u32,
        /// When something came.
        received_s: u32,
    }

    /// How full a partition is (`diskPartition64`).
    pub struct Partition {
        /// Its name.
        name: Chars<256>,
        /// Its device.
        device: Chars<256>,
        /// Nothing for others.
        lock: i32,
        /// Room for volumes.
        usable_kib: i64,
        /// Of that, what is free.
        free_kib: i64,
        /// Its size: servers tell it here.
        total_kib: i64,
    }
}

/// An array of `N` chars that ends with the first NUL, if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chars<const N: usize>(Vec<u8>);

impl<const N: usize> Chars<N> {
    /// As much of a text as fits.
    #[must_use]
    pub fn new(text: &[u8]) -> Chars<N> {
        Chars(text.iter().copied().take(N).take_while(|byte| *byte != 0).collect())
    }

    /// The bytes before the NUL.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl<const N: usize> Xdr for Chars<N> {
    fn encode(&self, to: &mut Encoder) {
        for at in 0..N {
            to.char(self.0.get(at).copied().unwrap_or(0));
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Chars<N>, XdrError> {
        let mut bytes = [0; N];
        for byte in &mut bytes {
            *byte = from.char()?;
        }
        Ok(Chars::new(&bytes))
    }
}

/// `N` counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts<const N: usize>(pub [i32; N]);

impl<const N: usize> Xdr for Counts<N> {
    fn encode(&self, to: &mut Encoder) {
        for count in self.0 {
            to.i32(count);
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Counts<N>, XdrError> {
        let mut counts = [0; N];
        for count in &mut counts {
            *count = from.i32()?;
        }
        Ok(Counts(counts))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::check::{check, check_call};
    use crate::wire::{decode_whole, encode_whole};

    fn info() -> VolumeInfo {
        VolumeInfo {
            name: Chars::new(b"user.alice.readonly"),
            volume: VolumeId(536_870_919),
            kind: 1,
            backup: VolumeId(0),
            parent: VolumeId(536_870_918),
            clone: VolumeId(536_870_919),
            status: STATUS_GOOD,
            copied_s: 1_700_000_001,
            in_use: Char(1),
            needs_salvage: Char(0),
            destroy_me: Char(DESTROY_ME),
            created_s: 1_700_000_000,
            accessed_s: 0,
            updated_s: u32::MAX,
            backed_up_s: 3,
            uses_of_day: 12,
            files: 14,
            quota_max_kib: 5000,
            size_kib: 88,
            flags: -1,
            quota_min_kib: 1,
            uses_of_week: 2,
            updates: 3,
            spare: 4,
        }
    }

    fn counted() -> CountedInfo {
        let VolumeInfo { name, volume, kind, backup, parent, clone, status, .. } = info();
        let VolumeInfo { copied_s, in_use, created_s, accessed_s, updated_s, backed_up_s, .. } = info();
        let VolumeInfo { uses_of_day, files, quota_max_kib, size_kib, .. } = info();
        CountedInfo {
            name,
            volume,
            kind,
            backup,
            parent,
            clone,
            status,
            copied_s,
            in_use,
            created_s,
            accessed_s,
            updated_s,
            backed_up_s,
            uses_of_day,
            files,
            quota_max_kib,
            size_kib,
            reads: Counts([1, 2, 3, 4]),
            writes: Counts([5, 6, 7, 8]),
            files_same_author: Counts([1; 6]),
            files_other_author: Counts([2; 6]),
            dirs_same_author: Counts([3; 6]),
            dirs_other_author: Counts([4, 5, 6, 7, 8, -1]),
        }
    }

    fn transaction() -> Transaction {
        Transaction {
            id: 7,
            active_s: 1_700_000_002,
            began_s: 1_700_000_000,
            code: 0,
            volume: VolumeId(536_870_918),
            partition: 0,
            attached: 2,
            volume_flags: Char(4),
            flags: Char(0),
            procedure: Chars::new(b"ListVolumes"),
            has_call: 1,
            next_read: 1,
            next_sent: 2,
            sent_s: 3,
            received_s: 4,
        }
    }

    /// Goal: volumes are asked for as OpenAFS does, and what is told of them has the size of its structures.
    #[test]
    fn volumes_are_listed() {
        let request = check_call(&ListVolumes { partition: 3, all: 1 }, &List(vec![info()]));
        assert_eq!(request, "000000740000000300000001");
        let request = check_call(&ListOneVolume { partition: 0, volume: VolumeId(7) }, &List(vec![info(), info()]));
        assert_eq!(request, "000000790000000000000007");
        let request = check_call(&XListVolumes { partition: 25, all: 0 }, &List(vec![counted()]));
        assert_eq!(request, "0000007c0000001900000000");
        let request = check_call(&XListOneVolume { partition: 0, volume: VolumeId(7) }, &List(Vec::new()));
        assert_eq!(request, "0000007d0000000000000007");
        assert_eq!(encode_whole(&info()).map(|bytes| bytes.len()), Ok((32 + 23) * 4));
        assert_eq!(encode_whole(&counted()).map(|bytes| bytes.len()), Ok((32 + 16 + 8 + 24) * 4));
    }

    /// Goal: the same of transactions and partitions.
    #[test]
    fn transactions_and_partitions_are_told() {
        assert_eq!(check_call(&Monitor {}, &List(vec![transaction()])), "00000076");
        assert_eq!(encode_whole(&transaction()).map(|bytes| bytes.len()), Ok((14 + 30) * 4));
        assert_eq!(check_call(&XListPartitions {}, &List(vec![0, 1, 25])), "0000007f");
        let partition = Partition {
            name: Chars::new(b"/vicepa"),
            device: Chars::new(b"/dev/sda1"),
            lock: -1,
            usable_kib: 5 << 40,
            free_kib: 3 << 40,
            total_kib: 6 << 40,
        };
        let request = check_call(&PartitionInfo64 { name: "/vicepa".into() }, &partition);
        assert_eq!(request, "00010003000000072f76696365706100");
    }

    /// Goal: a name ends with its array, whether or not there is a NUL.
    #[test]
    fn a_name_ends_with_its_array() {
        let longest = Chars::<32>::new(&[b'a'; 40]);
        assert_eq!(longest.as_bytes(), [b'a'; 32]);
        let bytes = check(&longest);
        assert_eq!(bytes.len(), 32 * 4);
        let cut = decode_whole::<Chars<30>>(&bytes[..120]).expect("30 chars");
        assert_eq!(cut.as_bytes().len(), 30);
        assert_eq!(Chars::<4>::new(b"a\0b").as_bytes(), b"a");
    }

    proptest! {
        #[test]
        fn any_reply_is_borne(
            bytes in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 0..1200),
        ) {
            let _ = ListVolumes::reply(&bytes);
            let _ = XListVolumes::reply(&bytes);
            let _ = Monitor::reply(&bytes);
            let _ = XListPartitions::reply(&bytes);
            let _ = PartitionInfo64::reply(&bytes);
        }
    }
}
