//! rclone: `serve http`, and what `serve webdav` gives to browsers; the table of its default template.

use std::time::SystemTime;

use weft_remote::Figure;

use super::markup::{decode_entities, exact_size, own_segment};
use super::{Index, Item, moment};

/// Reads the table, which is like that of the Caddy of its time: what tells them apart is what follows it. Sizes are those of
/// rclone's own view, where a file of unknown length has none.
pub(super) fn read(page: &str) -> Option<Index> {
    let (_, after) = page.split_once("<table aria-describedby=\"summary\">")?;
    let (list, end) = after.split_once("</table>")?;
    if !end.contains("function changeSize()") {
        return None;
    }
    let items = list.split("<tr class=\"file\">").skip(1).map(item).collect::<Option<_>>()?;
    Some(Index { server: "rclone", items })
}

fn item(row: &str) -> Option<Item> {
    let (_, named) = row.split_once("</tr>")?.0.split_once("<span class=\"name\">")?;
    let (segment, is_dir) = own_segment(&decode_entities(attribute(named, "href")?))?;
    let size = attribute(named, "data-order")?.parse::<i64>().ok()?;
    let size = u64::try_from(size).ok().filter(|_| !is_dir).map_or(Figure::Unknown, exact_size);
    let modified = moment_of(&decode_entities(attribute(named, "datetime")?));
    Some(Item { segment, is_dir, size, modified: modified.map_or(Figure::Unknown, Figure::Exact) })
}

fn attribute<'a>(row: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = row.split_once(&format!("{name}=\""))?;
    Some(after.split_once('"')?.0)
}

/// A time as Go prints it (`time.Time.String`): `2024-02-03 05:05:06.5 +0100 CET`.
fn moment_of(text: &str) -> Option<SystemTime> {
    let mut words = text.split(' ');
    let (date, clock, zone) = (words.next()?, words.next()?, words.next()?);
    let (hours, minutes) = zone.split_at_checked(3)?;
    moment::parse_rfc3339(&format!("{date}T{clock}{hours}:{minutes}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_go_prints_them() {
        let seconds = |text| Some(moment_of(text)?.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs());
        for text in
            ["2024-02-03 05:05:06.519 +0100 CET", "2024-02-03 04:05:06 +0000 UTC", "2024-02-03 01:35:06 -0230 NDT"]
        {
            assert_eq!(seconds(text), Some(1_706_933_106), "{text}");
        }
        for text in [
            "",
            "2024-02-03",
            "2024-02-03 04:05:06",
            "2024-02-03 04:05:06 \u{e9}\u{e9} x",
            "0001-01-01 00:00:00 +0000 UTC",
        ] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
