//! Requests of clients: arrays of bulk strings, as load generators send them.

/// The words of a request; there are at most three in what is served.
pub struct Request<'a> {
    /// The first three.
    pub words: [&'a [u8]; 3],
    /// Its bytes, all words included.
    pub length: usize,
}

/// Reads one request, if all of it is there; an error is something else than a request.
pub fn parse(input: &[u8]) -> Result<Option<Request<'_>>, &'static str> {
    let mut at = 0;
    let Some(count) = number(input, &mut at, b'*')? else { return Ok(None) };
    let mut words = [&input[..0]; 3];
    for index in 0..count {
        let Some(length) = number(input, &mut at, b'$')? else { return Ok(None) };
        let Some(word) = input.get(at..at + length).filter(|_| input.len() >= at + length + 2) else {
            return Ok(None);
        };
        if let Some(place) = words.get_mut(index) {
            *place = word;
        }
        at += length + 2;
    }
    Ok(Some(Request { words, length: at }))
}

fn number(input: &[u8], at: &mut usize, mark: u8) -> Result<Option<usize>, &'static str> {
    let Some(line) = input.get(*at..) else { return Ok(None) };
    let Some(end) = memchr::memchr(b'\n', line) else { return Ok(None) };
    let digits = line[..end].strip_suffix(b"\r").and_then(|line| line.strip_prefix(&[mark]));
    let text = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    *at += end + 1;
    text.and_then(|text| text.parse().ok()).map(Some).ok_or("a request is an array of bulk strings")
}
