//! The log: one file of 256 MiB, filled with zeros before it is used, so that a sync writes data alone; then written
//! from its beginning again. Nothing reads it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const SIZE: u64 = 256 << 20;

/// A log, and where its next bytes go.
pub struct Log {
    file: File,
    end: u64,
}

impl Log {
    /// Makes a log in a folder, which is made too.
    pub fn make(folder: &str, name: &str) -> io::Result<Log> {
        std::fs::create_dir_all(folder)?;
        let file = File::create(Path::new(folder).join(name))?;
        let zeros = vec![0; 1 << 20];
        for at in (0..SIZE).step_by(zeros.len()) {
            file.write_all_at(&zeros, at)?;
        }
        file.sync_all()?;
        Ok(Log { file, end: 0 })
    }

    /// Writes and syncs.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.end + bytes.len() as u64 > SIZE {
            self.end = 0;
        }
        self.file.write_all_at(bytes, self.end)?;
        self.end += bytes.len() as u64;
        self.file.sync_data()
    }
}
