//! Files that commands write for operators.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::failure::Failure;

/// A file that gets its name when it is complete and on disk. Only its owner may read it.
pub struct OutputFile {
    path: PathBuf,
    force: bool,
    file: NamedTempFile,
}

impl OutputFile {
    /// Begins the file that `--out` names. One that is there is replaced if `force` says so, and an error otherwise.
    /// What a link leads to is replaced, not the link; devices, pipes and directories (`/dev/null`) never are.
    pub fn create(path: &Path, force: bool) -> Result<OutputFile, Failure> {
        let found = path.metadata().ok();
        if found.as_ref().is_some_and(|found| !found.is_file()) {
            return Err(Failure::wrong(format!(
                "{} is no regular file: choose another --out",
                path.display()
            )));
        }
        if !force && found.is_some() {
            return Err(exists(path));
        }
        let path = &found.and_then(|_| path.canonicalize().ok()).unwrap_or_else(|| path.to_owned());
        let parent = parent(path);
        let file = tempfile::Builder::new().prefix(".quorate-").tempfile_in(parent).map_err(|error| {
            Failure::wrong(format!("cannot write to {}, where --out is to be: {error}", parent.display()))
        })?;
        Ok(OutputFile { path: path.to_owned(), force, file })
    }

    /// What is written to.
    pub fn file(&mut self) -> &mut File {
        self.file.as_file_mut()
    }

    /// Gives the file its name; how many bytes it has.
    pub fn finish(self) -> Result<u64, Failure> {
        let OutputFile { path, force, file } = self;
        let cannot = |error: io::Error| cannot_write(&path, error);
        file.as_file().sync_all().map_err(cannot)?;
        let bytes = file.as_file().metadata().map_err(cannot)?.len();
        match force {
            true => file.persist(&path).map_err(|error| cannot(error.error))?,
            // Somebody else may have made it meanwhile.
            false => file.persist_noclobber(&path).map_err(|error| match error.error.kind() {
                io::ErrorKind::AlreadyExists => exists(&path),
                _ => cannot(error.error),
            })?,
        };
        File::open(parent(&path)).and_then(|directory| directory.sync_all()).map_err(cannot)?;
        Ok(bytes)
    }
}

/// An error while a file is written.
pub fn cannot_write(path: &Path, error: io::Error) -> Failure {
    Failure::failed(format!("cannot write {}: {error}", path.display()))
}

fn exists(path: &Path) -> Failure {
    Failure::wrong(format!("{} exists: choose another --out, or replace it with --force", path.display()))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
