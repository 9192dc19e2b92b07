//! Real programs that write in a mount, and what its source has then.

use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

use crate::support::{Pair, find_program, same_trees, small_tree, without};

/// Programs that must be there; otherwise a line that says so.
fn has(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|name| find_program(name).is_none());
    if let Some(name) = missing {
        without(&format!("{name} is missing; scripts/install-test-deps.sh installs it"));
    }
    missing.is_none()
}

/// A tree with some of everything outside of the mount, as `$beside/tree`.
fn some_of_everything(pair: &Pair) {
    small_tree(&pair.mount.beside("tree"), true);
    pair.script(
        "cd $beside/tree
        ln -s large.bin link; ln -s /nowhere dangling; ln -s . here
        ln f0/0.txt f1/again; ln f0/0.txt once_more
        mkfifo pipe
        chmod 0600 f0/3.txt; chmod 0755 f0/6.txt; chmod 04711 f0/9.txt; chmod 0555 f1; chmod 01777 f2
        truncate -s 3000000 sparse; printf x | dd of=sparse bs=1 seek=2000000 conv=notrunc status=none
        touch -d '1999-12-31 23:59:59.123456789' f2/2.txt f2
        touch -h -d '2001-02-03 04:05:06.789' link",
    );
}

/// Goal: cp -a gives the same tree, into the mount, within it and out of it.
#[test]
fn cp_copies_a_tree() {
    let Some(pair) = Pair::new() else { return };
    some_of_everything(&pair);
    pair.script("cp -a $beside/tree copy");
    same_trees(&pair.mount.beside("tree"), &pair.at("copy"));
    same_trees(&pair.mount.beside("tree"), &pair.there("copy"));
    pair.script("cp -a copy again; mv again moved; cp -a moved $beside/out; rm -r copy");
    same_trees(&pair.mount.beside("tree"), &pair.there("moved"));
    same_trees(&pair.mount.beside("tree"), &pair.mount.beside("out"));
    pair.agree();
    pair.mount.remount();
    pair.agree();
    pair.script("rm -rf moved; test -z \"$(ls -A . $source | grep -v :)\"");
}

/// Goal: tar unpacks the same tree, and packs it from the mount.
#[test]
fn tar_unpacks_a_tree() {
    let Some(pair) = Pair::new() else { return };
    some_of_everything(&pair);
    pair.script("tar --format=posix -C $beside -cf $beside/t.tar tree; tar -xpf $beside/t.tar");
    same_trees(&pair.mount.beside("tree"), &pair.there("tree"));
    pair.script(
        "tar --format=posix -cf $beside/again.tar tree; mkdir $beside/out; tar -C $beside/out -xpf $beside/again.tar",
    );
    same_trees(&pair.mount.beside("tree"), &pair.mount.beside("out/tree"));
    pair.agree();
}

/// Goal: rsync has nothing to do the second time, neither into the mount nor, after it, into the source; and it sends
/// what has changed by piece.
#[test]
fn rsync_has_nothing_to_do_the_second_time() {
    if !has(&["rsync"]) {
        return;
    }
    let Some(pair) = Pair::new() else { return };
    some_of_everything(&pair);
    pair.script("rsync --modify-window=-1 -aHS $beside/tree/ copy/");
    same_trees(&pair.mount.beside("tree"), &pair.there("copy"));
    let second = pair.script("rsync --modify-window=-1 -aHSi $beside/tree/ copy/; rsync --modify-window=-1 -aHSic $beside/tree/ $source/copy/");
    assert_eq!(second, "", "nothing is different");
    pair.script(
        "printf changed | dd of=$beside/tree/large.bin bs=1 seek=700000 conv=notrunc status=none
        rm $beside/tree/f2/5.txt; mkdir $beside/tree/fresh; echo new > $beside/tree/fresh/new
        rsync --modify-window=-1 -aHS --inplace --no-whole-file --delete $beside/tree/ copy/",
    );
    same_trees(&pair.mount.beside("tree"), &pair.there("copy"));
    pair.agree();
}

/// Goal: a repository lives in the mount, is sound there and at the source, and can be cloned and packed.
#[test]
fn git_keeps_a_repository() {
    if !has(&["git"]) {
        return;
    }
    let Some(pair) = Pair::new() else { return };
    some_of_everything(&pair);
    pair.script(
        "export GIT_CONFIG_GLOBAL=$beside/gitconfig GIT_CONFIG_NOSYSTEM=1
        git config --global user.email a@weft.example; git config --global user.name A
        git config --global init.defaultBranch main; git config --global safe.directory '*'
        git init -q repo; cd repo
        cp -a $beside/tree/f0 $beside/tree/f1 $beside/tree/large.bin .; chmod -R u+w .
        git add -A; git commit -qm first
        for nth in 1 2 3 4 5; do echo $nth >> f0/3.txt; git mv f0/$((nth * 12)).txt moved-$nth || true; git commit -qam $nth; done
        git checkout -qb side HEAD~2; echo side > side; git add side; git commit -qm side
        git checkout -q main; git merge -q -m merged side
        test $(git log --oneline | wc -l) = 8
        git gc -q --prune=now; git fsck --strict --full
        test -z \"$(git status --porcelain)\"
        git -C $source/repo fsck --strict --full
        test -z \"$(git -C $source/repo status --porcelain)\"
        cd ..; git clone -q repo clone; git clone -q --no-hardlinks repo other
        git -C clone fsck --strict; diff -r --exclude .git repo clone; diff -r --exclude .git $source/repo $source/other",
    );
    pair.agree();
}

/// Goal: a database is sound in each of its modes, with two programs that write it, one of them at the source's side
/// afterwards.
#[test]
fn sqlite_keeps_a_database() {
    if !has(&["sqlite3"]) {
        return;
    }
    let Some(pair) = Pair::new() else { return };
    for mode in ["delete", "truncate", "persist", "wal"] {
        let said = pair.script(&format!(
            "db={mode}.db
            sqlite3 $db 'pragma journal_mode={mode}; create table t(writer, nth, text)' >/dev/null
            insert() {{
                for nth in $(seq 30); do
                    sqlite3 -cmd '.timeout 60000' $db \"insert into t values($1, $nth, hex(randomblob(3000)))\"
                done
            }}
            insert 1 & first=$!
            insert 2 & second=$!
            wait $first; wait $second
            sqlite3 $db 'begin; insert into t select 3, nth, text from t; rollback'
            sqlite3 $db 'begin; delete from t where nth > 20; update t set text = upper(text); commit; vacuum'
            sqlite3 $db 'pragma integrity_check; select count(*), sum(length(text)) from t'
            sqlite3 $source/$db 'pragma integrity_check; select count(*), sum(length(text)) from t'"
        ));
        assert_eq!(said, "ok\n40|240000\nok\n40|240000\n", "{mode}");
    }
    pair.agree();
}

/// Goal: room, holes and ends that programs set are the source's too.
#[test]
fn room_and_holes_are_made() {
    let Some(pair) = Pair::new() else { return };
    pair.script(
        "fallocate -l 300000 grown; test $(stat -c %s grown) = 300000; test $(stat -c %s $source/grown) = 300000
        cmp -n 300000 grown /dev/zero
        yes abcdefg | head -c 400000 > file || true
        cp file $beside/expected
        fallocate -p -o 100000 -l 50000 file; fallocate -n -l 1000000 file
        dd if=/dev/zero of=$beside/expected bs=1000 seek=100 count=50 conv=notrunc status=none
        cmp file $beside/expected; cmp $source/file $beside/expected
        fallocate -z -o 390000 -l 20000 file
        truncate -s 390000 $beside/expected; truncate -s 410000 $beside/expected
        cmp file $beside/expected; cmp $source/file $beside/expected
        truncate -s 5 file; truncate -s 4096 file; truncate -s 5 $beside/expected; truncate -s 4096 $beside/expected
        cmp file $beside/expected; cmp $source/file $beside/expected",
    );
    let df = |folder: &str| pair.script(&format!("df --output=size {folder} | tail -n 1"));
    assert_eq!(df("."), df("$source"), "the room is the source's");
    pair.agree();
}

/// Goal: what is punched here takes no room in the directory, and what is written as zeros does.
#[test]
fn holes_that_are_made_take_no_room() {
    let Some(pair) = Pair::new() else { return };
    let room =
        |name: &str| std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(pair.there(name)).expect("there")) * 512;
    pair.script(
        "yes abcdefg | head -c 20000000 > dense || true
        fallocate -p -o 5000000 -l 10000000 dense
        truncate -s 1G empty; fallocate -p -o 0 -l 1G empty
        truncate -s 100M $beside/sparse; printf x | dd of=$beside/sparse bs=1 seek=50000000 conv=notrunc status=none
        cp --sparse=always $beside/sparse sparse
        dd if=/dev/zero of=zeros bs=1M count=4 status=none
        cmp $source/sparse $beside/sparse; cmp sparse $beside/sparse; cmp -n 4194304 $source/zeros /dev/zero
        yes abcdefg | head -c 20000000 > $beside/expected || true
        dd if=/dev/zero of=$beside/expected bs=1M seek=5000000 count=10000000 oflag=seek_bytes iflag=count_bytes \
            conv=notrunc status=none
        cmp dense $beside/expected; cmp $source/dense $beside/expected",
    );
    let (dense, empty, sparse, zeros) = (room("dense"), room("empty"), room("sparse"), room("zeros"));
    assert!(dense < 10_200_000, "{dense}");
    assert!(empty < 100_000 && sparse < 2_000_000, "{empty} {sparse}");
    assert!(zeros >= 4 << 20, "{zeros}");
}

/// Goal: extended attributes and what is no file are the source's too.
#[test]
fn attributes_and_special_files_are_made() {
    use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
    let Some(pair) = Pair::new() else { return };
    pair.script("echo text > file; mkfifo pipe; mkdir folder");
    if crate::support::is_root() {
        pair.script("mknod zero c 1 5; mknod block b 7 200; test $(stat -c %t,%T $source/block) = 7,c8");
    }
    for name in ["file", "folder"] {
        let value = |path: &std::path::Path, key: &str| {
            let mut bytes = vec![0; 100];
            let length = getxattr(path, key, &mut bytes[..])?;
            bytes.truncate(length);
            Ok::<_, rustix::io::Errno>(bytes)
        };
        setxattr(pair.at(name), "user.one", b"1", XattrFlags::empty()).expect("set");
        setxattr(pair.at(name), "user.two", b"", XattrFlags::CREATE).expect("set");
        setxattr(pair.at(name), "user.one", b"uno", XattrFlags::REPLACE).expect("set");
        let again = setxattr(pair.at(name), "user.two", b"2", XattrFlags::CREATE);
        assert_eq!(again, Err(rustix::io::Errno::EXIST));
        for path in [pair.at(name), pair.there(name)] {
            assert_eq!(value(&path, "user.one"), Ok(b"uno".to_vec()));
            assert_eq!(value(&path, "user.two"), Ok(Vec::new()));
        }
        removexattr(pair.at(name), "user.two").expect("removed");
        for path in [pair.at(name), pair.there(name)] {
            assert_eq!(value(&path, "user.two"), Err(rustix::io::Errno::NODATA));
            let mut names = [0; 1000];
            let length = listxattr(&path, &mut names[..]).expect("listed");
            let names = String::from_utf8_lossy(&names[..length]).into_owned();
            assert!(names.contains("user.one\0") && !names.contains("user.two"), "{names}");
        }
    }
    pair.script("(echo through >pipe) & test \"$(cat pipe)\" = through; wait");
    pair.agree();
}

/// Goal: who sets attributes of a long file right after its last close does not wait until all of it has been summed up.
/// Method: 4 GiB of a hole, of which that takes seconds; what was written is still a draft when the attributes are set.
#[test]
fn attributes_are_set_while_a_long_file_is_put_away() {
    let Some(pair) = Pair::new() else { return };
    let (file, drafts) = (pair.at("long"), pair.mount.cache().join("dirty"));
    let written = File::create(&file).expect("made");
    written.write_all_at(b"begins", 0).expect("written");
    written.set_len(u64::from(u32::MAX)).expect("made longer");
    drop(written);
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("set");
    let kept = std::fs::read_dir(&drafts)
        .expect("a folder")
        .map(|kept| std::fs::read(kept.expect("read").path()).expect("read"));
    let mut kept = kept;
    assert!(kept.any(|kept| kept == b"begins"), "it is put away already");
    assert_eq!(std::fs::metadata(pair.there("long")).expect("there").mode() & 0o777, 0o600);
    // Nobody sums up what is gone.
    std::fs::remove_file(&file).expect("removed");
}
