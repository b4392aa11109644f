//! A client's connection, to one member: it never follows hints to another.

use clap::ValueEnum;
use etcd_client::GetOptions;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use zookeeper_client::{Acls, CreateMode, Error};

use crate::Result;

/// What is driven, and how it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum System {
    /// Quorate, or Redis: GET and SET.
    Resp,
    /// Linearizable reads, as by default.
    Etcd,
    /// Serializable reads: of the member's own state.
    EtcdStale,
    /// Reads of the member's own state, as by default.
    Zookeeper,
    /// A `sync` before each read.
    ZookeeperSync,
}

/// See the file comment.
pub enum Client {
    Resp(Box<MultiplexedConnection>),
    Etcd { client: Box<etcd_client::Client>, stale: bool },
    ZooKeeper { client: Box<zookeeper_client::Client>, sync: bool },
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn name(key: u64) -> String {
    format!("k{key:07}")
}

impl Client {
    pub async fn connect(system: System, endpoint: &str) -> Result<Client> {
        Ok(match system {
            System::Resp => {
                let client = redis::Client::open(format!("redis://{endpoint}")).map_err(text)?;
                // A slow answer counts as one.
                let config = AsyncConnectionConfig::new().set_response_timeout(None);
                let connection = client.get_multiplexed_async_connection_with_config(&config);
                let connection = connection.await.map_err(text)?;
                Client::Resp(Box::new(connection))
            }
            System::Etcd | System::EtcdStale => {
                let client = etcd_client::Client::connect([endpoint], None).await.map_err(text)?;
                Client::Etcd { client: Box::new(client), stale: system == System::EtcdStale }
            }
            System::Zookeeper | System::ZookeeperSync => {
                let client = zookeeper_client::Client::connect(endpoint).await.map_err(text)?;
                Client::ZooKeeper { client: Box::new(client), sync: system == System::ZookeeperSync }
            }
        })
    }

    /// Writes a key that need not be there.
    pub async fn create(&mut self, key: u64, value: &[u8]) -> Result<()> {
        let Client::ZooKeeper { client, .. } = self else { return self.write(key, value).await };
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        match client.create(&format!("/{}", name(key)), value, &options).await {
            Ok(_) | Err(Error::NodeExists) => Ok(()),
            Err(error) => Err(text(error)),
        }
    }

    /// Writes a key that is there.
    pub async fn write(&mut self, key: u64, value: &[u8]) -> Result<()> {
        match self {
            Client::Resp(connection) => {
                let mut set = redis::cmd("SET");
                set.arg(name(key)).arg(value).query_async(&mut **connection).await.map_err(text)
            }
            Client::Etcd { client, .. } => client.put(name(key), value, None).await.map(|_| ()).map_err(text),
            Client::ZooKeeper { client, .. } => {
                client.set_data(&format!("/{}", name(key)), value, None).await.map(|_| ()).map_err(text)
            }
        }
    }

    /// Reads a key that is there.
    pub async fn read(&mut self, key: u64) -> Result<()> {
        let missing = || format!("{} is not there", name(key));
        match self {
            Client::Resp(connection) => {
                let mut get = redis::cmd("GET");
                let value: Option<Vec<u8>> =
                    get.arg(name(key)).query_async(&mut **connection).await.map_err(text)?;
                value.map(|_| ()).ok_or_else(missing)
            }
            Client::Etcd { client, stale } => {
                let options = stale.then(|| GetOptions::new().with_serializable());
                let got = client.get(name(key), options).await.map_err(text)?;
                got.kvs().first().map(|_| ()).ok_or_else(missing)
            }
            Client::ZooKeeper { client, sync } => {
                let path = format!("/{}", name(key));
                if *sync {
                    client.sync(&path).await.map_err(text)?;
                }
                client.get_data(&path).await.map(|_| ()).map_err(text)
            }
        }
    }
}
