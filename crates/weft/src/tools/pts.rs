//! `pts`: users and groups of a cell, as its protection database has them. It only asks.

use std::collections::HashMap;

use serde_json::json;
use weft_afs::cell::{Cell, CellName};
use weft_afs::wire::pr::{
    ADMINISTRATORS, ANONYMOUS, IdToName, Ids, IsAMemberOf, Known, LIST_GROUPS, LIST_USERS, ListElements, ListEntries,
    ListEntry, ListOwned, ListSuperGroups, NAMES_MAX, NameToId, Principal,
};
use weft_afs::wire::{Call, List};

use crate::exit::{Exit, Failure, Outcome};
use crate::tools::arguments::{Arguments, Command, Form, LeftOut, Parameter, Tool, may, needed};
use crate::tools::session::{Session, Told};

/// The tool.
pub static TOOL: Tool = Tool {
    name: "pts",
    about: "Tells of users and groups of a cell; it changes nothing",
    commands: COMMANDS,
    common: &[
        may("cell", Form::One, "cell name"),
        may("noauth", Form::Flag, "ask as anybody"),
        may("force", Form::Flag, "go on after errors, as it does without it"),
        may("localauth", Form::Flag, "refused: with the servers' own key"),
        may("auth", Form::Flag, "ask as the user who runs it, as it does without it"),
        may("encrypt", Form::Flag, "protect all that is said"),
        may("config", Form::One, "folder with CellServDB"),
    ],
    left_out: &[
        LeftOut { names: &["listmax"], why: "ids are the business of whoever makes users, who has OpenAFS's `pts`" },
        LeftOut {
            names: &[
                "adduser",
                "chown",
                "creategroup",
                "cg",
                "createuser",
                "cu",
                "delete",
                "interactive",
                "quit",
                "removeuser",
                "rename",
                "chname",
                "setfields",
                "setmax",
                "sleep",
                "source",
            ],
            why: "it only asks; whoever administers a cell has OpenAFS's `pts` on its servers",
        },
    ],
};

const WHO: Parameter = needed("nameorid", Form::Several, "user or group name or id");

const COMMANDS: &[Command] = &[
    Command {
        name: "examine",
        aliases: &["check"],
        about: "tell of users and groups",
        parameters: &[WHO],
        run: examine,
    },
    Command {
        name: "listentries",
        aliases: &[],
        about: "tell all users or groups",
        parameters: &[may("users", Form::Flag, "list user entries"), may("groups", Form::Flag, "list group entries")],
        run: list_entries,
    },
    Command {
        name: "listowned",
        aliases: &[],
        about: "tell the groups that somebody owns; of 0, those that nobody does",
        parameters: &[WHO],
        run: list_owned,
    },
    Command {
        name: "membership",
        aliases: &["groups"],
        about: "tell who belongs to a group, or to which groups a user belongs",
        parameters: &[WHO, may("supergroups", Form::Flag, "also the groups that a group belongs to")],
        run: membership,
    },
];

/// The protection database of a cell.
struct Database<'s> {
    session: &'s Session,
    cell: Cell,
}

/// Somebody, by name and number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Who {
    name: String,
    id: i32,
}

fn examine(session: &Session, arguments: &Arguments) -> Outcome {
    let database = Database::of(session, arguments)?;
    session.each(&arguments.texts("nameorid")?, |named| {
        let who = database.find(named)?;
        let known = database.ask(named, &ListEntry { id: who.id })?;
        let names = database.names(&[known.owner, known.creator])?;
        let is_administrator = known.id == ADMINISTRATORS
            || database
                .ask(named, &IsAMemberOf { user: known.id, group: ADMINISTRATORS })
                .is_ok_and(|is_member| is_member != 0);
        let groups = if is_administrator { "unlimited".to_owned() } else { known.groups_left.to_string() };
        let (name, id, count) = (text(&known.name), known.id, known.count);
        let (owner, creator, flags) = (&names[0], &names[1], known.privacy());
        let lines = format!(
            "Name: {name}, id: {id}, owner: {owner}, creator: {creator},\n  membership: {count}, flags: {flags}, group quota: \
            {groups}."
        );
        let fields = json!({
            "name": name, "id": id, "owner": owner, "creator": creator, "membership": count, "flags": flags,
            "group_quota": if is_administrator { None } else { Some(known.groups_left) },
        });
        Ok(Told::new(lines, fields))
    })
}

fn membership(session: &Session, arguments: &Arguments) -> Outcome {
    let database = Database::of(session, arguments)?;
    let super_groups = arguments.has("supergroups");
    session.each(&arguments.texts("nameorid")?, |named| {
        let Who { name, id } = database.find(named)?;
        let listed = database.ask(named, &ListElements { id })?;
        let members = database.complete(named, listed)?;
        let title = match id {
            ..0 => format!("Members of {name} (id: {id}) are:"),
            _ => format!("Groups {name} (id: {id}) is a member of:"),
        };
        let mut text = lines(title, &members);
        let mut fields = json!({ "name": name, "id": id, "members": members });
        if super_groups && id < 0 {
            let listed = database.ask(named, &ListSuperGroups { id })?;
            let groups = database.complete(named, listed)?;
            text = format!("{text}\n{}", lines(format!("Groups {name} (id: {id}) is a member of:"), &groups));
            fields["groups"] = json!(groups);
        }
        Ok(Told::new(text, fields))
    })
}

fn list_owned(session: &Session, arguments: &Arguments) -> Outcome {
    let database = Database::of(session, arguments)?;
    session.each(&arguments.texts("nameorid")?, |named| {
        let who = if *named == "0" { Who { name: String::new(), id: 0 } } else { database.find(named)? };
        let mut groups = Vec::new();
        let mut from = 0;
        for _ in 0..PARTS_MAX {
            let Ids { ids, more } = database.ask(named, &ListOwned { id: who.id, from })?;
            groups.extend(database.names(&ids.0)?);
            // A server that tells 1 has no more than it tells, and more than it can.
            if more == 1 {
                session.warn(&format!("{named}: the server does not tell all groups"));
            }
            if more <= 1 {
                break;
            }
            from = more;
        }
        let title = match who.id {
            0 => "Orphaned groups are:".to_owned(),
            id => format!("Groups owned by {} (id: {id}) are:", who.name),
        };
        Ok(Told::new(lines(title, &groups), json!({ "name": who.name, "id": who.id, "groups": groups })))
    })
}

fn list_entries(session: &Session, arguments: &Arguments) -> Outcome {
    let database = Database::of(session, arguments)?;
    let (users, groups) = (arguments.has("users"), arguments.has("groups"));
    let kinds = match (users, groups) {
        (true, true) => LIST_USERS | LIST_GROUPS,
        (_, false) => LIST_USERS,
        (false, true) => LIST_GROUPS,
    };
    let mut all: Vec<Known> = Vec::new();
    let mut start = 0;
    for _ in 0..PARTS_MAX {
        let part = database.ask("all users and groups", &ListEntries { kinds, start })?;
        all.extend(part.known.0);
        if part.next < 0 || part.next == start {
            break;
        }
        start = part.next;
    }
    session.heading("Name                          ID  Owner Creator");
    session.each(&all, |known| {
        let (name, Known { id, owner, creator, .. }) = (text(&known.name), known);
        let fields = json!({ "name": name, "id": id, "owner": owner, "creator": creator });
        Ok(Told::new(entry_line(&name, known), fields))
    })
}

fn entry_line(name: &str, known: &Known) -> String {
    format!("{name:<25} {:>6} {:>6} {:>7} ", known.id, known.owner, known.creator)
}

impl<'s> Database<'s> {
    fn of(session: &'s Session, arguments: &Arguments) -> Outcome<Database<'s>> {
        Ok(Database { session, cell: session.chosen_cell(arguments.text("cell")?)? })
    }

    fn ask<C: Call>(&self, what: &str, question: &C) -> Outcome<C::Reply> {
        let cell: &CellName = &self.cell.name;
        self.session.answer(cell, self.session.client()?.database(cell, what, question))
    }

    /// Somebody by a name or a number; a name that is a number is a name first. The database has names in small letters, and
    /// leaves it to clients to ask for them so (`pr_NameToId` of OpenAFS's `ptuser.c`).
    fn find(&self, named: &str) -> Outcome<Who> {
        let unknown = || {
            // Scripts look for the first words, which are those of OpenAFS's `pts`.
            let words = format!("User or group doesn't exist: {named}");
            let sentence = format!("{words}: the cell {} has no user and no group of this name or id", self.cell.name);
            Failure::new(Exit::NotFound, sentence)
        };
        let name = named.to_ascii_lowercase();
        if let Some(principal) = Principal::new(name.as_bytes()) {
            let ids = self.ask(named, &NameToId { names: List(vec![principal]) })?.0;
            if let Some(id) = ids.first().filter(|id| **id != ANONYMOUS) {
                return Ok(Who { name, id: *id });
            }
        }
        let id: i32 = named.parse().map_err(|_| unknown())?;
        let name = self.names(&[id])?.pop().ok_or_else(unknown)?;
        // The number of somebody whom nobody knows is told as a name.
        if name == id.to_string() { Err(unknown()) } else { Ok(Who { name, id }) }
    }

    fn names(&self, ids: &[i32]) -> Outcome<Vec<String>> {
        let mut known: HashMap<i32, String> = HashMap::new();
        let mut unknown: Vec<i32> = ids.to_vec();
        unknown.sort_unstable();
        unknown.dedup();
        for part in unknown.chunks(NAMES_MAX) {
            let names = self.ask("names of users and groups", &IdToName { ids: List(part.to_vec()) })?.0;
            known.extend(part.iter().copied().zip(names.iter().map(text)));
        }
        Ok(ids.iter().map(|id| known.get(id).cloned().unwrap_or_else(|| id.to_string())).collect())
    }

    /// The names of those that a reply tells, which is told when it does not tell all.
    fn complete(&self, named: &str, Ids { ids, more }: Ids) -> Outcome<Vec<String>> {
        if more != 0 {
            self.session.warn(&format!("{named}: the server does not tell all members"));
        }
        self.names(&ids.0)
    }
}

fn lines(title: String, names: &[String]) -> String {
    std::iter::once(title).chain(names.iter().map(|name| format!("  {name}"))).collect::<Vec<_>>().join("\n")
}

fn text(name: &Principal) -> String {
    super::server_text(name.as_bytes())
}

/// Replies to one question in parts, so that a server that always has more comes to an end.
const PARTS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use weft_afs::wire::status::Spares;

    use super::*;

    #[test]
    fn entries_are_in_columns() {
        let known = Known {
            flags: 0,
            id: -204,
            owner: -204,
            creator: 32766,
            groups_left: 0,
            users_left: 0,
            count: 1,
            spares: Spares,
            name: Principal::new(b"system:administrators").expect("a name"),
        };
        let line = entry_line("system:administrators", &known);
        assert_eq!(line, "system:administrators       -204   -204   32766 ");
    }

    #[test]
    fn lists_have_a_title() {
        let names = ["a".to_owned(), "b".to_owned()];
        assert_eq!(lines("They:".to_owned(), &names), "They:\n  a\n  b");
        assert_eq!(lines("They:".to_owned(), &[]), "They:");
    }
}
