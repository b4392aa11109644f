//! What an installation is made of: the configuration, variables instead of flags, manual pages and completions, and
//! the Debian package. What does not run here (Docker, Kubernetes, systemd) is read, and its flags and variables are
//! looked up; manifests are checked by Kubernetes's schema.

mod support;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::Resource;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use quorate_bench::Ports;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_yaml_ng::{Deserializer, Value};
use support::{Cluster, Connection, Resp};

fn packaging(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file)
}

fn read(file: &str) -> String {
    fs::read_to_string(packaging(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn printed(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_quorate")).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The words of a text that begin so.
fn words<'a>(text: &'a str, start: &str, more: &str) -> BTreeSet<&'a str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
    text.split(|c: char| !is_part(c))
        .filter(|word| word.starts_with(start) && word.len() > start.len())
        .collect()
}

/// The documents of a YAML file.
fn documents(file: &str) -> Vec<Value> {
    use serde::Deserialize;

    let text = read(file);
    let all = Deserializer::from_str(&text).map(Value::deserialize);
    all.map(|document| document.unwrap_or_else(|error| panic!("{file}: {error}"))).collect()
}

#[test]
fn flags_and_variables_of_all_files_exist() {
    let help = printed(&["serve", "--help"]) + &printed(&["status", "--help"]);
    let (flags, variables) = (words(&help, "--", "-"), words(&help, "QUORATE_", "_"));
    for file in ["Dockerfile", "kubernetes/quorate.yaml", "systemd/quorate.service"] {
        let text = read(file);
        for variable in words(&text, "QUORATE_", "_") {
            assert!(variables.contains(variable), "{file}: {variable}");
        }
        for line in
            text.lines().filter(|line| line.contains("quorate serve") || line.contains("quorate status"))
        {
            for flag in words(line, "--", "-") {
                assert!(flags.contains(flag), "{file}: {flag}");
            }
        }
    }
}

/// Reads a document by Kubernetes's schema; then every field of it must have been understood.
fn check_by_schema<T: Resource + Serialize + DeserializeOwned>(document: serde_json::Value) {
    assert_eq!((&document["apiVersion"], &document["kind"]), (&T::API_VERSION.into(), &T::KIND.into()));
    let typed: T =
        serde_json::from_value(document.clone()).unwrap_or_else(|error| panic!("{}: {error}", T::KIND));
    let known = serde_json::to_value(typed).unwrap();
    let lost = lost(T::KIND, &document, &known);
    assert!(lost.is_empty(), "misspelt, in the wrong place, or of the wrong type: {lost:?}");
}

/// What is in one value and not in another that should have all of it.
fn lost(place: &str, all: &serde_json::Value, found: &serde_json::Value) -> Vec<String> {
    use serde_json::Value::{Array, Object};

    let below = |key: &dyn Display, value, found| lost(&format!("{place}.{key}"), value, found);
    match all {
        Object(fields) => fields.iter().flat_map(|(key, value)| below(key, value, &found[key])).collect(),
        Array(items) => {
            items.iter().enumerate().flat_map(|(index, value)| below(&index, value, &found[index])).collect()
        }
        value if value == found => vec![],
        _ => vec![place.to_owned()],
    }
}

#[test]
fn the_manifests_are_what_the_schema_of_kubernetes_has() {
    for document in documents("kubernetes/quorate.yaml") {
        let document = serde_json::to_value(document).unwrap();
        match document["kind"].as_str() {
            Some("Service") => check_by_schema::<Service>(document),
            Some("PodDisruptionBudget") => check_by_schema::<PodDisruptionBudget>(document),
            Some("StatefulSet") => check_by_schema::<StatefulSet>(document),
            kind => panic!("{kind:?}"),
        }
    }
}

#[test]
fn the_manifests_fit_together() {
    let documents = documents("kubernetes/quorate.yaml");
    let of = |kind: &str| documents.iter().filter(|document| document["kind"] == kind).collect::<Vec<_>>();
    let (sets, services, budgets) = (of("StatefulSet"), of("Service"), of("PodDisruptionBudget"));
    assert_eq!((sets.len(), services.len(), budgets.len(), documents.len()), (1, 2, 1, 4));
    let (set, labels) = (&sets[0]["spec"], &sets[0]["spec"]["template"]["metadata"]["labels"]);
    assert_eq!(&set["selector"]["matchLabels"], labels);
    assert_eq!(&budgets[0]["spec"]["selector"]["matchLabels"], labels);
    assert!(services.iter().all(|service| &service["spec"]["selector"] == labels));
    let headless = services.iter().find(|service| service["spec"]["clusterIP"] == "None").unwrap();
    assert_eq!(headless["metadata"]["name"], set["serviceName"]);
    let pod = &set["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    let container = &pod["containers"][0];
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert!(container[probe]["periodSeconds"].is_u64(), "{probe}");
    }
    let names = |list: &Value| -> BTreeSet<String> {
        let names = list.as_sequence().unwrap().iter();
        names
            .map(|item| item["name"].as_str().or(item["metadata"]["name"].as_str()).unwrap().to_owned())
            .collect()
    };
    let volumes: BTreeSet<_> =
        names(&pod["volumes"]).union(&names(&set["volumeClaimTemplates"])).cloned().collect();
    assert_eq!(names(&container["volumeMounts"]), volumes);
    let ports = names(&container["ports"]);
    for port in services.iter().flat_map(|service| service["spec"]["ports"].as_sequence().unwrap()) {
        assert!(ports.contains(port["targetPort"].as_str().unwrap()), "{port:?}");
    }
    // As many members as there are nodes.
    let env = container["env"].as_sequence().unwrap();
    let members = env.iter().find(|variable| variable["name"] == "QUORATE_INITIAL_CLUSTER").unwrap();
    let members: Vec<_> = members["value"].as_str().unwrap().split(',').collect();
    assert_eq!(set["replicas"].as_u64(), Some(members.len() as u64));
    // A pod's number is its node's id, which names its certificate. The image has no shell that could compute it.
    let (name, service) = (&sets[0]["metadata"]["name"], &set["serviceName"]);
    let (name, service) = (name.as_str().unwrap(), service.as_str().unwrap());
    for (id, member) in (set["ordinals"]["start"].as_u64().unwrap()..).zip(members) {
        assert_eq!(member, format!("{id}={name}-{id}.{service}:7201"));
    }
    let id = env.iter().find(|variable| variable["name"] == "QUORATE_NODE_ID").unwrap();
    let label = "metadata.labels['apps.kubernetes.io/pod-index']";
    assert_eq!(id["valueFrom"]["fieldRef"]["fieldPath"], label);
    assert!(read("Dockerfile").contains("\nFROM scratch\n"));
    assert!(!read("kubernetes/quorate.yaml").contains("/bin/sh"));
}

#[test]
fn a_node_runs_by_variables_and_the_packaged_configuration_and_flags_win() {
    let (ports, dir) = (Ports::claim().unwrap(), tempfile::tempdir().unwrap());
    let mut cluster = Cluster::prepare(1, "unreplicated", &[]);
    let node = &mut cluster.nodes[0];
    // Nothing but the configuration; what it says of ports and places is replaced.
    node.resp = ports.address();
    node.args =
        ["serve", "--config", packaging("quorate.toml").to_str().unwrap(), "--listen-resp", &node.resp]
            .map(str::to_owned)
            .into();
    let data = dir.path().join("data").display().to_string();
    node.start_with_variables(&[
        ("QUORATE_LISTEN_RESP", "127.0.0.1:1"),
        ("QUORATE_LISTEN_PEER", &ports.address()),
        ("QUORATE_LISTEN_HTTP", &ports.address()),
        ("QUORATE_PROTOCOL", "unreplicated"),
        ("QUORATE_DATA_DIR", &data),
        ("QUORATE_LOG_JSON", "true"),
    ]);
    node.wait_until_serving();
    let mut connection = Connection::open(&node.resp).unwrap();
    assert_eq!(connection.call(&[b"SET", b"k", b"v"]).unwrap(), Resp::Simple("OK".into()));
    let line = node.wait_for_line(&["--listen-resp on the command line wins over QUORATE_LISTEN_RESP"]);
    assert!(line.starts_with('{'), "a variable that is no flag's value but the flag: {line}");
    assert!(dir.path().join("data").is_dir());
}

#[test]
fn manual_pages_and_completions_are_of_this_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("man");
    assert_eq!(printed(&["man", pages.to_str().unwrap()]), "");
    let serve = fs::read_to_string(pages.join("quorate-serve.1")).unwrap();
    assert!(serve.contains("QUORATE_LISTEN_RESP") && serve.contains("initial\\-cluster"), "{serve}");
    assert!(pages.join("quorate.1").exists());
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(&["completions", shell]);
        assert!(script.contains("initial-cluster"), "{shell}");
    }
}

/// Makes a package of the program under test.
fn package(target: &Path, revision: &str) -> PathBuf {
    // In a folder of its own: where `cargo deb` puts packages, it removes older ones.
    let folder = target.join(revision);
    fs::create_dir(&folder).unwrap();
    let made = Command::new(packaging("package.sh"))
        .args(["--deb-revision", revision, "--output"])
        .arg(&folder)
        .env("QUORATE_BINARY", env!("CARGO_BIN_EXE_quorate"))
        .env("CARGO_TARGET_DIR", target)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let said = String::from_utf8(made.stdout).unwrap();
    PathBuf::from(said.lines().next_back().expect("where it is"))
}

/// Where `cargo-deb` is installed, and this is root of a Debian that lets it have namespaces of its own.
#[test]
fn the_package_is_installed_started_upgraded_and_removed() {
    let works = |program: &str, words: &[&str]| {
        Command::new(program).args(words).output().is_ok_and(|output| output.status.success())
    };
    let spaces = ["--mount", "--net", "--pid", "--fork", "adduser", "--version"];
    if !works("cargo", &["deb", "--version"]) || !works("unshare", &spaces) || !works("dpkg", &["--version"])
    {
        return println!("not tried: it needs cargo-deb, dpkg, adduser, and root");
    }
    let target = tempfile::tempdir().unwrap();
    let [old, new] = ["1", "2"].map(|revision| package(target.path(), revision));
    let tried = Command::new(packaging("try.sh")).args([old, new]).output().unwrap();
    let said = String::from_utf8_lossy(&tried.stdout);
    assert!(tried.status.success(), "{said}{}", String::from_utf8_lossy(&tried.stderr));
    assert!(said.ends_with("== the package is installed, started, upgraded and removed\n"), "{said}");
}
