//! Cells: which one a file is in, and which there are.

use std::path::Path;

use serde_json::json;
use weft_afs::cell::Cell;

use crate::exit::{Exit, Failure, Outcome};
use crate::tools::arguments::Arguments;
use crate::tools::session::{Session, Told};

/// `fs whichcell`.
pub fn which(session: &Session, arguments: &Arguments) -> Outcome {
    session.each(&arguments.paths("path"), |path| {
        let place = session.place(path)?;
        let text = format!("File {} lives in cell '{}'", path.display(), place.cell);
        Ok(Told::new(text, json!({ "path": path, "cell": place.cell.as_str() })))
    })
}

/// `fs wscell`.
pub fn own(session: &Session, _: &Arguments) -> Outcome {
    let Some(cell) = session.this_cell()? else {
        let file = session.settings().config_dir().join("ThisCell");
        let sentence = format!("this machine has no cell of its own: {} would name it", file.display());
        return Err(Failure::new(Exit::NotFound, sentence));
    };
    let text = format!("This workstation belongs to cell '{cell}'");
    session.tell_all(Told::new(text, json!({ "cell": cell.as_str() })));
    Ok(())
}

/// `fs listcells`.
pub fn list(session: &Session, _: &Arguments) -> Outcome {
    session.each(session.cells(), |Cell { name, servers, comment, .. }| {
        let hosts: Vec<String> = servers.iter().map(|server| session.hosts.name(server.address)).collect();
        let addresses: Vec<String> = servers.iter().map(|server| server.address.to_string()).collect();
        let listed: String = hosts.iter().map(|host| format!(" {host}")).collect();
        let fields = json!({ "cell": name.as_str(), "hosts": hosts, "addresses": addresses, "comment": comment });
        Ok(Told::new(format!("Cell {name} on hosts{listed}."), fields))
    })
}

/// `fs listaliases`.
pub fn aliases(session: &Session, _: &Arguments) -> Outcome {
    let all: Vec<_> = session.aliases().collect();
    session.each(&all, |(alias, cell)| {
        let fields = json!({ "alias": alias.as_str(), "cell": cell.as_str() });
        Ok(Told::new(format!("Alias {alias} for cell {cell}"), fields))
    })
}

/// `fs newcell`: cells are the configuration's; a mount takes them from there.
pub fn add(session: &Session, arguments: &Arguments) -> Outcome {
    let file = session.settings().config_dir().join("CellServDB");
    Err(Failure::usage(how_to_add(&file, arguments.needed("name")?, &arguments.texts("servers")?)))
}

fn how_to_add(file: &Path, name: &str, servers: &[&str]) -> String {
    let lines: String = servers.iter().map(|server| format!(" and a line `ADDRESS #{server}`")).collect();
    format!(
        "nothing was changed: a mount knows the cells of {}; write a line `>{name} #` there{lines}, and then \
        `weft upgrade MOUNT` has the mount read it",
        file.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_done_is_not_pretended() {
        let said = how_to_add(Path::new("/x/CellServDB"), "example.org", &["db1", "db2"]);
        assert!(said.starts_with("nothing was changed") && said.contains(">example.org") && said.contains("#db2"));
    }
}
