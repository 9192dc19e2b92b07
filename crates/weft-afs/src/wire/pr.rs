//! The calls of the protection database that ask: numbers of users and groups by their names and back, what is known of
//! each, and who belongs to whom (OpenAFS `src/ptserver/ptint.xg`; Rx service 73, port 7002). Numbers of groups are
//! negative.

use weft_rx::{Decoder, Encoder, XdrError};

use super::status::Spares;
use super::{List, Xdr, calls, on_the_wire};

/// The Rx service.
pub const SERVICE: u16 = 73;
/// The port.
pub const PORT: u16 = 7002;
/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 63;
/// Most names of one call; servers would take more.
pub const NAMES_MAX: usize = 256;
/// The number of whoever has shown no token, and what a server tells for a name that it does not know.
pub const ANONYMOUS: i32 = 32766;

on_the_wire! {
    /// The numbers of some names; [`ANONYMOUS`] for one that is not known.
    pub struct NameToId {
        /// The names.
        names: List<Principal, NAMES_MAX>,
    }

    /// The names of some numbers; the number in digits for one that is not known.
    pub struct IdToName {
        /// The numbers.
        ids: List<i32, NAMES_MAX>,
    }

    /// What is known of a user or a group.
    pub struct ListEntry {
        /// Which.
        id: i32,
    }

    /// The members of a group; the groups of a user.
    pub struct ListElements {
        /// Whose.
        id: i32,
    }

    /// The groups that a user or a group owns, some at once.
    pub struct ListOwned {
        /// Whose; 0 for those that nobody owns.
        id: i32,
        /// From which on: 0, then what the last reply told.
        from: i32,
    }

    /// The groups that a group is a member of. Not every server has them.
    pub struct ListSuperGroups {
        /// Which group.
        id: i32,
    }

    /// All users or groups, some at once.
    pub struct ListEntries {
        /// [`LIST_USERS`], [`LIST_GROUPS`] or both.
        kinds: i32,
        /// From which on: 0, then what the last reply told.
        start: i32,
    }

    /// Whether a user is in a group.
    pub struct IsAMemberOf {
        /// The user.
        user: i32,
        /// The group.
        group: i32,
    }
}

calls! { SERVICE;
    NameToId = 504 -> List<i32, NAMES_MAX>;
    IdToName = 505 -> List<Principal, NAMES_MAX>;
    ListEntry = 512 -> Known;
    ListElements = 514 -> Ids;
    IsAMemberOf = 515 -> i32;
    ListOwned = 517 -> Ids;
    ListEntries = 521 -> KnownList;
    ListSuperGroups = 530 -> Ids;
}

/// `ListEntries::kinds`: users.
pub const LIST_USERS: i32 = 1;
/// `ListEntries::kinds`: groups.
pub const LIST_GROUPS: i32 = 2;
/// The group of the cell's administrators.
pub const ADMINISTRATORS: i32 = -204;
/// Most numbers of one reply.
pub const IDS_MAX: usize = 500_000;
/// Most users and groups of one reply; servers tell some hundred.
pub const KNOWN_MAX: usize = 10_000;

on_the_wire! {
    /// What is known of a user or a group (`prcheckentry`, `prlistentries`).
    pub struct Known {
        /// Who may see and do what with it, in bits ([`Known::privacy`]).
        flags: i32,
        /// Its number.
        id: i32,
        /// Whose it is.
        owner: i32,
        /// Who made it.
        creator: i32,
        /// How many groups it may still make.
        groups_left: i32,
        /// How many users it may still make.
        users_left: i32,
        /// How many members it has; of a user, groups.
        count: i32,
        /// Nothing.
        spares: Spares,
        /// Its name.
        name: Principal,
    }

    /// Some numbers.
    pub struct Ids {
        /// They.
        ids: List<i32, IDS_MAX>,
        /// Of `ListOwned`: from which on there are more, 0 if there are none. Else not 0: there were more than are told.
        more: i32,
    }

    /// Some users and groups.
    pub struct KnownList {
        /// They.
        known: List<Known, KNOWN_MAX>,
        /// From which on there are more; -1 if there are none.
        next: i32,
    }
}

impl Known {
    /// Its five privacy flags as people write them: who may see its status, the groups that it owns and its members, who
    /// may add members, and who may remove them. `-` the owner alone, a small letter the members too, a capital everybody
    /// (OpenAFS `src/ptserver/pts.c`, `flags_shift`).
    #[must_use]
    pub fn privacy(&self) -> String {
        // Bits, and the letters of the values 1 and 2; from the last to the first.
        const FLAGS: [(u32, char, char); 5] =
            [(1, 'r', 'X'), (2, 'a', 'A'), (2, 'm', 'M'), (1, 'O', 'X'), (2, 's', 'S')];
        let mut flags = self.flags;
        let letters = FLAGS.map(|(bits, one, two)| {
            let value = flags & ((1 << bits) - 1);
            flags >>= bits;
            match value {
                0 => '-',
                1 => one,
                2 => two,
                _ => 'X',
            }
        });
        letters.iter().rev().collect()
    }
}

/// The name of a user or a group: 1 to [`NAME_BYTES_MAX`] bytes without NUL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal(Vec<u8>);

/// Words of a name on the wire: chars up to a NUL, and zeroes.
const NAME_WORDS: usize = NAME_BYTES_MAX + 1;

impl Principal {
    /// Checks a name; `None` if nobody can have it.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Principal> {
        let fits = !bytes.is_empty() && bytes.len() <= NAME_BYTES_MAX && !bytes.contains(&0);
        fits.then(|| Principal(bytes.to_vec()))
    }

    /// The name.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Xdr for Principal {
    fn encode(&self, to: &mut Encoder) {
        for at in 0..NAME_WORDS {
            to.char(self.0.get(at).copied().unwrap_or(0));
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Principal, XdrError> {
        let mut name = [0; NAME_WORDS];
        for byte in &mut name {
            *byte = from.char()?;
        }
        let end = name.iter().position(|byte| *byte == 0).ok_or_else(|| from.invalid("a name without an end"))?;
        Principal::new(&name[..end]).ok_or_else(|| from.invalid("an empty name"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::check::check_call;
    use crate::wire::{Call, decode_whole, encode_whole};

    fn principal(name: &str) -> Principal {
        Principal::new(name.as_bytes()).expect("a name")
    }

    #[test]
    fn names_become_numbers_and_back() {
        let names = || List(vec![principal("system:anyuser"), principal("anna")]);
        let ids = || List(vec![-101, 1001]);
        let request = check_call(&NameToId { names: names() }, &ids());
        assert!(request.starts_with("000001f800000002000000730000007900000073"));
        assert_eq!(request.len(), (2 + 2 * 64) * 8);
        assert_eq!(check_call(&IdToName { ids: ids() }, &names()), "000001f900000002ffffff9b000003e9");
    }

    fn known(flags: i32) -> Known {
        Known {
            flags,
            id: -207,
            owner: 1001,
            creator: 1,
            groups_left: 20,
            users_left: 0,
            count: 2,
            spares: Spares,
            name: principal("alice:friends"),
        }
    }

    /// Goal: what is known of users and groups, and who belongs to whom, is read as it was written.
    #[test]
    fn users_and_groups_are_told() {
        let request = check_call(&ListEntry { id: -207 }, &known(0xd4));
        assert_eq!(request, "00000200ffffff31");
        let ids = |more| Ids { ids: List(vec![1001, -204]), more };
        assert_eq!(check_call(&ListElements { id: 1001 }, &ids(0)), "00000202000003e9");
        assert_eq!(check_call(&ListOwned { id: 1001, from: 9 }, &ids(3)), "00000205000003e900000009");
        assert_eq!(check_call(&ListSuperGroups { id: -207 }, &ids(1)), "00000212ffffff31");
        assert_eq!(check_call(&IsAMemberOf { user: 1001, group: ADMINISTRATORS }, &1), "00000203000003e9ffffff34");
        let list = KnownList { known: List(vec![known(0), known(1)]), next: -1 };
        let request = check_call(&ListEntries { kinds: LIST_USERS | LIST_GROUPS, start: 5 }, &list);
        assert_eq!(request, "000002090000000300000005");
        assert_eq!(encode_whole(&known(0)).map(|bytes| bytes.len()), Ok((7 + 5 + 64) * 4));
    }

    /// Goal: privacy flags are shown as people know them.
    #[test]
    fn privacy_has_five_letters() {
        for (flags, wanted) in
            [(0, "-----"), (0b1000_0000, "S----"), (0b1001_0000, "S-M--"), (0b1010_1011, "SOmar"), (0xff, "XOXXr")]
        {
            assert_eq!(known(flags).privacy(), wanted, "{flags:#b}");
        }
    }

    #[test]
    fn names_that_nobody_has_are_refused() {
        assert_eq!(Principal::new(b""), None);
        assert_eq!(Principal::new(b"a\0b"), None);
        assert_eq!(Principal::new(&[b'a'; 64]), None);
        let longest = Principal::new(&[0xe5; 63]).expect("63 bytes");
        let bytes = encode_whole(&longest).expect("no bounds");
        assert_eq!(&bytes[..4], &[0xff, 0xff, 0xff, 0xe5], "the sign is extended");
        assert_eq!(decode_whole(&bytes), Ok(longest));
        assert!(matches!(decode_whole::<Principal>(&[0; 256]), Err(XdrError::Invalid { .. })));
        assert!(matches!(decode_whole::<Principal>(&[1; 256]), Err(XdrError::Invalid { .. })));
    }

    #[test]
    fn no_more_are_asked_for_than_the_call_has() {
        let too_many = IdToName { ids: List(vec![1; NAMES_MAX + 1]) };
        assert!(matches!(too_many.request(), Err(XdrError::TooLong { max: NAMES_MAX, .. })));
        let told = encode_whole(&List::<i32, 1000>(vec![1; NAMES_MAX + 1])).expect("within its bounds");
        assert!(matches!(NameToId::reply(&told), Err(XdrError::TooLong { max: NAMES_MAX, .. })));
    }
}
