# Two commands do all the set-up on a fresh Debian or Ubuntu: `make run` and `make test`.

PREFIX ?= /usr/local
# mount(8) looks for its helpers in /sbin alone.
SBINDIR ?= /sbin
DESTDIR ?=
export PATH := $(HOME)/.cargo/bin:$(PATH)

FUZZ_SECONDS ?= 60
HISTORIES ?= 100-200
AFS_TOOLS := fs vos pts
# Where cargo puts what it builds.
BUILT := $(or $(CARGO_TARGET_DIR),target)/release

.PHONY: help run build test faults fuzz histories check bench bench-quick bench-store bench-afs afs-cell install uninstall

help:
	@echo "make run      install what is missing, build, mount at ~/weft, say what to try"
	@echo "make test     install what the tests need, run all tests"
	@echo "make faults   what a user sees of a server that lies, beside rclone and httpdirfs: docs/faults.md"
	@echo "make fuzz     wrong requests of the kernel for FUZZ_SECONDS ($(FUZZ_SECONDS))"
	@echo "make histories   what chance does to trees that are used on several ways, by the seeds HISTORIES ($(HISTORIES))"
	@echo "make check    formatting, lints, documentation, dependency directions, licences"
	@echo "make bench    measure against curl, rclone and httpdirfs, write docs/figures.md"
	@echo "make bench-quick   the same, one round, printed only"
	@echo "make bench-store   measure the store against ext4, xfs, btrfs and foyer, and nginx on ext4, write docs/figures-store.md (as root)"
	@echo "make bench-afs     measure on a real AFS cell against afsd.fuse and ext4, write docs/figures-afs.md (as root)"
	@echo "make afs-cell   bring up a real AFS cell to try things with (as root)"
	@echo "make install  install into PREFIX ($(PREFIX)); build first"

run:
	@scripts/install-build-deps.sh
	@scripts/run.sh

build:
	@scripts/install-build-deps.sh
	cargo build --release --bin weft

test:
	@scripts/install-build-deps.sh
	@scripts/install-test-deps.sh
	@scripts/install-posix-tests.sh
	cargo test --workspace --all-features

faults:
	@scripts/install-build-deps.sh
	@scripts/install-rivals.sh
	cargo test --package weft --test faults -- --nocapture --ignored

fuzz:
	@scripts/install-build-deps.sh
	WEFT_FUZZ_SECONDS=$(FUZZ_SECONDS) cargo test --package weft-fusedev --lib -- --nocapture many_things_wrong

histories:
	@scripts/install-build-deps.sh
	@scripts/install-test-deps.sh
	WEFT_HISTORIES=$(HISTORIES) cargo test --package weft --all-features --test system -- --nocapture histories

# The rooms are looked at with the features that `make test` builds with: with others all would be compiled twice.
check:
	@scripts/install-build-deps.sh
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps --document-private-items
	cargo test --workspace --all-features --test rooms

bench:
	@scripts/install-build-deps.sh
	@scripts/bench.sh

bench-quick:
	@scripts/install-build-deps.sh
	@scripts/bench.sh --quick

bench-store:
	@scripts/install-build-deps.sh
	@scripts/bench-store.sh

bench-afs:
	@scripts/install-build-deps.sh
	@scripts/bench-afs.sh

afs-cell:
	@scripts/install-afs-server.sh
	@scripts/afs-cell.sh up target/afs-cell

install:
	@test -x $(BUILT)/weft || { echo "build first: make build" >&2; exit 1; }
	install -D -m 755 $(BUILT)/weft "$(DESTDIR)$(PREFIX)/bin/weft"
	ln -sf weft "$(DESTDIR)$(PREFIX)/bin/lsw"
	ln -sf weft "$(DESTDIR)$(PREFIX)/bin/rmw"
	@# The tools of AFS have names that OpenAFS's own may have here: then those stay.
	@for tool in $(AFS_TOOLS); do \
		if [ -e /usr/bin/$$tool ] || [ -e /usr/sbin/$$tool ]; then \
			echo "$$tool is here already: ours is weft $$tool"; \
		else ln -sfv weft "$(DESTDIR)$(PREFIX)/bin/$$tool"; fi; \
	done
	install -d "$(DESTDIR)$(SBINDIR)"
	ln -sf "$(PREFIX)/bin/weft" "$(DESTDIR)$(SBINDIR)/mount.weft"
	ln -sf "$(PREFIX)/bin/weft" "$(DESTDIR)$(SBINDIR)/mount.fuse.weft"
	install -d "$(DESTDIR)$(PREFIX)/share/man/man1"
	$(BUILT)/weft man "$(DESTDIR)$(PREFIX)/share/man/man1"
	install -d "$(DESTDIR)$(PREFIX)/share/bash-completion/completions"
	$(BUILT)/weft completions bash > "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/weft"
	install -d "$(DESTDIR)$(PREFIX)/share/zsh/site-functions"
	$(BUILT)/weft completions zsh > "$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_weft"
	install -D -m 644 packaging/weft.service "$(DESTDIR)$(PREFIX)/lib/systemd/system/weft.service"
	install -D -m 644 packaging/weft-user.service "$(DESTDIR)$(PREFIX)/lib/systemd/user/weft.service"

uninstall:
	rm -f "$(DESTDIR)$(PREFIX)/bin/weft" "$(DESTDIR)$(PREFIX)/bin/lsw" "$(DESTDIR)$(PREFIX)/bin/rmw"
	@for tool in $(AFS_TOOLS); do \
		if [ "$$(readlink "$(DESTDIR)$(PREFIX)/bin/$$tool")" = weft ]; then rm -fv "$(DESTDIR)$(PREFIX)/bin/$$tool"; fi; \
	done
	rm -f "$(DESTDIR)$(SBINDIR)/mount.weft" "$(DESTDIR)$(SBINDIR)/mount.fuse.weft"
	rm -f "$(DESTDIR)$(PREFIX)"/share/man/man1/weft.1 "$(DESTDIR)$(PREFIX)"/share/man/man1/weft-*.1
	rm -f "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/weft"
	rm -f "$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_weft"
	rm -f "$(DESTDIR)$(PREFIX)/lib/systemd/system/weft.service" "$(DESTDIR)$(PREFIX)/lib/systemd/user/weft.service"
