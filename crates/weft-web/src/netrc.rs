//! The user's file of logins, in the format of ftp(1) that curl and git read as well.

use crate::authority::Authority;

/// A login for a host.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    /// Host or `host:port` in lower case; `None` for the default.
    pub machine: Option<String>,
    pub login: String,
    pub password: String,
}

/// Reads the bytes of such a file.
///
/// # Errors
/// What is wrong with them; nothing of the text.
pub(crate) fn read(files: &[Vec<u8>]) -> Result<Vec<Login>, String> {
    let text = files.first().map_or(Ok(""), |bytes| std::str::from_utf8(bytes));
    parse(text.map_err(|_| "not UTF-8".to_owned())?)
}

/// The login for a host. The port counts where the file names one; such a login goes before one for the host on any
/// port, and that before the default.
pub(crate) fn login_for<'a>(logins: &'a [Login], host: &Authority) -> Option<&'a Login> {
    let for_machine = |name: &str| logins.iter().find(|login| login.machine.as_deref() == Some(name));
    let with_port = for_machine(&host.text()).or_else(|| for_machine(host.bare_host()));
    with_port.or_else(|| logins.iter().find(|login| login.machine.is_none()))
}

/// Reads the text of such a file. Nothing of it is in the error: it may be a password.
fn parse(text: &str) -> Result<Vec<Login>, String> {
    let mut logins: Vec<Login> = Vec::new();
    let mut lines = text.lines().enumerate();
    // What the last keyword is about, where its value stands on the next line.
    let mut pending: Option<String> = None;
    while let Some((number, line)) = lines.next() {
        for word in words(line).ok_or_else(|| format!("line {}: a quote without its end", number + 1))? {
            let Some(keyword) = pending.take() else {
                match word.as_str() {
                    "default" => logins.push(Login { machine: None, login: String::new(), password: String::new() }),
                    "machine" | "login" | "password" | "account" | "macdef" => pending = Some(word),
                    _ => return Err(format!("line {}: a word that is no keyword", number + 1)),
                }
                continue;
            };
            match (keyword.as_str(), logins.last_mut()) {
                ("machine", _) => {
                    let machine = Some(word.to_ascii_lowercase());
                    logins.push(Login { machine, login: String::new(), password: String::new() });
                }
                ("login", Some(last)) => last.login = word,
                ("password", Some(last)) => last.password = word,
                ("account", Some(_)) => {}
                ("macdef", _) => {
                    // A macro goes on to the next empty line.
                    let _ = lines.find(|(_, line)| line.trim().is_empty());
                    break;
                }
                _ => return Err(format!("line {}: `{keyword}` before any `machine`", number + 1)),
            }
        }
    }
    match pending {
        Some(keyword) => Err(format!("the last `{keyword}` has no value")),
        None => Ok(logins),
    }
}

/// The words of a line; quotes hold blanks, a backslash within them the next character. A word that starts with `#`
/// where a keyword could stand begins a comment only at the start of the line: a password may start so.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    if rest.starts_with('#') {
        return Some(words);
    }
    while !rest.is_empty() {
        let mut word = String::new();
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut letters = quoted.char_indices();
            let end = loop {
                match letters.next()? {
                    (at, '"') => break at + 1,
                    (_, '\\') => word.push(letters.next()?.1),
                    (_, letter) => word.push(letter),
                }
            };
            rest = &quoted[end..];
        } else {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            word.push_str(&rest[..end]);
            rest = &rest[end..];
        }
        words.push(word);
        rest = rest.trim_start();
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logins(text: &str) -> Result<Vec<(String, String, String)>, String> {
        let shown = |login: Login| (login.machine.unwrap_or("(default)".to_owned()), login.login, login.password);
        parse(text).map(|logins| logins.into_iter().map(shown).collect())
    }

    fn row(machine: &str, login: &str, password: &str) -> (String, String, String) {
        (machine.to_owned(), login.to_owned(), password.to_owned())
    }

    #[test]
    fn logins_are_read_in_all_their_forms() {
        let text = "# mine\nmachine A.example login me password #pass account x\n\
            machine b.example:8443\n\tlogin \"you and\"\n\tpassword \"q\\\"\\\\ \"\n\
            macdef init\n machine evil.example\n login x\n\n\
            default login anonymous password guest\n";
        let expected = [
            row("a.example", "me", "#pass"),
            row("b.example:8443", "you and", "q\"\\ "),
            row("(default)", "anonymous", "guest"),
        ];
        assert_eq!(logins(text).unwrap(), expected);
        assert_eq!(logins("").unwrap(), []);
    }

    #[test]
    fn mistakes_are_told_without_telling_the_text() {
        for text in [
            "login secret",
            "secret",
            "machine a login x password",
            "machine a password \"secret",
            "machine",
            "machine a login x secret y",
        ] {
            let why = logins(text).unwrap_err();
            assert!(!why.contains("secret"), "{text}: {why}");
        }
    }
}
