//! Users who are somebody else in a cell than before, or nobody: what their tokens brought is theirs no more. Servers have
//! promised to tell of changes to it, and not of that; so their promises are given up, and whoever asks for it next is asked
//! for at the server, as whoever that is by then. (OpenAFS's client forgets the rights of such a user in the same way.)

use std::sync::Weak;
use std::time::Duration;

use crate::afs::Shared;

/// Looks at the users' credential caches for as long as there is a tree.
pub(crate) async fn keep(tree: Weak<Shared>) {
    loop {
        tokio::time::sleep(PERIOD).await;
        let Some(shared) = tree.upgrade() else { return };
        for cell in shared.files.logins.turned().await {
            tracing::info!(%cell, "somebody with a token has logged out, or in as somebody else");
            let _ = shared.promises.end_in(&cell);
        }
    }
}

/// How often that is: each time one stat(2) for each user who has a token.
const PERIOD: Duration = Duration::from_secs(2);
