//! How TLS is begun: by whom a host is vouched for, and which certificate it is shown.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::{ClientConfig, RootCertStore};

use crate::ca_file::{CaFile, Stamp};
use crate::identity::Identity;
use crate::trust::Trust;

/// How TLS is begun with one certificate of ours, or with none.
pub(crate) struct TlsConfigs {
    usual: Arc<ClientConfig>,
    /// For ports that may speak plain HTTP; see [`LINE_BREAK_PROTOCOL`].
    probing: Arc<ClientConfig>,
    /// When the authorities were read, and the state of their file then.
    read: Instant,
    stamp: Option<Stamp>,
}

/// A place for them, from when they are first needed. Held while they are made.
#[derive(Default)]
pub(crate) struct TlsSlot(Mutex<Option<Arc<TlsConfigs>>>);

impl TlsSlot {
    /// Those that are there, or new ones; also when by `refused` nobody vouches for a host, and there may be other
    /// authorities since. Reads files.
    pub fn get(
        &self,
        ca_file: Option<&CaFile>,
        identity: Option<&Identity>,
        refused: Option<Arc<TlsConfigs>>,
    ) -> Arc<TlsConfigs> {
        let mut slot = self.0.lock();
        if let (Some(there), Some(refused)) = (&*slot, refused)
            && Arc::ptr_eq(there, &refused)
            && there.may_be_old(ca_file)
        {
            *slot = None;
        }
        slot.get_or_insert_with(|| Arc::new(TlsConfigs::load(ca_file, identity))).clone()
    }
}

impl TlsConfigs {
    /// For a port of which this is known.
    pub fn of(&self, probing: bool) -> Arc<ClientConfig> {
        if probing { self.probing.clone() } else { self.usual.clone() }
    }

    /// Whether other authorities may be trusted by now: the system does not tell when its own change.
    fn may_be_old(&self, ca_file: Option<&CaFile>) -> bool {
        self.read.elapsed() > AGAIN_AFTER || self.stamp != ca_file.and_then(CaFile::stamp)
    }

    fn load(ca_file: Option<&CaFile>, identity: Option<&Identity>) -> TlsConfigs {
        // Before it is read: what is written meanwhile is another state.
        let (read, stamp) = (Instant::now(), ca_file.and_then(CaFile::stamp));
        let system = rustls_native_certs::load_native_certs();
        for problem in &system.errors {
            tracing::warn!("a system certificate authority cannot be used: {problem}");
        }
        let mut trusted = system.certs;
        trusted.extend(ca_file.map(CaFile::now).unwrap_or_default());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("the ring provider has the default versions");
        let config = match Trust::new(trusted, provider) {
            Ok(trust) => config.dangerous().with_custom_certificate_verifier(Arc::new(trust)),
            // A machine that trusts nobody.
            Err(_) => config.with_root_certificates(RootCertStore::empty()),
        };
        let mut config = match identity {
            Some(identity) => config.with_client_cert_resolver(identity.resolver.clone()),
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let mut probing = config.clone();
        probing.alpn_protocols.push(LINE_BREAK_PROTOCOL.to_vec());
        TlsConfigs { usual: Arc::new(config), probing: Arc::new(probing), read, stamp }
    }
}

/// How long the system's authorities are not read again.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// An application protocol that nobody speaks. A plain HTTP server reads lines: without a line break in the TLS
/// greeting, and there may be none, it would wait for one for ever instead of telling us that it speaks no TLS.
const LINE_BREAK_PROTOCOL: &[u8] = b"\r\n\r\n";
