//! Attributes over the mount.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::time::SystemTime;

use rustix::fs::{
    AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags, getxattr, getxattr_query, listxattr,
    removexattr, setxattr, utimensat,
};
use rustix::io::Errno as E;

use crate::over_both;

#[test]
fn attributes_are_set() {
    over_both(|place| {
        let path = place.path("file");
        fs::write(&path, "some text").expect("a file");
        let told = || fs::metadata(&path).expect("there");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4750)).expect("set");
        assert_eq!(told().mode() & 0o7777, 0o4750);
        chown(&path, Some(7), Some(8)).expect("set");
        assert_eq!((told().uid(), told().gid()), (7, 8));
        assert_eq!(told().mode() & 0o7777, 0o750, "the set-id bits went with the owner");

        let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        let set = |last_access, last_modification| {
            let times = Timestamps { last_access, last_modification };
            utimensat(CWD, &path, &times, AtFlags::empty()).expect("set");
        };
        set(time(-3, 250_000_000), time(1 << 33, 999_999_999));
        assert_eq!((told().atime(), told().atime_nsec()), (-3, 250_000_000));
        assert_eq!((told().mtime(), told().mtime_nsec()), (1 << 33, 999_999_999));
        set(time(0, UTIME_NOW as _), time(0, UTIME_OMIT as _));
        assert_eq!(told().mtime(), 1 << 33);
        let age = SystemTime::now().duration_since(told().accessed().expect("told")).expect("not in the future");
        assert!(age.as_secs() < 60);

        let file = fs::File::options().write(true).open(&path).expect("opened");
        file.set_len(4).expect("set");
        assert_eq!(fs::read(&path).expect("read"), b"some");
        file.set_len(6).expect("set");
        assert_eq!(fs::read(&path).expect("read"), b"some\0\0");
    });
}

#[test]
fn extended_attributes_are_set_listed_and_taken_away() {
    over_both(|place| {
        let path = place.path("file");
        fs::write(&path, "").expect("a file");
        let any = XattrFlags::empty();
        setxattr(&path, "user.one", b"1", any).expect("set");
        setxattr(&path, "user.two", &[b'2'; 5000], XattrFlags::CREATE).expect("set");
        assert_eq!(setxattr(&path, "user.two", b"", XattrFlags::CREATE), Err(E::EXIST));
        assert_eq!(setxattr(&path, "user.three", b"", XattrFlags::REPLACE), Err(E::NODATA));
        let mut room = [0; 6000];
        assert_eq!(getxattr(&path, "user.two", room.as_mut_slice()), Ok(5000));
        assert_eq!(getxattr(&path, "user.two", &mut room[..10]), Err(E::RANGE));
        assert_eq!(getxattr_query(&path, "user.two"), Ok(5000));
        let length = listxattr(&path, room.as_mut_slice()).expect("listed");
        assert_eq!(&room[..length], b"user.one\0user.two\0");
        removexattr(&path, "user.one").expect("taken away");
        assert_eq!(removexattr(&path, "user.one"), Err(E::NODATA));
        assert_eq!(getxattr(&path, "user.one", room.as_mut_slice()), Err(E::NODATA));
        for other in ["security.other", "trusted.other"] {
            assert_eq!(setxattr(&path, other, b"1", any), Err(E::OPNOTSUPP), "{other}");
            assert_eq!(getxattr(&path, other, room.as_mut_slice()), Err(E::OPNOTSUPP), "{other}");
            assert_eq!(removexattr(&path, other), Err(E::OPNOTSUPP), "{other}");
        }
    });
}
