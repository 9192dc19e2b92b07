//! Tests of the codes of abort.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::tables::CODES;
use super::*;

fn name(code: i32) -> &'static str {
    AbortCode(code).look_up().name
}

#[test]
fn tables_begin_where_their_names_put_them() {
    // Method: com_err makes the first code of up to four characters, six bits each, and 256 codes to a table.
    const CHARACTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    for table in TABLES {
        let place = |character| CHARACTERS.find(character).expect("one of them") as i32 + 1;
        let made = table.name.chars().fold(0, |code, character| code * 64 + place(character)) * CODES;
        assert_eq!(made, table.base, "{}", table.name);
        assert!(table.rows.len() <= CODES as usize);
    }
}

#[test]
fn no_code_has_two_rows() {
    let plain: Vec<i32> = VOLUMES.iter().chain(ERRNOS).map(|row| row.code).collect();
    assert_eq!(plain.iter().collect::<BTreeSet<_>>().len(), plain.len());
    assert!(plain.iter().all(|code| TABLES.iter().all(|table| !table.holds(*code))));
}

#[test]
fn codes_are_where_the_servers_have_them() {
    let wanted = [
        (5376, "UNOQUORUM"),
        (5377, "UNOTSYNC"),
        (5378, "ubik"),
        (5631, "ubik"),
        (5632, "unknown"),
        (267_268, "PRNOENT"),
        (267_274, "PRNOMORE"),
        (267_282, "PRNAMETOOLONG"),
        (363_523, "VL_CREATEFAIL"),
        (363_524, "VL_NOENT"),
        (363_527, "VL_BADNAME"),
        (363_541, "VL_ENTRYLOCKED"),
        (363_546, "VL_PERM"),
        (363_552, "VL_DBBAD"),
        (363_553, "VL"),
        (19_270_405, "RXKADNOAUTH"),
        (19_270_409, "RXKADEXPIRED"),
        (19_270_412, "RXKADILLEGALLEVEL"),
        (19_270_413, "RXKAD"),
        (1_233_242_881, "RXGK"),
        (1_492_325_130, "VOLSERVOLMOVED"),
        (1_492_325_137, "VOLSERFAILEDOP"),
        (0x2f6_df00, "EPERM"),
        (0x2f6_df0a, "EAGAIN"),
        (0x2f6_df26, "ENOTEMPTY"),
        (0x2f6_df2b, "ECHRNG"),
        (0x2f6_df40, "EREMOTE"),
        (0x2f6_df49, "EOVERFLOW"),
        (0x2f6_df53, "ERESTART"),
        (0x2f6_df5d, "EOPNOTSUPP"),
        (0x2f6_df6c, "ETIMEDOUT"),
        (0x2f6_df72, "ESTALE"),
        (0x2f6_df78, "EDQUOT"),
        (0x2f6_df7a, "EMEDIUMTYPE"),
        (0x2f6_df81, "EDISCON"),
        (0x2f6_df82, "UAE"),
        (13, "EACCES"),
        (30, "EROFS"),
        (39, "ENOTEMPTY"),
        (122, "EDQUOT"),
        (-1, "RX_CALL_DEAD"),
        (-9, "unknown"),
        (0, "unknown"),
        (i32::MIN, "unknown"),
        (i32::MAX, "unknown"),
    ];
    for (code, wanted) in wanted {
        assert_eq!(name(code), wanted, "{code}");
    }
}

#[test]
fn the_universal_table_is_complete() {
    let universal = TABLES.iter().find(|table| table.name == "uae").expect("there");
    assert_eq!(universal.rows.len(), 130);
    let names: BTreeSet<&str> = universal.rows.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), 130, "each has a name of its own");
    assert!(names.iter().all(|name| name.starts_with('E')));
    // What a Linux server would have said itself means the same.
    for row in ERRNOS.iter().filter(|row| names.contains(row.name)) {
        let same = universal.rows.iter().find(|other| other.name == row.name).expect("there");
        assert_eq!((row.means, row.next), (same.means, same.next), "{}", row.name);
    }
}

#[test]
fn what_is_done_next_follows_from_the_code() {
    let cases = [
        (101, Next::AskVldb),
        (102, Next::GiveUp),
        (103, Next::AskVldb),
        (105, Next::NextSite),
        (106, Next::AskVldb),
        (109, Next::GiveUp),
        (110, Next::Wait),
        (111, Next::AskVldb),
        (112, Next::NextSite),
        (113, Next::Wait),
        (-100, Next::Wait),
        (1234, Next::Reconnect),
        (1235, Next::Reconnect),
        (-1, Next::NextAddress),
        (-3, Next::NextSite),
        (-455, Next::OlderCall),
        (-1000, Next::NextAddress),
        (5377, Next::NextSite),
        (5500, Next::NextSite),
        (363_524, Next::GiveUp),
        (363_541, Next::Wait),
        (19_270_409, Next::DropToken),
        (19_270_408, Next::DoubtToken),
        (19_270_499, Next::DoubtToken),
        (0x2f6_df01, Next::GiveUp),
        (0x2f6_df81, Next::NextSite),
        (13, Next::GiveUp),
        (77_777, Next::GiveUp),
    ];
    for (code, wanted) in cases {
        assert_eq!(AbortCode(code).next(), wanted, "{code}");
    }
}

#[test]
fn errors_are_told_in_the_contracts_words() {
    let told = |code| AbortCode(code).error("/afs/example.org/x");
    assert!(matches!(told(102), RemoteError::NotFound { .. }));
    assert!(matches!(told(363_524), RemoteError::NotFound { .. }));
    assert!(matches!(told(109), RemoteError::OverQuota { .. }));
    assert!(matches!(told(110), RemoteError::Busy { .. }));
    assert!(matches!(told(30), RemoteError::ReadOnly { .. }));
    assert!(matches!(told(0x2f6_df0c), RemoteError::Denied { .. }));
    assert!(matches!(told(0x2f6_df10), RemoteError::Exists { .. }));
    assert!(matches!(told(0x2f6_df11), RemoteError::OtherTree { .. }));
    assert!(matches!(told(0x2f6_df26), RemoteError::NotEmpty { .. }));
    assert!(matches!(told(19_270_409), RemoteError::Denied { .. }));
    assert!(matches!(told(-455), RemoteError::Unsupported { .. }));
    let busy = "/afs/example.org/x: the volume is busy (VBUSY, abort 110): the source is busy";
    assert_eq!(told(110).to_string(), busy);
    let denied = "/afs/example.org/x: the server says EACCES (abort 49733388): permission denied";
    assert_eq!(told(0x2f6_df0c).to_string(), denied);
}

#[test]
fn a_volume_that_may_be_elsewhere_is_not_gone() {
    // What is held of it serves on, as when a server is silent.
    for code in [101, 103, 105, 106, 111, -1, 5376] {
        assert!(AbortCode(code).error("x").is_silence(), "{code}");
    }
    for code in [102, 363_524, 0x2f6_df01, 2] {
        assert!(matches!(AbortCode(code).error("x"), RemoteError::NotFound { .. }), "{code}");
    }
}

proptest! {
    #[test]
    fn every_code_has_words(code: i32) {
        let error = AbortCode(code).error("x").to_string();
        prop_assert!(error.contains(&format!("abort {code}")), "{}", error);
    }
}
