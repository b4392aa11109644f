//! Users: the file with those of a new cluster, and whom a client command is authenticated as.

use std::fs;
use std::path::Path;

use quorate_api::resp::{self, FirstUsers};
use quorate_client::Login;
use quorate_store::{DEFAULT_USER, User};

use crate::args::ClientLogin;
use crate::failure::Failure;

/// Where a client command's password may be.
const PASSWORD: &str = "QUORATE_PASSWORD";

/// The users that a file names.
pub fn read(path: &Path) -> Result<FirstUsers, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::wrong(format!("cannot read --users {}: {error}", path.display())))?;
    resp::parse_users(&text).map_err(|error| Failure::wrong(format!("--users {}: {error}", path.display())))
}

/// Whether connections must name a user, and prove who they are, before they are served.
pub fn must_authenticate(users: &FirstUsers) -> bool {
    let mut user = User::initial_default();
    let rules = users.iter().filter(|(name, _)| name[..] == *DEFAULT_USER).flat_map(|(_, rules)| rules);
    // They were carried out when the file was read.
    let is_done = rules.map(|rule| user.change(rule)).all(|done| done.is_ok());
    is_done && !(user.enabled && user.no_password)
}

/// Whom the flags and the environment name; `None` for nobody.
pub fn of_client(flags: &ClientLogin) -> Result<Option<Login>, Failure> {
    if flags.password.is_some() {
        return Err(Failure::wrong(
            "a password on the command line can be read by whoever sees this machine's processes: put it into a file \
             for --password-file, or into QUORATE_PASSWORD",
        ));
    }
    let password = match (&flags.password_file, std::env::var(PASSWORD)) {
        (Some(path), _) => {
            let read = fs::read_to_string(path);
            let read = read.map_err(|error| {
                Failure::wrong(format!("cannot read --password-file {}: {error}", path.display()))
            })?;
            let password = read.trim_end_matches(['\r', '\n']).to_owned();
            if password.is_empty() {
                return Err(Failure::wrong(format!("--password-file {} is empty", path.display())));
            }
            Some(password)
        }
        (None, Ok(password)) if !password.is_empty() => Some(password),
        (None, _) => None,
    };
    match (&flags.user, password) {
        (user, Some(password)) => {
            let user = user.clone().unwrap_or_else(|| "default".to_owned());
            Ok(Some(Login { user, password: password.into() }))
        }
        (Some(user), None) => Err(Failure::wrong(format!(
            "--user {user} needs a password: put it into a file for --password-file, or into {PASSWORD}"
        ))),
        (None, None) => Ok(None),
    }
}
