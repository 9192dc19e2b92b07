//! One question on its way to the answer: where redirects lead, again when a server has had its pause, or wants another login.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header::HeaderMap;
use url::Url;
use weft_remote::{Audience, Call, Purpose, RemoteError, Result};

use crate::client::Client;
use crate::exchange::{GetError, Question, Reply};
use crate::flow::{DRAIN_TIME_MAX, Flow};
use crate::headers::{is_of_s3, retry_after};
use crate::host::{Host, Scheme};
use crate::id::Place;
use crate::landing::Landing;
use crate::pass::Pass;
use crate::patience::Patience;
use crate::redirect::{check_hop, is_slashed, redirect_target, target_of};
use crate::refusal;
use crate::target::Target;

/// What one hop gave.
pub(crate) struct Hop {
    pub scheme: Scheme,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Flow,
    pub unplaced: bool,
    pub host: Arc<Host>,
}

/// When a question is put once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    AtOnce,
    /// As long as the server wants to be left alone.
    AfterPause,
}

/// The way of one question.
pub(crate) struct Hops<'a> {
    client: &'a Arc<Client>,
    call: &'a Call,
    place: &'a Place,
    landing: Option<&'a Landing>,
    /// The host of the place.
    first: Arc<Host>,
    pass: Option<Pass>,
    /// Whether the login was another one already.
    renewed: bool,
    target: Target,
    /// The URL that was asked for first.
    asked: Option<String>,
    redirects: Vec<String>,
    /// Whether one led to the same with a slash.
    slashed: bool,
    patience: Patience,
    /// All hops together wait no longer than one for bodies that nobody wants.
    drain_time: Duration,
}

impl<'a> Hops<'a> {
    /// Begins at a place, or as if that had just redirected to where a version came from.
    ///
    /// # Errors
    /// When no such URL can be asked for, or there is no login where there should be one.
    pub async fn begin(
        client: &'a Arc<Client>,
        call: &'a Call,
        place: &'a Place,
        landing: Option<&'a Landing>,
    ) -> std::result::Result<Hops<'a>, GetError> {
        let mut target = Target::of(place)?;
        let builtin = client.options.builtin.contains_key(&target.authority.text());
        let pass = match builtin {
            true => None,
            false => client.options.credentials.pass(&call.caller, &target.authority).await?,
        };
        let first = client.host(&target.authority);
        if first.takes_for_key(&place.path) {
            target.spell_key();
        }
        let mut hops = Hops {
            client,
            call,
            place,
            landing,
            first,
            pass,
            renewed: false,
            target,
            asked: None,
            redirects: Vec::new(),
            slashed: false,
            patience: Patience::default(),
            drain_time: DRAIN_TIME_MAX,
        };
        if let Some(landing) = landing {
            hops.land(landing)?;
        }
        Ok(hops)
    }

    fn land(&mut self, landing: &Landing) -> Result<()> {
        self.redirects.clone_from(&landing.redirects);
        let redirects_max = self.client.options.redirects_max;
        check_hop(&self.first, &landing.asked, &landing.url, &self.redirects, redirects_max)?;
        if let (Some(pass), Some(begun)) = (self.pass.as_mut(), Target::of_url(&landing.asked)) {
            begun.scheme.into_iter().for_each(|scheme| pass.begin(scheme));
        }
        self.target = target_of(&landing.asked, &landing.url)?;
        self.asked = Some(landing.asked.to_string());
        Ok(())
    }

    /// Asks until there is an answer that sends nobody further.
    ///
    /// # Errors
    /// As of [`Client::get`].
    pub async fn answer(mut self, question: &Question<'_>) -> std::result::Result<Reply, GetError> {
        loop {
            let mut hop = self.ask(question).await?;
            let url = self.target.url(hop.scheme);
            let url = Url::parse(&url).map_err(|e| RemoteError::Failed { detail: format!("{url}: {e}") })?;
            if let Some(again) = self.again(&mut hop, &url).await? {
                hop.body.drain().await;
                if again == Again::AfterPause {
                    tokio::time::sleep(self.pause_as_told(&url, hop.status, &hop.headers)?).await;
                }
                continue;
            }
            let Some(next) = redirect_target(&url, hop.status, &hop.headers) else {
                return Ok(self.reply(hop, url));
            };
            self.follow(hop, &url, &next?).await?;
        }
    }

    async fn ask(&mut self, question: &Question<'_>) -> std::result::Result<Hop, GetError> {
        let visited = self.redirects.is_empty();
        let asked = self.client.send(self.call, &self.target, question, self.pass.as_mut(), visited).await;
        asked.map_err(|error| match error {
            // Only the host the user named can be absent; one that a redirect names is a fault of the source.
            GetError::NoSuchHost(detail) if !visited => RemoteError::Unreachable { detail }.into(),
            other => other,
        })
    }

    /// Whether, and when, the same is asked for once more, maybe in other words.
    async fn again(&mut self, hop: &mut Hop, url: &Url) -> Result<Option<Again>> {
        if self.redirects.is_empty() && is_of_s3(&hop.headers) {
            hop.host.saw_s3();
            if self.target.spell_key() {
                // It may have given what has another key.
                return Ok(Some(Again::AtOnce));
            }
        }
        self.asked.get_or_insert_with(|| url.to_string());
        let status = hop.status;
        // A method that is not implemented (RFC 9110 section 15.6.2) is no trouble of the host's.
        let has_failed = status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED;
        let not_now = status == StatusCode::TOO_MANY_REQUESTS || has_failed;
        hop.host.judged(not_now.then(|| format!("{url}: {status}")));
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            return Ok(Some(Again::AfterPause));
        }
        if status == StatusCode::BAD_REQUEST
            && hop.scheme == Scheme::Https
            && let Some(why) = refusal::of_certificate(&mut hop.body).await
        {
            return Err(RemoteError::Denied { detail: format!("{url}: {why}") });
        }
        if status == StatusCode::UNAUTHORIZED {
            let renewed = self.has_another_login(status, url).await?;
            return Ok(renewed.then_some(Again::AtOnce));
        }
        if let Some(pass) = &self.pass {
            pass.worked();
        }
        Ok(None)
    }

    /// As long as Retry-After says, or as a server's silence on that deserves, if that fits.
    fn pause_as_told(&mut self, url: &Url, status: StatusCode, headers: &HeaderMap) -> Result<Duration> {
        let told = retry_after(headers);
        let pause = match self.call.purpose {
            Purpose::Use | Purpose::Anew => self.patience.pause(told, self.call.remaining()),
            Purpose::Ahead => None,
        };
        pause.ok_or_else(|| RemoteError::Busy { detail: format!("{url}: {status}"), retry_after: told })
    }

    /// Whether there is another login than the one that was refused.
    async fn has_another_login(&mut self, status: StatusCode, url: &Url) -> Result<bool> {
        let denied = |why: String| RemoteError::Denied { detail: format!("{url}: {status}, and {why}") };
        if let Some(pass) = self.pass.as_mut().filter(|_| !self.renewed) {
            self.renewed = pass.renew().await.map_err(denied)?;
            return Ok(self.renewed);
        }
        Ok(false)
    }

    async fn follow(&mut self, hop: Hop, url: &Url, next: &Url) -> Result<()> {
        self.redirects.push(next.to_string());
        check_hop(&hop.host, url, next, &self.redirects, self.client.options.redirects_max)?;
        let since = Instant::now();
        hop.body.drain_within(self.drain_time).await;
        self.drain_time = self.drain_time.saturating_sub(since.elapsed());
        self.slashed = self.slashed || is_slashed(self.place, next);
        self.target = target_of(url, next)?;
        Ok(())
    }

    fn reply(self, hop: Hop, url: Url) -> Reply {
        let audience = self.audience(hop.status);
        let Hop { status, headers, body, unplaced, host, .. } = hop;
        let asked = self.asked.unwrap_or_else(|| url.to_string());
        let (redirects, slashed) = (self.redirects, self.slashed);
        Reply { status, headers, asked, url, redirects, body, unplaced, host, slashed, audience }
    }

    /// Who may be shown what came.
    fn audience(&self, status: StatusCode) -> Audience {
        let led = self.landing.map_or(Audience::Everyone, |landing| landing.audience);
        let own = self.pass.as_ref().map(Pass::audience).filter(|own| *own != Audience::Everyone);
        let audience = own.unwrap_or(led);
        let absent = matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE);
        let credentials = &self.client.options.credentials;
        if audience != Audience::Everyone {
            self.first.saw_login();
        } else if absent && (self.first.has_logins() || credentials.has_login_for(&self.first.authority)) {
            // Many hosts hide from strangers what they show to those who log in.
            return Audience::Only { uid: self.call.caller.uid };
        }
        audience
    }
}
