//! stub

pub fn run(_endpoints: &[String], _hears: impl std::io::BufRead, _says: impl std::io::Write) {}
