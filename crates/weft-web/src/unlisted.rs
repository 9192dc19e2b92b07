//! Directories of which their host does not tell. Many hosts give a file to whoever knows its whole path, and refuse the
//! directories on the way to it as if they were not there: object stores, registries of packages, hosts of raw files. There a
//! refusal says nothing of what lies deeper.
//!
//! A directory that is refused is there all the same if something deeper was found ([`Web::reach_names`]), or if its host is
//! one of [`WebOptions::unlisted_hosts`](crate::WebOptions) and its name does not end as a file's does.

use hyper::StatusCode;
use weft_remote::{Call, FileId, Name, Result};

use crate::authority::Authority;
use crate::content::{has_content, status_error};
use crate::id::{Id, Place};
use crate::listing::ends_as_a_file;
use crate::name::{Wanted, wanted_of};
use crate::remote::Web;

/// Whether an answer refuses what was asked for in a way that may be all that a host tells of a directory. 401 is none:
/// first somebody must log in.
fn is_refusal(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 403 | 404 | 405 | 410)
}

impl Web {
    /// Whether a directory of which its host gave nothing but this status is there all the same.
    pub(crate) fn leads_on(&self, call: &Call, dir: &Place, status: StatusCode) -> bool {
        self.led_on(call, dir) || (is_refusal(status) && !is_named_as_a_file(dir) && self.is_unlisted(dir))
    }

    fn is_unlisted(&self, dir: &Place) -> bool {
        let Some(authority) = Authority::parse(&dir.authority) else { return false };
        self.options().unlisted_hosts.iter().any(|pattern| pattern.covers_name(authority.bare_host()))
    }

    /// Whether something that the caller may see was found below a directory by its whole path.
    pub(crate) fn led_on(&self, call: &Call, dir: &Place) -> bool {
        let Some(authority) = Authority::parse(&dir.authority) else { return false };
        self.client.known_host(&authority).is_some_and(|host| host.lists.is_way(&dir.path, &call.caller))
    }

    /// Asks for what has these names, one in the other, below `dir`. If there is something, the directories on the way to it
    /// are there from now on, and the lists of them are not taken for all that there is.
    pub(crate) async fn reach_names(&self, call: &Call, dir: &FileId, names: &[Name]) -> Result<bool> {
        let Some(Id::Dir(dir)) = Id::parse(dir) else { return Ok(false) };
        let (Some(authority), Some(place)) = (Authority::parse(&dir.authority), place_below(&dir, names)) else {
            return Ok(false);
        };
        let reply = self.client.look(call, &place, &[]).await?;
        let found = has_content(&reply) || reply.slashed;
        let audience = reply.audience;
        let error = (!found && !is_refusal(reply.status)).then(|| status_error(&reply));
        reply.body.drain().await;
        if found {
            self.client.host(&authority).lists.learn_way(&place.dir().path, audience, &*self.client.notes);
        }
        error.map_or(Ok(found), Err)
    }
}

/// What has these names, one in the other, below a directory; `None` where one of them cannot be in a URL, or where one that
/// is not the last has a query.
pub(crate) fn place_below(dir: &Place, names: &[Name]) -> Option<Place> {
    let (last, between) = names.split_last()?;
    let part_of = |name: &Name| match wanted_of(name) {
        Wanted::Part(part) => Some(part),
        Wanted::Shortened | Wanted::Impossible => None,
    };
    let way = between.iter().try_fold(dir.clone(), |way, name| {
        Some(way.join(&part_of(name).filter(|part| part.query.is_none())?).slashed())
    })?;
    Some(way.join(&part_of(last)?)).filter(Place::fits)
}

/// Whether the last name of a directory's path ends as a file's does.
fn is_named_as_a_file(dir: &Place) -> bool {
    ends_as_a_file(dir.path.rsplit('/').nth(1).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_told_from_numbers_of_versions() {
        let dir = |name: &str| Place { authority: "h".into(), path: format!("/a.txt/{name}/"), query: None };
        for name in ["a.txt", "a.tar.gz", "x.7z.c", "serde-1.0.1.crate", "A.HTML", "a.mp3"] {
            assert!(is_named_as_a_file(&dir(name)), "{name}");
        }
        for name in [
            "a",
            "v1.2.3",
            "serde-1.0.1",
            ".well-known",
            ".github",
            "@v",
            "jquery@3.7.1",
            "a.",
            "golang.org",
            "x.y",
            "",
        ] {
            assert!(!is_named_as_a_file(&dir(name)), "{name}");
        }
    }

    #[test]
    fn a_directory_may_be_refused_in_many_ways_and_not_in_all() {
        for (status, refusal) in
            [(400, true), (403, true), (404, true), (405, true), (410, true), (401, false), (429, false), (503, false)]
        {
            assert_eq!(is_refusal(StatusCode::from_u16(status).unwrap()), refusal, "{status}");
        }
    }
}
