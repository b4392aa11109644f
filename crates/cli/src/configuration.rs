//! `quorate config`: settings that all nodes share.

use std::io::{Write, stdout};

use quorate_client::{Client, Value};

use crate::args::{Config, ConfigGet, ConfigSet};
use crate::client::{TIMEOUT, connect_for};
use crate::failure::Failure;

/// The settings there are.
const NAMES: [&str; 2] = ["feature-level", "max-data"];

pub fn config(command: Config) -> Result<(), Failure> {
    match command {
        Config::Get(ConfigGet { name, endpoints }) => {
            let names = match &name {
                Some(name) => vec![known(name)?],
                None => NAMES.to_vec(),
            };
            let mut client = connect_for(endpoints, TIMEOUT)?;
            for name in names {
                writeln!(stdout(), "{name} = {}", get(&mut client, name)?)?;
            }
            Ok(())
        }
        Config::Set(ConfigSet { name, value, endpoints }) => {
            let name = known(&name)?;
            // Said twice it is the same.
            connect_for(endpoints, TIMEOUT)?.read(&["CONFIG", "SET", name, &value])?;
            Ok(writeln!(stdout(), "OK")?)
        }
    }
}

fn known(name: &str) -> Result<&'static str, Failure> {
    NAMES.into_iter().find(|known| *known == name).ok_or_else(|| {
        Failure::wrong(format!(
            "there is no setting `{name}` that all nodes share: there are {}",
            NAMES.join(" and ")
        ))
    })
}

fn get(client: &mut Client, name: &str) -> Result<String, Failure> {
    let reply = client.read(&["CONFIG", "GET", name])?;
    let found = match &reply {
        Value::Array(words) => words.get(1),
        _ => None,
    };
    match found {
        Some(Value::Bytes(value)) => Ok(String::from_utf8_lossy(value).into_owned()),
        _ => Err(Failure::failed(format!(
            "the node does not know the setting {name}: it runs another version, or a proxy alone"
        ))),
    }
}
