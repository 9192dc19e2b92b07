//! Clients that look at pages of a server: each takes the next page view and asks for its objects one after the other,
//! over one connection.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use weft_log::{Act, Trace};

use crate::workload::Site;

/// What is asked for, and what has to come.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'s> {
    /// Where the server is.
    pub authority: &'s str,
    /// The site that it serves.
    pub site: &'s Site,
    /// The bytes that each content begins with, and ends in.
    pub source: &'s Bytes,
}

/// What the clients have seen.
#[derive(Debug)]
pub struct Seen {
    /// Objects that came.
    pub urls: usize,
    /// How long all took, in seconds.
    pub took_s: f64,
    /// How long each page took, in seconds, the shortest first.
    pub pages_s: Vec<f64>,
}

/// The page views of a trace, in the order in which they begin: of each its objects.
pub fn page_views(trace: &Trace) -> Vec<Vec<u32>> {
    let mut views: Vec<Vec<u32>> = Vec::new();
    let mut of_client: HashMap<u32, usize> = HashMap::new();
    for request in trace.requests.iter().filter(|request| request.act == Act::Read) {
        match of_client.get(&request.client) {
            Some(view) if request.referer.is_some() => views[*view].push(request.object),
            _ => {
                of_client.insert(request.client, views.len());
                views.push(vec![request.object]);
            }
        }
    }
    views
}

/// Has so many clients look at all of these pages.
pub fn look(asked: Asked<'_>, views: &[Vec<u32>], clients: usize) -> Result<Seen> {
    let (next, pages_s) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(views.len())));
    let client = || -> Result<()> {
        while let Some(view) = views.get(next.fetch_add(1, Ordering::Relaxed)) {
            let start = Instant::now();
            look_at(asked, view)?;
            pages_s.lock().expect("nobody panics with it").push(start.elapsed().as_secs_f64());
        }
        Ok(())
    };
    let start = Instant::now();
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        running.into_iter().try_for_each(|one| one.join().expect("it does not panic"))
    })?;
    let took_s = start.elapsed().as_secs_f64();
    let mut pages_s = pages_s.into_inner().expect("nobody panics with it");
    pages_s.sort_by(f64::total_cmp);
    Ok(Seen { urls: views.iter().map(Vec::len).sum(), took_s, pages_s })
}

fn look_at(asked: Asked<'_>, view: &[u32]) -> Result<()> {
    let stream = TcpStream::connect(asked.authority)?;
    stream.set_nodelay(true)?;
    let (mut answers, mut requests) = (BufReader::new(&stream), &stream);
    let mut body = Vec::new();
    for object in view {
        let name = &asked.site.names[*object as usize];
        requests.write_all(format!("GET {name} HTTP/1.1\r\nHost: {}\r\n\r\n", asked.authority).as_bytes())?;
        body.resize(length_of_answer(&mut answers).with_context(|| name.clone())?, 0);
        answers.read_exact(&mut body)?;
        let length = asked.site.lengths[*object as usize] as usize;
        ensure!(body == asked.source[..length], "{name}: not the bytes that it has");
    }
    Ok(())
}

/// Reads the head of an answer; how many bytes follow.
fn length_of_answer(answers: &mut impl BufRead) -> Result<usize> {
    let mut line = String::new();
    answers.read_line(&mut line)?;
    ensure!(line.starts_with("HTTP/1.1 200 "), "the server says {line:?}");
    let mut length = None;
    loop {
        line.clear();
        answers.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.trim().parse()?);
        }
    }
    length.context("an answer without a length")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Clients, Shape, views};

    #[test]
    fn views_are_pages() {
        let site = Site::new(Shape { pages: 30, seed: 2 });
        let trace = views(&site, Clients { count: 4, exponent: 0.8, replaced: 0.0, seed: 2 }, 3000);
        let seen = page_views(&trace);
        assert_eq!(seen.iter().map(Vec::len).sum::<usize>(), 3000);
        assert!(seen.iter().all(|view| site.pages.iter().any(|page| page.starts_with(view))));
        assert!(seen.iter().filter(|view| !site.pages.contains(view)).count() <= 4);
    }

    #[test]
    fn heads_of_answers_are_read() {
        let of = |text: &str| length_of_answer(&mut text.as_bytes());
        assert_eq!(of("HTTP/1.1 200 OK\r\nServer: x\r\ncontent-length: 12\r\n\r\n").unwrap(), 12);
        assert!(of("HTTP/1.1 404 Not Found\r\nContent-Length: 12\r\n\r\n").is_err());
        assert!(of("HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(of("").is_err());
    }
}
