//! Where an answer sends the client: right content, a loop, or a named error, and never another file's bytes.

use rustix::io::Errno;

use crate::row::{FILE_PATH, Reply, Row, See, truth};
use crate::support::answer;

/// Locations of all sorts, loops and chains.
pub fn rows() -> Vec<Row> {
    good().chain(bad()).chain(loops()).chain(chains()).collect()
}

/// `{base}` stands for the row's folder.
fn row(input: &str, status: u16, see: See) -> Row {
    let location = input.to_owned();
    let lie = move |_: &_, rest: &str, base: &str| {
        if rest != FILE_PATH {
            return Reply::keep(answer("200 OK", &[], truth(rest)));
        }
        let location = format!("location: {}", location.replace("{base}", base));
        Reply::keep(answer(&format!("{status} Over There"), &[&location], "moved"))
    };
    Row::new("location", format!("{status} to {input}"), see, Box::new(lie)).requests(6)
}

/// Spellings of a location that lead to `there.bin` in the same folder.
fn good() -> impl Iterator<Item = Row> {
    let spellings = [
        "there.bin",
        "./there.bin",
        "{base}there.bin",
        "{base}./there.bin",
        "../..{base}there.bin",
        "{base}a/../there.bin",
        "{base}a/%2e%2e/there.bin",
        "{base}%2e/there.bin",
        "/../../../../..{base}there.bin",
        "there.bin#part",
        "th\tere.bin",
        "\\..{base}there.bin",
    ];
    let spelt = spellings.into_iter().map(|location| row(location, 302, See::bytes(truth("there.bin"))));
    let statuses = [301, 302, 303, 307, 308].map(|status| row("there.bin", status, See::bytes(truth("there.bin"))));
    spelt.chain(statuses)
}

fn bad() -> impl Iterator<Item = Row> {
    let long = format!("{{base}}{}", "a".repeat(70_000));
    let nowhere = [
        "file:///etc/passwd",
        "gopher://127.0.0.1:70/x",
        "ftp://127.0.0.1/x",
        "javascript:alert(1)",
        "data:text/plain,hello",
        "about:blank",
        "mailto:a@b.c",
        "unix:/run/x",
        "weft://x/y",
        "blob:x",
        "http://",
        "http:///",
        "https://",
        "//",
        "///",
        "http://[::1",
        "http://[::g]/",
        "http://a b/",
        "http://%00/",
        "http://%2f/",
        "http://127.0.0.1:0/",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1:x/",
        "http://:80/",
        "http://@/",
        "http://a..b/",
        "http://\u{fffd}/",
        "http://no-such-host.invalid/x.bin",
        "http://-a.invalid/",
        &long,
    ];
    let errors: &[Errno] = &[Errno::IO, Errno::HOSTUNREACH];
    nowhere.map(|location| row(location, 302, See::Fails(errors))).into_iter().chain(headless())
}

/// Redirects without a location.
fn headless() -> impl Iterator<Item = Row> {
    [301, 302, 303, 307, 308].into_iter().map(|status| {
        let lie = move |_: &_, rest: &str, _: &str| Reply::keep(answer(&format!("{status} Where"), &[], truth(rest)));
        Row::new("no location", status.to_string(), See::Fails(&[Errno::IO]), Box::new(lie)).requests(4)
    })
}

fn loops() -> impl Iterator<Item = Row> {
    let to_itself = ["x.bin", "", "?", "./x.bin", "#here", "{base}x.bin", "%78.bin"];
    let to_itself = to_itself.into_iter().map(|location| {
        let lie = move |_: &_, _: &str, base: &str| {
            Reply::keep(answer("302 Found", &[&format!("location: {}", location.replace("{base}", base))], "again"))
        };
        Row::new("loop", format!("to {location:?}"), See::Fails(&[Errno::LOOP, Errno::IO]), Box::new(lie)).requests(24)
    });
    let rounds = [2_usize, 3, 9, 10, 11, 1000].into_iter().map(|length| {
        let lie = move |_: &_, rest: &str, base: &str| {
            let at: usize = rest.strip_prefix("hop").and_then(|n| n.parse().ok()).unwrap_or(0);
            let next = (at + 1) % length;
            Reply::keep(answer("302 Found", &[&format!("location: {base}hop{next}")], "on"))
        };
        Row::new("loop", format!("of {length}"), See::Fails(&[Errno::LOOP]), Box::new(lie)).requests(24)
    });
    to_itself.chain(rounds)
}

/// Chains that end; ten hops are followed.
fn chains() -> impl Iterator<Item = Row> {
    [1_usize, 5, 9, 10, 11, 12, 100, 1000].into_iter().map(|length| {
        let lie = move |_: &_, rest: &str, base: &str| {
            let at: usize = rest.strip_prefix("hop").and_then(|n| n.parse().ok()).unwrap_or(0);
            if at == length {
                return Reply::keep(answer("200 OK", &["cache-control: max-age=600"], "the end"));
            }
            Reply::keep(answer("302 Found", &[&format!("location: {base}hop{}", at + 1)], "on"))
        };
        let see = if length <= 10 { See::bytes("the end") } else { See::Fails(&[Errno::LOOP]) };
        Row::new("chain", format!("{length} hops"), see, Box::new(lie)).requests(24)
    })
}
