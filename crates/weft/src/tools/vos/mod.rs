//! `vos`: volumes and their servers, as the volume location database and the servers themselves have them. It only asks.

mod display;
mod entries;
mod partition;
mod servers;
mod statistics;
mod volumes;

use super::arguments::{Command, Form, LeftOut, Parameter, Tool, may, needed};

/// The tool.
pub static TOOL: Tool = Tool {
    name: "vos",
    about: "Tells of volumes and their servers; it changes nothing",
    commands: COMMANDS,
    common: &[
        Parameter { alias: "c", ..may("cell", Form::One, "cell name") },
        may("noauth", Form::Flag, "ask as anybody"),
        may("localauth", Form::Flag, "refused: with the servers' own key"),
        may("verbose", Form::Flag, "nothing more is told than without it"),
        may("encrypt", Form::Flag, "protect all that is said"),
        may("noresolve", Form::Flag, "addresses of servers, not names"),
        may("config", Form::One, "folder with CellServDB"),
    ],
    left_out: &[
        LeftOut {
            names: &[
                "addsite",
                "backup",
                "backupsys",
                "changeaddr",
                "changeloc",
                "clone",
                "convertROtoRW",
                "copy",
                "create",
                "delentry",
                "dump",
                "endtrans",
                "lock",
                "move",
                "offline",
                "online",
                "release",
                "remaddrs",
                "remove",
                "remsite",
                "rename",
                "restore",
                "setaddrs",
                "setfields",
                "shadow",
                "syncserv",
                "syncvldb",
                "unlock",
                "unlockvldb",
                "zap",
            ],
            why: "it only asks; whoever administers a cell has OpenAFS's `vos` on its servers",
        },
        LeftOut { names: &["listpart"], why: "`vos partinfo` lists partitions, with their room" },
        LeftOut { names: &["size"], why: "`vos examine` tells the size of a volume" },
    ],
};

const SERVER: Parameter = needed("server", Form::One, "machine name");
const PARTITION: Parameter = may("partition", Form::One, "partition name");
const EXTENDED: Parameter = may("extended", Form::Flag, "with what was counted");
const FORMAT: Parameter = may("format", Form::Flag, "a field per line");

const COMMANDS: &[Command] = &[
    Command {
        name: "examine",
        aliases: &["volinfo", "e"],
        about: "tell all of a volume",
        parameters: &[needed("id", Form::One, "volume name or ID"), EXTENDED, FORMAT],
        run: volumes::examine,
    },
    Command {
        name: "listaddrs",
        aliases: &[],
        about: "tell the addresses of file servers",
        parameters: &[
            may("uuid", Form::One, "uuid of server"),
            may("host", Form::One, "address of host"),
            may("printuuid", Form::Flag, "with their UUIDs"),
        ],
        run: servers::addresses,
    },
    Command {
        name: "listvldb",
        aliases: &[],
        about: "tell what the volume location database has",
        parameters: &[
            may("name", Form::One, "volume name or ID"),
            may("server", Form::One, "machine name"),
            PARTITION,
            may("locked", Form::Flag, "those that are locked"),
            may("quiet", Form::Flag, "without header and footer"),
            may("nosort", Form::Flag, "in the database's order"),
        ],
        run: entries::list,
    },
    Command {
        name: "listvol",
        aliases: &[],
        about: "tell the volumes of a server",
        parameters: &[
            SERVER,
            PARTITION,
            may("fast", Form::Flag, "numbers alone"),
            may("long", Form::Flag, "all fields"),
            may("quiet", Form::Flag, "without totals"),
            EXTENDED,
            FORMAT,
        ],
        run: volumes::list,
    },
    Command {
        name: "partinfo",
        aliases: &[],
        about: "tell how full the partitions of a server are",
        parameters: &[SERVER, PARTITION, may("summary", Form::Flag, "with a sum")],
        run: servers::partitions,
    },
    Command {
        name: "status",
        aliases: &[],
        about: "tell what a volume server is doing",
        parameters: &[SERVER],
        run: servers::status,
    },
];
