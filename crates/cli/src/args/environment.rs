//! The flags of processes that serve, by environment: QUORATE_ and the flag in capitals, as `QUORATE_LISTEN_RESP`.
//! Before a configuration file, and behind the command line.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory};

use super::Args;

/// The commands that are started by others than people.
const SERVING: [&str; 2] = ["serve", "proxy"];

/// Settings in one variable.
const SETTINGS: (&str, char) = ("set", ';');

/// The command line with a variable for each flag of these.
pub fn with_environment(command: Command) -> Command {
    SERVING.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, |serving| {
            serving.mut_args(|arg| match variable(&arg) {
                Some(variable) if arg.get_id() == SETTINGS.0 => arg.env(variable).value_delimiter(SETTINGS.1),
                Some(variable) => arg.env(variable),
                None => arg,
            })
        })
    })
}

fn variable(arg: &Arg) -> Option<String> {
    let flag = arg.get_long().filter(|_| !arg.is_hide_set() && arg.get_id() != "help")?;
    Some(format!("QUORATE_{}", flag.to_uppercase().replace('-', "_")))
}

/// Variables that say something else than the flags that were given, which win: lines for the log.
pub fn overridden(matches: &ArgMatches) -> Vec<String> {
    let Some((name, given)) = matches.subcommand().filter(|(name, _)| SERVING.contains(name)) else {
        return Vec::new();
    };
    let command = with_environment(Args::command());
    let found = command.find_subcommand(name).into_iter().flat_map(Command::get_arguments);
    let lines = found.filter_map(|arg| {
        let variable = variable(arg)?;
        let value = std::env::var_os(&variable)?;
        let flag = arg.get_long()?;
        let is_flag = given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
        let said: Vec<OsString> = match given.try_get_raw(arg.get_id().as_str()) {
            Ok(Some(values)) => values.map(OsString::from).collect(),
            _ => Vec::new(),
        };
        let differs = is_flag && said != [value];
        differs
            .then(|| format!("--{flag} on the command line wins over {variable}, which says something else"))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_has_a_variable_and_the_command_line_comes_first() {
        let command = with_environment(Args::command());
        let serve = command.find_subcommand("serve").unwrap();
        let of = |flag: &str| {
            let arg = serve.get_arguments().find(|arg| arg.get_long() == Some(flag)).unwrap();
            arg.get_env().map(|name| name.to_string_lossy().into_owned())
        };
        assert_eq!(of("listen-resp").as_deref(), Some("QUORATE_LISTEN_RESP"));
        assert_eq!(of("tls-ca").as_deref(), Some("QUORATE_TLS_CA"));
        assert_eq!(of("join").as_deref(), Some("QUORATE_JOIN"));
        assert_eq!(of("exit-with-stdin"), None);
        let mut flags = serve.get_arguments().filter(|arg| arg.get_long().is_some() && !arg.is_hide_set());
        assert!(flags.all(|arg| arg.get_id() == "help" || arg.get_env().is_some()), "all of them");
    }
}
