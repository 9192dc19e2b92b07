//! The calls of the volume location database (OpenAFS `src/vlserver/vldbint.xg`; Rx service 52, port 7003).
//!
//! A volume is asked for by its name or, in decimal digits, its number. Servers name the sites by UUID
//! ([`GetEntryByNameU`]), and their addresses are another call; older ones know only [`GetEntryByNameN`], and abort the
//! first with -455.

use std::net::Ipv4Addr;

use weft_rx::{Decoder, Encoder, XdrError};

use super::status::{read_words, write_words};
use super::{Call, List, Text, Xdr, calls, on_the_wire};
use crate::fid::VolumeId;
use crate::uuid::Uuid;
use crate::volume_name::{VOLUME_NAME_BYTES_MAX, VolumeName, VolumeType};

/// The Rx service.
pub const SERVICE: u16 = 52;
/// The port.
pub const PORT: u16 = 7003;
/// Most sites of a volume.
pub const SITES_MAX: usize = 13;
/// Most volumes that one reply tells.
pub const ENTRIES_MAX: usize = 20_000;
/// Most file servers of a cell (OpenAFS `src/vlserver/vlserver.p.h`, `MAXSERVERID`).
pub const SERVERS_MAX: u32 = 254;
/// Most addresses of a server that are taken in.
pub const ADDRESSES_MAX: usize = 500;

/// The name of a volume, or its number in decimal digits.
pub type Asked = Text<VOLUME_NAME_BYTES_MAX>;

on_the_wire! {
    /// Where a volume is, sites by UUID.
    pub struct GetEntryByNameU {
        /// Which.
        volume: Asked,
    }

    /// Where a volume is, sites by address.
    pub struct GetEntryByNameN {
        /// Which.
        volume: Asked,
    }

    /// Does nothing: a probe.
    pub struct ProbeServer {}

    /// How many file servers are known; an address of each, which for most stands for others.
    pub struct GetAddrs {
        /// Nothing.
        handle: i32,
        /// Nothing.
        spare: i32,
    }

    /// The volumes that fit, as many as the server likes to tell at once.
    pub struct ListAttributesN2 {
        /// What they are to be like.
        like: EntriesLike,
        /// A name of theirs as a regular expression; empty for any.
        name: Asked,
        /// From which on: 0, then what the last reply told.
        start: i32,
    }
}

/// What volumes are to be like; what is `None` may be anything (`VldbListByAttributes`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntriesLike {
    /// On this file server, by one of its addresses.
    pub server: Option<Ipv4Addr>,
    /// In this partition, 0 for the one named a.
    pub partition: Option<u32>,
    /// With one of these under way.
    pub operations: Option<Operations>,
}

/// The addresses of a file server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetAddrsU {
    /// Of the one with this place in the database, from 1. Places may be empty.
    At(u32),
    /// Of the one with this UUID.
    Of(Uuid),
    /// Of the one that has this address among others.
    With(Ipv4Addr),
}

calls! { SERVICE;
    ProbeServer = 514 -> ();
    GetAddrs = 515 -> ServerList;
    GetEntryByNameN = 519 -> NumberedEntry;
    GetEntryByNameU = 527 -> Entry;
    GetAddrsU = 533 -> Addresses;
}

impl Call for ListAttributesN2 {
    const SERVICE: u16 = SERVICE;
    const OPCODE: u32 = 534;
    /// Servers tell some thousand entries at once, of 476 bytes each.
    const REPLY_BYTES_MAX: usize = 8 << 20;
    type Reply = EntryList;
}

on_the_wire! {
    /// Some of the file servers that are known.
    pub struct ServerList {
        /// A promise that nobody makes, of four words.
        promise: Unused,
        /// How many servers there are.
        servers: u32,
        /// An address of each.
        addresses: List<u32, ADDRESSES_MAX>,
    }

    /// Some volumes.
    pub struct EntryList {
        /// How many.
        count: u32,
        /// They.
        entries: List<NumberedEntry, ENTRIES_MAX>,
        /// From which on there are more; -1 if there are none.
        next: i32,
    }
}

/// Four words that mean nothing: written as 0, not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unused;

impl Xdr for Unused {
    fn encode(&self, to: &mut Encoder) {
        write_words(to, &[0; 4]);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Unused, XdrError> {
        read_words::<4>(from).map(|_| Unused)
    }
}

impl Xdr for EntriesLike {
    fn encode(&self, to: &mut Encoder) {
        let EntriesLike { server, partition, operations } = *self;
        let bit = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
        let mask = bit(server.is_some(), LIKE_SERVER)
            | bit(partition.is_some(), LIKE_PARTITION)
            | bit(operations.is_some(), LIKE_FLAG);
        let server = server.map_or(0, Ipv4Addr::to_bits);
        write_words(to, &[mask, server, partition.unwrap_or(0), 0, 0, operations.unwrap_or_default().0]);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<EntriesLike, XdrError> {
        let [mask, server, partition, _spare, _volume, flag] = read_words(from)?;
        let set = |bit: u32| mask & bit != 0;
        Ok(EntriesLike {
            server: set(LIKE_SERVER).then_some(Ipv4Addr::from_bits(server)),
            partition: set(LIKE_PARTITION).then_some(partition),
            operations: set(LIKE_FLAG).then_some(Operations(flag)),
        })
    }
}

/// What the database knows of a volume and its copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, without an ending.
    pub name: VolumeName,
    /// Where copies of it are; at most [`SITES_MAX`].
    pub sites: Vec<Site>,
    /// The numbers of the copies that there are, in the order of [`VolumeType`].
    pub volumes: [Option<VolumeId>; 3],
    /// The copy that a release under way is made from.
    pub clone: Option<VolumeId>,
    /// What is being done with the volume, which keeps others from doing something.
    pub operations: Operations,
}

/// What is being done with a volume: its lock in the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations(pub u32);

impl Operations {
    /// It is moved.
    pub const MOVE: Operations = Operations(0x10);
    /// It is released.
    pub const RELEASE: Operations = Operations(0x20);
    /// Its backup is made.
    pub const BACKUP: Operations = Operations(0x40);
    /// It is removed, or given another site.
    pub const DELETE: Operations = Operations(0x80);
    /// It is dumped or restored.
    pub const DUMP: Operations = Operations(0x100);
    /// All of them.
    pub const ALL: Operations = Operations(0x1f0);

    /// Whether all of `operations` are among these.
    #[must_use]
    pub const fn has(self, operations: Operations) -> bool {
        self.0 & operations.0 == operations.0
    }
}

/// An [`Entry`] as [`GetEntryByNameN`] has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedEntry(pub Entry);

/// A partition of a file server that has copies of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The server.
    pub server: SiteServer,
    /// The partition, 0 for the one named a.
    pub partition: u32,
    /// What is there, and how it is.
    pub flags: SiteFlags,
}

/// How a site's server is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteServer {
    /// By UUID. Its addresses have to be asked for again when `unique` is another.
    Uuid {
        /// The UUID.
        uuid: Uuid,
        /// Which state of the addresses.
        unique: i32,
    },
    /// By an address.
    Address(Ipv4Addr),
}

/// Flags of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteFlags(pub u32);

impl SiteFlags {
    /// The read-only copy here is that of the release that is under way.
    pub const NEW_RELEASE: SiteFlags = SiteFlags(0x01);
    /// The read-only copy is here.
    pub const READ_ONLY: SiteFlags = SiteFlags(0x02);
    /// The read-write volume is here.
    pub const READ_WRITE: SiteFlags = SiteFlags(0x04);
    /// The backup is here.
    pub const BACKUP: SiteFlags = SiteFlags(0x08);
    /// The server is told by UUID.
    pub const UUID: SiteFlags = SiteFlags(0x10);
    /// Not to be used.
    pub const DO_NOT_USE: SiteFlags = SiteFlags(0x20);

    /// Whether all of `flags` are among these.
    #[must_use]
    pub const fn has(self, flags: SiteFlags) -> bool {
        self.0 & flags.0 == flags.0
    }
}

/// The addresses of a file server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Its UUID.
    pub uuid: Uuid,
    /// Which state of the addresses this is.
    pub unique: i32,
    /// The addresses, at most [`ADDRESSES_MAX`].
    pub addresses: Vec<Ipv4Addr>,
}

impl Entry {
    /// The number of a copy.
    #[must_use]
    pub fn volume(&self, kind: VolumeType) -> Option<VolumeId> {
        self.volumes[kind as usize]
    }

    /// Which copy a number is of.
    #[must_use]
    pub fn kind_of(&self, volume: VolumeId) -> Option<VolumeType> {
        VolumeType::ALL.into_iter().find(|kind| self.volume(*kind) == Some(volume))
    }

    /// The sites that serve a copy. While a release is under way there are two states of a read-only volume; only the
    /// sites of one are told, of the new one as soon as at least half of the sites have it, so that nobody sees the
    /// volume go back and forth.
    #[must_use]
    pub fn sites_of(&self, kind: VolumeType) -> Vec<Site> {
        // The backup lies beside the read-write volume, and its flag is not always set.
        let wanted = match kind {
            VolumeType::ReadOnly => SiteFlags::READ_ONLY,
            VolumeType::ReadWrite | VolumeType::Backup => SiteFlags::READ_WRITE,
        };
        let usable = |site: &&Site| site.flags.has(wanted) && !site.flags.has(SiteFlags::DO_NOT_USE);
        let sites: Vec<Site> = self.sites.iter().filter(usable).copied().collect();
        if kind != VolumeType::ReadOnly {
            return sites;
        }
        let is_new = |site: &Site| site.flags.has(SiteFlags::NEW_RELEASE);
        let new = sites.iter().filter(|site| is_new(site)).count();
        let take_new = new > 0 && 2 * new >= sites.len();
        sites.into_iter().filter(|site| is_new(site) == take_new).collect()
    }
}

/// The read-write volume is there.
const HAS_READ_WRITE: u32 = 0x1000;
/// The read-only one is there.
const HAS_READ_ONLY: u32 = 0x2000;
/// The backup is there.
const HAS_BACKUP: u32 = 0x4000;
/// Words of a name: it is an array of chars with a NUL.
const NAME_WORDS: usize = VOLUME_NAME_BYTES_MAX + 1;
/// Words after the flags that mean nothing to us.
const SPARE_WORDS: usize = 9;
/// `ListAttributesN2`: the server is asked for.
const LIKE_SERVER: u32 = 1;
/// `ListAttributesN2`: the partition is asked for.
const LIKE_PARTITION: u32 = 2;
/// `ListAttributesN2`: the flags are asked for.
const LIKE_FLAG: u32 = 16;
/// `GetAddrsU`: the place is the question.
const MASK_INDEX: u32 = 2;
/// `GetAddrsU`: the address is the question.
const MASK_ADDRESS: u32 = 1;
/// `GetAddrsU`: the UUID is the question.
const MASK_UUID: u32 = 4;

impl Xdr for GetAddrsU {
    fn encode(&self, to: &mut Encoder) {
        let (mask, address, index, uuid) = match self {
            GetAddrsU::At(index) => (MASK_INDEX, Ipv4Addr::UNSPECIFIED, *index, Uuid([0; 16])),
            GetAddrsU::Of(uuid) => (MASK_UUID, Ipv4Addr::UNSPECIFIED, 0, *uuid),
            GetAddrsU::With(address) => (MASK_ADDRESS, *address, 0, Uuid([0; 16])),
        };
        uuid.encode(to.u32(mask).u32(address.to_bits()).u32(index).u32(0));
    }

    fn decode(from: &mut Decoder<'_>) -> Result<GetAddrsU, XdrError> {
        let [mask, address, index, _spare] = read_words(from)?;
        let uuid = Uuid::decode(from)?;
        match mask {
            MASK_INDEX => Ok(GetAddrsU::At(index)),
            MASK_UUID => Ok(GetAddrsU::Of(uuid)),
            MASK_ADDRESS => Ok(GetAddrsU::With(Ipv4Addr::from_bits(address))),
            _ => Err(from.invalid("neither one address nor one UUID nor one place is asked for")),
        }
    }
}

impl Xdr for Addresses {
    fn encode(&self, to: &mut Encoder) {
        self.uuid.encode(to);
        to.i32(self.unique).u32(self.addresses.len() as u32);
        to.array(&self.addresses, ADDRESSES_MAX, |to, address| {
            to.u32(address.to_bits());
        });
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Addresses, XdrError> {
        let uuid = Uuid::decode(from)?;
        let unique = from.i32()?;
        let told = usize::try_from(from.u32()?).unwrap_or(usize::MAX);
        let List(mut addresses) = List::<u32, ADDRESSES_MAX>::decode(from)?;
        addresses.truncate(told);
        Ok(Addresses { uuid, unique, addresses: addresses.into_iter().map(Ipv4Addr::from_bits).collect() })
    }
}

impl Xdr for Entry {
    fn encode(&self, to: &mut Encoder) {
        let parts = Parts::of(self);
        parts.write_name(to);
        for at in 0..SITES_MAX {
            parts.uuid(at).encode(to);
        }
        write_words(
            to,
            &parts.column(|site| match site.server {
                SiteServer::Uuid { unique, .. } => unique.cast_unsigned(),
                SiteServer::Address(_) => 0,
            }),
        );
        parts.write_rest(to);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Entry, XdrError> {
        let (name, sites) = read_name(from)?;
        let mut uuids = [Uuid([0; 16]); SITES_MAX];
        for uuid in &mut uuids {
            *uuid = Uuid::decode(from)?;
        }
        let uniques: [u32; SITES_MAX] = read_words(from)?;
        read_rest(from, name, sites, |at, flags| match flags.has(SiteFlags::UUID) {
            true => SiteServer::Uuid { uuid: uuids[at], unique: uniques[at].cast_signed() },
            false => SiteServer::Address(Ipv4Addr::from_bits(uuids[at].time_low())),
        })
    }
}

impl Xdr for NumberedEntry {
    fn encode(&self, to: &mut Encoder) {
        let parts = Parts::of(&self.0);
        parts.write_name(to);
        write_words(
            to,
            &parts.column(|site| match site.server {
                SiteServer::Uuid { uuid, .. } => uuid.time_low(),
                SiteServer::Address(address) => address.to_bits(),
            }),
        );
        parts.write_rest(to);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<NumberedEntry, XdrError> {
        let (name, sites) = read_name(from)?;
        let servers: [u32; SITES_MAX] = read_words(from)?;
        let server = |at: usize, _| SiteServer::Address(Ipv4Addr::from_bits(servers[at]));
        read_rest(from, name, sites, server).map(NumberedEntry)
    }
}

/// A name and the number of sites, with which both forms of an entry begin.
fn read_name(from: &mut Decoder<'_>) -> Result<(VolumeName, usize), XdrError> {
    let mut name = [0; NAME_WORDS];
    for byte in &mut name {
        *byte = from.char()?;
    }
    let end = name.iter().position(|byte| *byte == 0).ok_or_else(|| from.invalid("a name without an end"))?;
    let name = VolumeName::new(&name[..end]).map_err(|_| from.invalid("not the name of a volume"))?;
    match usize::try_from(from.u32()?) {
        Ok(sites) if sites <= SITES_MAX => Ok((name, sites)),
        _ => Err(from.invalid("more sites than a volume can have")),
    }
}

/// What follows the servers, in both forms of an entry.
fn read_rest(
    from: &mut Decoder<'_>,
    name: VolumeName,
    sites: usize,
    server: impl Fn(usize, SiteFlags) -> SiteServer,
) -> Result<Entry, XdrError> {
    let partitions: [u32; SITES_MAX] = read_words(from)?;
    let flags: [u32; SITES_MAX] = read_words(from)?;
    let [read_write, read_only, backup] = read_words(from)?;
    let [clone, there] = read_words(from)?;
    let _spares: [u32; SPARE_WORDS] = read_words(from)?;
    let volume = |bit: u32, volume: u32| (there & bit != 0 && volume != 0).then_some(VolumeId(volume));
    let site = |at: usize| {
        let flags = SiteFlags(flags[at]);
        Site { server: server(at, flags), partition: partitions[at], flags }
    };
    Ok(Entry {
        name,
        sites: (0..sites).map(site).collect(),
        volumes: [volume(HAS_READ_WRITE, read_write), volume(HAS_READ_ONLY, read_only), volume(HAS_BACKUP, backup)],
        clone: (clone != 0).then_some(VolumeId(clone)),
        operations: Operations(there & Operations::ALL.0),
    })
}

/// The parts of an entry that both forms have.
struct Parts<'e>(&'e Entry);

impl Parts<'_> {
    fn of(entry: &Entry) -> Parts<'_> {
        Parts(entry)
    }

    fn column(&self, value: impl Fn(&Site) -> u32) -> [u32; SITES_MAX] {
        std::array::from_fn(|at| self.0.sites.get(at).map_or(0, &value))
    }

    fn uuid(&self, at: usize) -> Uuid {
        match self.0.sites.get(at).map(|site| site.server) {
            Some(SiteServer::Uuid { uuid, .. }) => uuid,
            Some(SiteServer::Address(address)) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&address.octets());
                Uuid(bytes)
            }
            None => Uuid([0; 16]),
        }
    }

    fn write_name(&self, to: &mut Encoder) {
        let name = self.0.name.as_str().as_bytes();
        for at in 0..NAME_WORDS {
            to.char(name.get(at).copied().unwrap_or(0));
        }
        to.u32(self.0.sites.len() as u32);
    }

    fn write_rest(&self, to: &mut Encoder) {
        write_words(to, &self.column(|site| site.partition));
        write_words(to, &self.column(|site| site.flags.0));
        let bits = [HAS_READ_WRITE, HAS_READ_ONLY, HAS_BACKUP];
        let volumes = self.0.volumes.iter().zip(bits).filter(|(volume, _)| volume.is_some());
        let there = volumes.map(|(_, bit)| bit).sum::<u32>() | self.0.operations.0;
        write_words(to, &self.0.volumes.map(|volume| volume.map_or(0, |volume| volume.0)));
        write_words(to, &[self.0.clone.map_or(0, |clone| clone.0), there]);
        write_words(to, &[0; SPARE_WORDS]);
    }
}

#[cfg(test)]
#[path = "vl_tests.rs"]
mod tests;
