//! What the links really do: the round trips of small messages over TCP between every two sites, one pair at a time.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use quorate_core::Topology;

use crate::Result;
use crate::site::Site;

const PORT: u16 = 7000;
/// Round trips of each pair.
const TRIPS: usize = 30;

/// The round trips of all pairs in ms: as they should be, median, and longest; as CSV.
pub fn check(sites: &[Site], topology: &Topology) -> Result<String> {
    let mut text = "from,to,wanted_ms,median_ms,longest_ms\n".to_owned();
    for to in 0..sites.len() {
        for from in 0..to {
            let mut trips = trips(&sites[from], &sites[to])?;
            trips.sort_by(f64::total_cmp);
            let wanted = topology.round_trip(from, to).as_secs_f64() * 1e3;
            let (median, longest) = (trips[trips.len() / 2], trips[trips.len() - 1]);
            let (from, to) = (&sites[from].name, &sites[to].name);
            writeln!(text, "{from},{to},{wanted},{median:.3},{longest:.3}").expect("a string has room");
        }
    }
    Ok(text)
}

/// Of a byte that comes back, in ms; the connection stands.
fn trips(from: &Site, to: &Site) -> Result<Vec<f64>> {
    std::thread::scope(|scope| {
        let (ready, listens) = std::sync::mpsc::channel();
        let server = scope.spawn(move || -> Result<()> {
            to.enter()?;
            let listener = TcpListener::bind((to.address, PORT)).map_err(text)?;
            ready.send(()).map_err(text)?;
            let (mut stream, _) = listener.accept().map_err(text)?;
            stream.set_nodelay(true).map_err(text)?;
            let mut byte = [0];
            while stream.read(&mut byte).map_err(text)? > 0 {
                stream.write_all(&byte).map_err(text)?;
            }
            Ok(())
        });
        let client = scope.spawn(move || -> Result<Vec<f64>> {
            from.enter()?;
            listens.recv().map_err(text)?;
            let mut stream = TcpStream::connect((to.address, PORT)).map_err(text)?;
            stream.set_nodelay(true).map_err(text)?;
            let mut trip = || {
                let start = Instant::now();
                stream.write_all(&[1]).map_err(text)?;
                stream.read_exact(&mut [0]).map_err(text)?;
                Ok(start.elapsed().as_secs_f64() * 1e3)
            };
            (0..TRIPS).map(|_| trip()).collect()
        });
        let trips = client.join().expect("no thread panics");
        server.join().expect("no thread panics")?;
        trips
    })
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
