//! Links and names that have done harm somewhere, and what each must become here.

/// What a link must become in a listing.
#[derive(Clone)]
pub enum Shown {
    /// No name at all: it leads elsewhere.
    Not,
    /// A directory.
    Folder(Vec<u8>),
    /// A file, and what is asked of the server for it.
    File(Vec<u8>, String),
}

/// Links, and what they become.
pub fn corpus() -> Vec<(Vec<u8>, Shown)> {
    let nowhere = NOWHERE.iter().map(|href| (href.to_vec(), Shown::Not));
    let folders = FOLDERS.iter().map(|(href, name)| (href.to_vec(), Shown::Folder(name.to_vec())));
    let files =
        FILES.iter().map(|(href, name, asked)| (href.to_vec(), Shown::File(name.to_vec(), (*asked).to_owned())));
    nowhere.chain(folders).chain(files).chain(long()).chain(controls()).collect()
}

/// Names that a user types, and what is asked of the server; `None` when there can be no such name.
pub fn typed() -> Vec<(Vec<u8>, Option<String>)> {
    let told = TYPED.iter().map(|(name, asked)| (name.to_vec(), asked.map(str::to_owned)));
    let bytes = (1..=255_u8)
        .filter(|byte| !matches!(byte, b'/' | b'?' | b'%' | b'.'))
        .map(|byte| (vec![b'n', byte], Some(format!("n{}", escaped(byte)))));
    let long = [(254, true), (255, true), (256, false), (4095, false)];
    let long = long.map(|(length, fits)| (vec![b'l'; length], fits.then(|| "l".repeat(length))));
    told.chain(bytes).chain(long).collect()
}

/// The bytes that a percent-encoded text stands for.
pub fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%').and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            // Shown as they are sent: a name cannot hold them, or they would read as another's escape.
            Some(b'/') => bytes.extend(b"%2F"),
            Some(b'%') if after[2..].starts_with(b"2F") => bytes.extend(b"%25"),
            Some(byte) => bytes.push(byte),
            None => bytes.push(*first),
        }
        rest = if digits.is_some() { &after[2..] } else { after };
    }
    bytes
}

/// How a byte of a name is sent.
fn escaped(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        byte if b"-._~!$&'()*+,=:@".contains(&byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    }
}

/// Every control byte and some above ASCII, escaped in a link.
fn controls() -> impl Iterator<Item = (Vec<u8>, Shown)> {
    (1..32).chain([0x7f, 0x80, 0xa0, 0xfe, 0xff]).map(|byte: u8| {
        let href = format!("c%{byte:02x}d");
        (href.clone().into_bytes(), Shown::File(vec![b'c', byte, b'd'], format!("c%{byte:02X}d")))
    })
}

/// Long names: cut and marked above 255 bytes, with no name above what a URL may have.
fn long() -> impl Iterator<Item = (Vec<u8>, Shown)> {
    let cut = |byte: u8| [vec![byte; 237], b"%~".to_vec()].concat();
    let plain = [
        (254, Some(vec![b'a'; 254])),
        (255, Some(vec![b'a'; 255])),
        (256, Some(cut(b'a'))),
        (4096, Some(cut(b'a'))),
        (8000, Some(cut(b'a'))),
        (8193, None),
        (65_536, None),
    ];
    let plain = plain.into_iter().map(|(length, name)| {
        let text = "a".repeat(length);
        (text.clone().into_bytes(), name.map_or(Shown::Not, |name| Shown::File(name, text)))
    });
    let raw = [(255, vec![0xff; 255]), (256, cut(0xff)), (2000, cut(0xff))]
        .into_iter()
        .map(|(length, name)| ("%ff".repeat(length).into_bytes(), Shown::File(name, "%FF".repeat(length))));
    plain.chain(raw)
}

const NOWHERE: &[&[u8]] = &[
    b"",
    b".",
    b"./",
    b"..",
    b"../",
    b"../x",
    b"../../../../etc/passwd",
    b"/",
    b"//",
    b"/etc/passwd",
    b"///x",
    b"\\",
    b"..\\x",
    b"\\\\host.invalid\\x",
    b"%2e",
    b"%2e/",
    b"%2e%2e",
    b"%2E%2E/x",
    b".%2e/x",
    b"%2e./x",
    b"a/../../x",
    b"a/%2e%2e/%2e%2e/x",
    b"./..",
    b".\t./x",
    b".\n.\n/x",
    b"&#46;&#46;/x",
    b"&#x2e;&#x2e;&#x2f;x",
    b"#",
    b"#x",
    b"file:///etc/passwd",
    b"FILE:/etc/passwd",
    b"javascript:alert(1)",
    b"JaVa\tScript:x",
    b"data:text/html,x",
    b"mailto:a@b.invalid",
    b"gopher://x.invalid/1",
    b"ftp://x.invalid/x",
    b"about:blank",
    b"blob:x",
    b"a:b",
    b"http:",
    b"http://",
    b"http://[",
    b"http://x.invalid/r/x",
    b"//x.invalid/x",
    b"https://user:word@x.invalid/x",
    b"http://a b/x",
    b" ..",
    b".. ",
    b"\t../x",
];

const FOLDERS: &[(&[u8], &[u8])] = &[
    (b"a/", b"a"),
    (b"a/b", b"a"),
    (b"a//b", b"a"),
    (b"a/b/../c", b"a"),
    (b"%20/", b" "),
    (b"..;/x", b"..;"),
    (b"..%00/x", b"..%00"),
    (b"..%2f/x", b"..%2F"),
    (b"%ff/x", b"\xff"),
    (b"a/./b", b"a"),
    // Of the names of characters that HTML has, those that servers write are read; this one stays inside all the same.
    (b"&period;&period;/x", b"&period;&period;"),
];

/// The link, the name, the request.
const FILES: &[(&[u8], &[u8], &str)] = &[
    (b"plain", b"plain", "plain"),
    (b"./plain", b"plain", "plain"),
    (b"a/../plain", b"plain", "plain"),
    // HTML makes another character of a NUL.
    (b"..\0/../x", b"x", "x"),
    (b"..%2f", b"..%2F", "..%2F"),
    (b"..%2fx", b"..%2Fx", "..%2Fx"),
    (b"%2e%2e%2fx", b"..%2Fx", "..%2Fx"),
    (b"..%5cx", b"..\\x", "..%5Cx"),
    (b"%5c", b"\\", "%5C"),
    (b"%2f", b"%2F", "%2F"),
    (b"%2fetc%2fpasswd", b"%2Fetc%2Fpasswd", "%2Fetc%2Fpasswd"),
    (b"%00", b"%00", "%00"),
    (b"a%00b", b"a%00b", "a%00b"),
    (b"..%00", b"..%00", "..%00"),
    (b"%252e%252e", b"%2e%2e", "%252e%252e"),
    (b"%252f", b"%2f", "%252f"),
    (b"%252F", b"%252F", "%252F"),
    (b"%2500", b"%2500", "%2500"),
    (b"%25", b"%", "%25"),
    (b"%", b"%", "%25"),
    (b"%zz", b"%zz", "%25zz"),
    (b"%4", b"%4", "%254"),
    (b"%u002e", b"%u002e", "%25u002e"),
    (b"%25~", b"%25~", "%25~"),
    (b"%c0%ae%c0%ae", b"\xc0\xae\xc0\xae", "%C0%AE%C0%AE"),
    (b"%c0%af", b"\xc0\xaf", "%C0%AF"),
    (b"%e0%80%ae", b"\xe0\x80\xae", "%E0%80%AE"),
    (b"%f0%80%80%af", b"\xf0\x80\x80\xaf", "%F0%80%80%AF"),
    (b"%ed%a0%80", b"\xed\xa0\x80", "%ED%A0%80"),
    (b"%f4%90%80%80", b"\xf4\x90\x80\x80", "%F4%90%80%80"),
    (b"%c3", b"\xc3", "%C3"),
    (b"%e2%80%aetxt.exe", b"\xe2\x80\xaetxt.exe", "%E2%80%AEtxt.exe"),
    (b"%ef%bb%bfx", b"\xef\xbb\xbfx", "%EF%BB%BFx"),
    (b"%e2%88%95", b"\xe2\x88\x95", "%E2%88%95"),
    (b"%ef%bc%8f", b"\xef\xbc\x8f", "%EF%BC%8F"),
    (b"%ef%bc%8e%ef%bc%8e", b"\xef\xbc\x8e\xef\xbc\x8e", "%EF%BC%8E%EF%BC%8E"),
    (b"\xc3\xa9", b"\xc3\xa9", "%C3%A9"),
    (b"...", b"...", "..."),
    (b"..a", b"..a", "..a"),
    (b"a.", b"a.", "a."),
    (b"a%20", b"a ", "a%20"),
    (b"%20a", b" a", "%20a"),
    (b"..%20", b".. ", "..%20"),
    (b"a b", b"a b", "a%20b"),
    (b"con", b"con", "con"),
    (b"NUL.txt", b"NUL.txt", "NUL.txt"),
    (b"./:", b":", ":"),
    (b"./a:b", b"a:b", "a:b"),
    (b"-rf", b"-rf", "-rf"),
    (b"--help", b"--help", "--help"),
    (b"$(id)", b"$(id)", "$(id)"),
    (b"a;b", b"a;b", "a%3Bb"),
    (b"a%7cb", b"a|b", "a%7Cb"),
    (b"*", b"*", "*"),
    (b"~root", b"~root", "~root"),
    (b"a'b", b"a'b", "a'b"),
    (b"%22", b"\"", "%22"),
    (b"%3cscript%3e", b"<script>", "%3Cscript%3E"),
    (b"user.weft.cached", b"user.weft.cached", "user.weft.cached"),
    (b"weft.log", b"weft.log", "weft.log"),
    (b".git", b".git", ".git"),
    (b".hidden", b".hidden", ".hidden"),
    (b"index.HTML", b"index.HTML", "index.HTML"),
    (b"%1b%5b31m", b"\x1b[31m", "%1B%5B31m"),
    (b"?q=1", b"?q=1", "?q=1"),
    (b"?q=/../x", b"?q=%2F..%2Fx", "?q=/../x"),
    (b"x?q=a%2fb", b"x?q=a%2fb", "x?q=a%2fb"),
    (b"x?%00", b"x?%00", "x?%00"),
    (b"x%3fy", b"x%3Fy", "x%3Fy"),
    (b"x%23y", b"x#y", "x%23y"),
    (b"x#y", b"x", "x"),
];

const TYPED: &[(&[u8], Option<&str>)] = &[
    (b"..%2fx", Some("..%252fx")),
    (b"..%2Fx", Some("..%2Fx")),
    (b"%2e%2e", Some("%252e%252e")),
    (b"%00", Some("%00")),
    (b"%0d%0aHost: x", Some("%250d%250aHost:%20x")),
    (b"a\r\nHost: x", Some("a%0D%0AHost:%20x")),
    (b"a b HTTP%2F1.1", Some("a%20b%20HTTP%2F1.1")),
    (b"..?x", None),
    (b".?x", None),
    (b"...", Some("...")),
    (b"..;", Some("..%3B")),
    (b"..\\x", Some("..%5Cx")),
    (b"%", Some("%25")),
    (b"%zz", Some("%25zz")),
    (b"a?b=1&c", Some("a?b=1&c")),
    (b"a?b c", Some("a?b%20c")),
    (b"a?\r\nx", Some("a?%0D%0Ax")),
    (b"a??", Some("a??")),
    (b"a?%2Fb", Some("a?/b")),
    (b"a%~0123456789abcdef", None),
    (b"%~%~", None),
    (b".git", None),
    (b".hidden", None),
    (b"._x", None),
    (b"autorun.inf", None),
    (b".Trash-1000", None),
];
