//! The flags of processes that serve, by environment: QUORATE_ and the flag in capitals, as `QUORATE_LISTEN_RESP`.
//! Before a configuration file, and behind the command line.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use strsim::levenshtein;

/// The commands that are started by others than people.
const SERVING: [&str; 2] = ["serve", "proxy"];

/// What our variables begin with.
const PREFIX: &str = "QUORATE_";

/// Those that are no flag's.
const OTHERS: [&str; 2] = ["QUORATE_PASSWORD", "QUORATE_LOG"];

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
    Some(format!("{PREFIX}{}", flag.to_uppercase().replace('-', "_")))
}

/// Variables that say something else than the flags that were given, which win, and those that no command knows, each
/// in a line for people. `command`: [with its environment](with_environment).
pub fn unheeded(command: &Command, matches: &ArgMatches) -> Vec<String> {
    let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut lines = unknown(command, set);
    let (mut command, mut given) = (command, matches);
    while let Some((name, next)) = given.subcommand() {
        let Some(subcommand) = command.find_subcommand(name) else { return lines };
        (command, given) = (subcommand, next);
    }
    lines.extend(command.get_arguments().filter_map(|arg| overridden(arg, given)));
    lines
}

/// Says that a flag wins over its variable.
fn overridden(arg: &Arg, given: &ArgMatches) -> Option<String> {
    let variable = arg.get_env()?.to_str()?;
    let value = std::env::var_os(variable)?;
    let (flag, id) = (arg.get_long()?, arg.get_id().as_str());
    let is_flag = given.value_source(id) == Some(ValueSource::CommandLine);
    let delimiter = arg.get_value_delimiter().map(String::from).unwrap_or_default();
    let said: Vec<OsString> = match given.try_get_raw(id) {
        Ok(Some(values)) => values.map(OsString::from).collect(),
        _ => Vec::new(),
    };
    let differs = is_flag && said.join(OsStr::new(&delimiter)) != value;
    differs.then(|| format!("--{flag} on the command line wins over {variable}, which says something else"))
}

/// Says of variables that look like ours, and are none, which may have been meant.
fn unknown(command: &Command, set: impl Iterator<Item = String>) -> Vec<String> {
    let mut known: BTreeSet<_> = OTHERS.map(str::to_owned).into();
    let mut commands = vec![command];
    while let Some(command) = commands.pop() {
        known.extend(command.get_arguments().filter_map(|arg| Some(arg.get_env()?.to_str()?.to_owned())));
        commands.extend(command.get_subcommands());
    }
    let set: BTreeSet<_> = set.filter(|name| name.starts_with(PREFIX) && !known.contains(name)).collect();
    let strangers = set.iter().filter(|name| !is_for_tests(name) && !is_of_kubernetes(name));
    let lines = strangers.map(|name| match similar(name, &known) {
        Some(meant) => format!("{name} is no setting of quorate; did you mean {meant}?"),
        None => format!("{name} is no setting of quorate"),
    });
    lines.collect()
}

/// Variables of tests, and of scripts that build.
fn is_for_tests(name: &str) -> bool {
    name.starts_with("QUORATE_TEST_")
        || ["QUORATE_RELEASES", "QUORATE_CLIENTS", "QUORATE_BINARY", "QUORATE_BIN"].contains(&name)
}

/// What Kubernetes tells every container of services whose names begin with `quorate`: `QUORATE_PEERS_SERVICE_HOST`,
/// for example, or `QUORATE_PORT`.
fn is_of_kubernetes(name: &str) -> bool {
    ["_SERVICE_HOST", "_SERVICE_PORT", "_TCP", "_UDP"].iter().any(|part| name.contains(part))
        || name.ends_with("_PORT")
}

/// The variable that differs in a letter out of three at most, or of which this is the beginning.
fn similar<'a>(name: &str, known: &'a BTreeSet<String>) -> Option<&'a String> {
    let own = |name: &'a String| name.strip_prefix(PREFIX).unwrap_or(name);
    let word = name.strip_prefix(PREFIX).unwrap_or(name);
    let nearest = known.iter().min_by_key(|known| levenshtein(word, own(known)))?;
    if levenshtein(word, own(nearest)) <= word.len() / 3 {
        return Some(nearest);
    }
    known.iter().find(|known| own(known).starts_with(&format!("{word}_")))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Args;

    #[test]
    fn variables_that_nothing_knows_are_named_with_those_that_may_have_been_meant() {
        let command = with_environment(Args::command());
        let said = |name: &str| unknown(&command, [name.to_owned()].into_iter()).join("\n");
        for (name, meant) in [
            ("QUORATE_NODE_IDD", "; did you mean QUORATE_NODE_ID?"),
            ("QUORATE_LISTENRESP", "; did you mean QUORATE_LISTEN_RESP?"),
            ("QUORATE_NODE", "; did you mean QUORATE_NODE_ID?"),
            ("QUORATE_ENDPOINT", "; did you mean QUORATE_ENDPOINTS?"),
            ("QUORATE_COLOUR", ""),
        ] {
            assert_eq!(said(name), format!("{name} is no setting of quorate{meant}"));
        }
        for name in [
            "QUORATE_NODE_ID",
            "QUORATE_ENDPOINTS",
            "QUORATE_PASSWORD",
            "QUORATE_LOG",
            "QUORATE_TEST_HANG",
            "QUORATE_RELEASES",
            "QUORATE_PORT",
            "QUORATE_PORT_7101_TCP_ADDR",
            "QUORATE_PEERS_SERVICE_HOST",
            "QUORATE_SERVICE_PORT_CLIENTS",
            "PATH",
        ] {
            assert_eq!(said(name), "", "{name}");
        }
    }

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
