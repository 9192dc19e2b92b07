//! `fs`: files, volumes, access lists and mount points by their paths, and the cells.

mod access;
mod cache;
mod cells;
mod mounts;
mod servers;
mod volumes;

pub use servers::file_servers;

use super::arguments::{Command, Form, LeftOut, Parameter, Tool, may, needed};

/// The tool.
pub static TOOL: Tool = Tool {
    name: "fs",
    about: "Asks and changes what is in AFS, by its path in a mount",
    commands: COMMANDS,
    common: &[],
    left_out: LEFT_OUT,
};

const PATHS: Parameter = may("path", Form::Several, "dir/file path");
const HUMAN: Parameter = may("human", Form::Flag, "sizes with units");
const DIRS: Parameter = needed("dir", Form::Several, "directory");
const CLEAR: Parameter = may("clear", Form::Flag, "first take away all that is there");

const COMMANDS: &[Command] = &[
    Command {
        name: "checkservers",
        aliases: &[],
        about: "tell which servers do not answer",
        parameters: &[may("cell", Form::One, "cell to check"), may("all", Form::Flag, "check all cells")],
        run: servers::check,
    },
    Command {
        name: "checkvolumes",
        aliases: &["checkbackups"],
        about: "have mounts find out anew where volumes are",
        parameters: &[may("path", Form::Several, "paths in mounts; otherwise all mounts")],
        run: cache::check_volumes,
    },
    Command {
        name: "cleanacl",
        aliases: &[],
        about: "take entries without a name off access lists",
        parameters: &[PATHS],
        run: access::clean,
    },
    Command {
        name: "copyacl",
        aliases: &["ca"],
        about: "copy an access list",
        parameters: &[
            needed("fromdir", Form::One, "source directory"),
            needed("todir", Form::Several, "destination directory"),
            CLEAR,
        ],
        run: access::copy,
    },
    Command {
        name: "diskfree",
        aliases: &["df"],
        about: "tell how full partitions are",
        parameters: &[PATHS, HUMAN],
        run: volumes::disk_free,
    },
    Command {
        name: "examine",
        aliases: &["ex", "listvol", "lv"],
        about: "tell of a file's volume",
        parameters: &[PATHS],
        run: volumes::examine,
    },
    Command {
        name: "flush",
        aliases: &[],
        about: "drop files from the cache",
        parameters: &[PATHS],
        run: cache::flush,
    },
    Command {
        name: "flushvolume",
        aliases: &[],
        about: "drop volumes, and what is mounted in them, from the cache",
        parameters: &[PATHS],
        run: cache::flush_volume,
    },
    Command {
        name: "getcacheparms",
        aliases: &[],
        about: "tell how full the cache is",
        parameters: &[],
        run: cache::parameters,
    },
    Command {
        name: "getcalleraccess",
        aliases: &["gca"],
        about: "tell one's own rights",
        parameters: &[PATHS],
        run: access::of_caller,
    },
    Command {
        name: "getcrypt",
        aliases: &[],
        about: "tell how what is said is protected",
        parameters: &[],
        run: cache::level,
    },
    Command {
        name: "getfid",
        aliases: &[],
        about: "tell a file's fid",
        parameters: &[PATHS, may("literal", Form::Flag, "of a symbolic link itself")],
        run: volumes::fid,
    },
    Command {
        name: "listacl",
        aliases: &["la"],
        about: "tell the access list",
        parameters: &[PATHS, may("cmd", Form::Flag, "as `fs setacl` commands")],
        run: access::list,
    },
    Command {
        name: "listaliases",
        aliases: &[],
        about: "tell further names of cells",
        parameters: &[],
        run: cells::aliases,
    },
    Command {
        name: "listcells",
        aliases: &[],
        about: "tell the cells and their servers",
        parameters: &[may("numeric", Form::Flag, "addresses only")],
        run: cells::list,
    },
    Command {
        name: "listquota",
        aliases: &["lq"],
        about: "tell quotas of volumes",
        parameters: &[PATHS, HUMAN],
        run: volumes::list_quota,
    },
    Command {
        name: "lsmount",
        aliases: &[],
        about: "tell where mount points lead",
        parameters: &[DIRS],
        run: mounts::list,
    },
    Command {
        name: "mkmount",
        aliases: &[],
        about: "make a mount point",
        parameters: &[
            needed("dir", Form::One, "directory"),
            needed("vol", Form::One, "volume name"),
            may("cell", Form::One, "cell name"),
            may("rw", Form::Flag, "always to the read-write volume"),
            may("fast", Form::Flag, "do not look whether there is such a volume"),
        ],
        run: mounts::make,
    },
    Command {
        name: "newcell",
        aliases: &[],
        about: "tell how a cell is added",
        parameters: &[needed("name", Form::One, "cell name"), needed("servers", Form::Several, "primary servers")],
        run: cells::add,
    },
    Command {
        name: "quota",
        aliases: &[],
        about: "tell how much of the quota is used",
        parameters: &[PATHS],
        run: volumes::quota,
    },
    Command { name: "rmmount", aliases: &[], about: "remove mount points", parameters: &[DIRS], run: mounts::remove },
    Command {
        name: "setacl",
        aliases: &["sa"],
        about: "set the access list",
        parameters: &[
            DIRS,
            needed("acl", Form::Several, "access list entries"),
            CLEAR,
            may("negative", Form::Flag, "rights that are taken from somebody"),
        ],
        run: access::set,
    },
    Command {
        name: "setcachesize",
        aliases: &["cachesize"],
        about: "tell where the size of the cache is set",
        parameters: &[
            may("blocks", Form::One, "size in 1K byte blocks (0 => reset)"),
            may("reset", Form::Flag, "size as configured"),
        ],
        run: cache::set_size,
    },
    Command {
        name: "setcrypt",
        aliases: &[],
        about: "tell where that is set",
        parameters: &[needed("crypt", Form::One, "on or off")],
        run: cache::set_level,
    },
    Command {
        name: "setquota",
        aliases: &["sq"],
        about: "set the quota of a volume",
        parameters: &[
            may("path", Form::One, "dir/file path"),
            needed("max", Form::One, "max quota in kbytes or with K, M, G, T; 0 for none"),
        ],
        run: volumes::set_quota,
    },
    Command {
        name: "sysname",
        aliases: &[],
        about: "tell what @sys stands for",
        parameters: &[may("newsys", Form::Several, "new sysname")],
        run: cache::system_name,
    },
    Command {
        name: "whereis",
        aliases: &[],
        about: "tell on which servers a file is",
        parameters: &[PATHS],
        run: volumes::whereis,
    },
    Command { name: "whichcell", aliases: &[], about: "tell a file's cell", parameters: &[PATHS], run: cells::which },
    Command { name: "wscell", aliases: &[], about: "tell this machine's cell", parameters: &[], run: cells::own },
];

const LEFT_OUT: &[LeftOut] = &[
    LeftOut { names: &["apropos"], why: "`fs help` is one page" },
    LeftOut {
        names: &["bypassthreshold", "precache"],
        why: "what of a large file is fetched ahead follows its readers; `weft warm` fetches whole trees",
    },
    LeftOut {
        names: &["discon"],
        why: "`weft offline PATH` and `weft online PATH` take trees off the network and put them back",
    },
    LeftOut {
        names: &["exportafs", "nukenfscreds"],
        why: "there is no translator to NFS; a mount is exported as any other file system is",
    },
    LeftOut {
        names: &["flushall"],
        why: "`weft rm -w -r MOUNT` drops all of a mount's cache, and `fs flushvolume PATH` one volume",
    },
    LeftOut {
        names: &["flushmount"],
        why: "servers tell when a mount point changes; `fs checkvolumes` has all of them followed anew",
    },
    LeftOut {
        names: &["getcellstatus", "setcell"],
        why: "mounts keep set-uid bits from counting for everybody (mount option nosuid)",
    },
    LeftOut {
        names: &["getclientaddrs", "setclientaddrs", "setcbaddr"],
        why: "servers call back on the socket that they are called from, whatever the machine's addresses are",
    },
    LeftOut {
        names: &["getserverprefs", "setserverprefs", "gp", "sp"],
        why: "of several servers the one that answered quickest is asked first; `weft status` tells how cells are",
    },
    LeftOut {
        names: &["messages", "monitor", "mariner"],
        why: "the daemon writes a log beside its cache; `weft status` tells the latest troubles and `weft stats` figures",
    },
    LeftOut {
        names: &["newalias"],
        why: "write a line `CELL ALIAS` into CellAlias beside CellServDB, and then `weft upgrade MOUNT`",
    },
    LeftOut { names: &["rxstatpeer", "rxstatproc"], why: "`weft stats` has the figures" },
    LeftOut {
        names: &["setvol", "sv"],
        why: "`fs setquota` sets the quota; messages of volumes are the business of its administrators' `vos`",
    },
    LeftOut { names: &["storebehind", "sb"], why: "close(2) and fsync(2) return when the server has what was written" },
    LeftOut { names: &["uuid"], why: "a cache's UUID is made with it, and goes with it" },
];
