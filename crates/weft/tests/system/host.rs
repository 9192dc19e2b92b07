//! Machines that lack something, and ordinary users: each in a mount namespace of its own, where things can be taken away
//! that nobody else misses.

use crate::support::{Mount, Offered, Outcome, Program, Setup, find_program, is_root, without};

const NOBODY: u32 = 65534;
const PAGE: &str = "web/weft.example/index.html";

/// A mount that an ordinary user is about to make; root's own without `uid`.
fn prepare(uid: Option<u32>) -> Option<Mount> {
    if !is_root() {
        without("only root can have a mount namespace of its own and become another user");
        return None;
    }
    if find_program("fusermount3").is_none() {
        without("fusermount3 is missing; scripts/install-test-deps.sh installs it");
        return None;
    }
    let mount = Mount::prepare(Setup { uid, ..Default::default() })?;
    std::fs::create_dir(mount.beside("dev")).expect("made");
    Some(mount)
}

/// Runs a script in a mount namespace where /dev/fuse is open to everybody, as Debian has it, in the mount's folder.
/// `nobody` runs a program as an ordinary user; the mount point is `mnt`, and what is mounted there goes in the end.
fn alone(mount: &Mount, script: &str) -> Outcome {
    let script = format!(
        "set -e
        mount -t tmpfs -o dev,mode=755 none '{top}/dev'
        mknod -m 666 '{top}/dev/fuse' c 10 229
        mount --bind '{top}/dev/fuse' /dev/fuse
        cd '{top}'
        export HOME='{top}/home' XDG_RUNTIME_DIR='{top}/run' XDG_CACHE_HOME='{top}/home/cache'
        weft='{weft}'
        nobody() {{ setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups \"$@\"; }}
        trap 'umount -l mnt 2>/dev/null || true' EXIT
        {script}",
        top = mount.beside("").display(),
        weft = crate::support::weft_program().display(),
    );
    Program::new("unshare").args(["-m", "--propagation", "private", "sh", "-c", &script]).run()
}

/// Goal: what an ordinary user mounts through fusermount3 works over both transports, and over the device it outlives its
/// daemon: what was open is read on.
#[test]
fn an_ordinary_users_mount_works_over_both_transports_and_outlives_its_daemon() {
    let offered = Offered::now();
    for transport in ["classic", "io_uring"] {
        if transport == "io_uring" && offered.is_none() {
            continue;
        }
        let Some(mount) = prepare(Some(NOBODY)) else { return };
        let kill = match transport {
            "classic" => "kill -9 $before; head -c 100 <&3 >/dev/null; cmp - mnt/{PAGE} <mnt/{PAGE}; now=$(daemon)",
            _ => "now=another",
        };
        std::fs::write(
            mount.beside("script"),
            format!(
                r#"set -e
                daemon() {{ ./weft status --json mnt | tr ',{{' '\n' | sed -n 's/.*"daemon_pid":\([0-9]*\).*/\1/p'; }}
                ./weft mount -o transport={transport} mnt
                ./weft status --json mnt | grep -o '"transport":"[a-z_]*"'
                exec 3< mnt/{PAGE}
                head -c 10 <&3 >/dev/null
                before=$(daemon)
                {kill}
                test "$before" != "$now"
                grep -c '<html' mnt/{PAGE}
                ls mnt/web
                exec 3<&-
                ./weft umount mnt"#,
                kill = kill.replace("{PAGE}", PAGE)
            ),
        )
        .expect("written");
        let outcome = alone(&mount, "nobody sh script; ! mountpoint -q mnt");
        assert_eq!(outcome.code, Some(0), "{transport}: {outcome:?}");
        assert!(outcome.out.contains(&format!("\"transport\":\"{transport}\"")), "{outcome:?}");
        assert!(outcome.out.contains("weft.example"), "{outcome:?}");
    }
}

/// Goal: where locked memory does not suffice for rings, a mount that asks for them says what to raise, one that takes
/// what there is works, and `weft doctor` tells.
#[test]
fn an_ordinary_user_with_little_locked_memory_is_told_what_to_raise() {
    let Some(_offered) = Offered::now() else { return };
    let Some(mount) = prepare(Some(NOBODY)) else { return };
    let script = format!(
        "poor() {{ prlimit --memlock=0:0 setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups \"$@\"; }}
        ! poor ./weft mount -o transport=io_uring mnt 2>refused
        ! mountpoint -q mnt
        poor ./weft doctor | grep '^lesser *io_uring'
        poor ./weft mount -o transport=auto mnt
        poor grep -c '<html' mnt/{PAGE}
        poor ./weft umount mnt
        cat refused >&2"
    );
    let outcome = alone(&mount, &script);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for said in [&outcome.out, &outcome.err] {
        assert!(said.contains("LimitMEMLOCK"), "{outcome:?}");
    }
}

/// Goal: without the device, or with one behind which nothing is, a sentence says what to type.
#[test]
fn a_machine_without_the_device_is_told_what_to_do() {
    let Some(mount) = prepare(None) else { return };
    let missing = alone(
        &mount,
        "mkdir empty; mount -t tmpfs none empty; mknod -m 666 empty/null c 1 3; mount --bind empty /dev
        $weft doctor && exit 9
        $weft mount --cache cache mnt",
    );
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.err.contains("modprobe fuse") && missing.err.contains("--device /dev/fuse"), "{missing:?}");
    assert!(missing.out.contains("BAD     /dev/fuse"), "{missing:?}");

    let Some(mount) = prepare(None) else { return };
    let hollow = alone(
        &mount,
        "umount /dev/fuse; mknod -m 666 dev/hollow c 59 77; mount --bind dev/hollow /dev/fuse
        $weft mount --cache cache mnt",
    );
    assert_eq!(hollow.code, Some(1), "{hollow:?}");
    assert!(hollow.err.contains("modprobe fuse"), "{hollow:?}");
}

/// Goal: an ordinary user without fusermount3, or with one that has not root's rights, is told what to type.
#[test]
fn an_ordinary_user_without_fusermount_is_told_what_to_do() {
    let Some(mount) = prepare(Some(NOBODY)) else { return };
    let missing = alone(
        &mount,
        "mount --bind /dev/null \"$(command -v fusermount3)\"
        nobody ./weft doctor && exit 9
        nobody ./weft mount mnt",
    );
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.err.contains("apt install fuse3") && missing.out.contains("apt install fuse3"), "{missing:?}");

    let Some(mount) = prepare(Some(NOBODY)) else { return };
    let powerless = alone(
        &mount,
        "helper=$(command -v fusermount3); cp \"$helper\" powerless; chmod 755 powerless
        mount --bind powerless \"$helper\"
        nobody ./weft doctor && exit 9
        nobody ./weft mount mnt",
    );
    assert_eq!(powerless.code, Some(1), "{powerless:?}");
    assert!(powerless.err.contains("not permitted") && powerless.err.contains("weft doctor"), "{powerless:?}");
    assert!(powerless.out.contains("chmod u+s"), "{powerless:?}");
}

/// Goal: an ordinary user writes on in a file that was made without the right to write it, or lost that while it was open: git
/// commits, tar brings files that may only be read, and the modes in the directory are those that were asked for.
#[test]
fn an_ordinary_user_writes_what_was_open_before_its_mode_forbade_it() {
    let Some(mount) = prepare(Some(NOBODY)) else { return };
    let script = "mkdir source store; chown $USERID source store
        nobody ./weft mount --cache store dir:$PWD/source mnt
        cat >work <<'END'
        set -e; cd mnt; umask 022
        git init -q work; cd work; echo words >file; git add file
        git -c user.name=a -c user.email=a@weft.example commit -q -m first; git fsck --strict; cd ..
        mkdir taken; (cd taken; echo read me >only_read; echo run me >run; chmod 444 only_read; chmod 555 run)
        tar -cf - taken | (mkdir there; cd there; tar -xpf -)
        cp -p taken/only_read copied; install -m 400 taken/run installed
        python3 -c \"import os
fd = os.open('shut', os.O_CREAT | os.O_RDWR, 0o000)
os.write(fd, b'one ')
os.fsync(fd)
os.write(fd, b'two')
os.close(fd)
fd = os.open('later', os.O_CREAT | os.O_WRONLY, 0o644)
os.write(fd, b'before ')
os.fchmod(fd, 0o444)
os.write(fd, b'after')
os.close(fd)\"
        cd ..; ./weft unsent mnt
END
        nobody sh work
        cd source; git -C work -c safe.directory='*' fsck --strict
        stat -c '%n %a' there/taken/* copied installed shut later
        cat there/taken/* copied installed shut later; cd ..
        nobody ./weft umount mnt";
    let outcome = alone(&mount, &script.replace("$USERID", &NOBODY.to_string()));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let told = "all that was written is at its source\nthere/taken/only_read 444\nthere/taken/run 555\ncopied 444\n\
        installed 400\nshut 0\nlater 444\nread me\nrun me\nread me\nrun me\none twobefore after";
    assert!(outcome.out.contains(told), "{outcome:?}");
}
